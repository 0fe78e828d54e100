//! The lane: one thread that owns its connections for life, polls, dispatches and flushes.
//!
//! * [`lane`]: the thread, its tokio runtime and the reactor loop
//! * [`stream`]: TCP connections as tasks of that runtime
//! * [`core`]: where calls and replies meet
//! * [`rdma`]: RDMA connections on the lane's providers
//! * [`limits`]: how many connections there may be
//! * [`wait`], [`wake`]: sleeping and being woken

pub mod core;
mod holdings;
pub mod lane;
pub mod limits;
pub mod rdma;
pub mod stream;
pub mod wait;
pub mod wake;

pub use crate::log_rate::LogRate;
pub use lane::{Lane, LaneContext, LaneHandle, LaneSettings};
pub use limits::{ConnectionLimits, TooMany};
