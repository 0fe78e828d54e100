//! From a call to its program and back: program table, admission, calls in flight, repeated calls.
//!
//! * [`service`]: the programs of one lane, as the transports see them
//! * `mounting`: the MOUNT program's calls
//! * [`route`]: program, version and procedure to handler
//! * [`admission`]: handle to export; client rules; read-only; squashing
//! * [`calls`]: the calls in flight on a lane
//! * [`attachments`]: the lane's halves of the backends
//! * [`starved`]: reads that wait for buffer memory
//! * [`reply_cache`]: replies for repeated calls
//! * [`inbox`]: replies from other lanes
//! * [`bulk`]: where the payload of an incoming call begins
//! * [`shared`]: what all lanes share
//! * [`metrics`]: what has happened so far

pub mod admission;
pub mod attachments;
pub mod bulk;
pub mod calls;
pub mod inbox;
pub mod metrics;
mod mounting;
pub mod reply_cache;
pub mod route;
pub mod service;
pub mod shared;
pub mod starved;

pub use metrics::Metrics;
pub use reply_cache::ReplyCache;
pub use service::LaneService;
pub use shared::{Limits, Shared};

#[cfg(test)]
mod tests;
