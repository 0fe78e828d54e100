//! A small bounded pool of threads for calls that can block, and the identity that a thread wears.

pub mod creds;
pub mod pool;

pub use pool::{BlockingPool, Job};
