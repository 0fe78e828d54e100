//! What the integration tests share.

pub mod fuzz;
pub mod lane;
pub mod model;
