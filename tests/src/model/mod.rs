//! Random operations, carried out on the memory model and on another backend, which must agree.
//!
//! * [`steps`]: what is done, and how it is made up
//! * [`pair`]: two backends side by side
//! * [`listing`]: whole directories and whole trees
//! * [`agree`]: what has to be equal

pub mod agree;
pub mod listing;
pub mod pair;
pub mod steps;
