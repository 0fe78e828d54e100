//! What the integration tests share.

pub mod demo;
pub mod fuzz;
pub mod lane;
pub mod model;
pub mod tidy;
