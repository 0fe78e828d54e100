//! An in-process RDMA fabric that keeps the rules of reliable-connected queue pairs.
//!
//! The server side ([`SoftProvider`]) and the client side ([`SoftEndpoint`]) meet in a [`Fabric`]. There are
//! no threads in it: work is carried out by whoever calls `flush` or `poll`, so a test on one thread is
//! deterministic, and the same code serves client and server on different threads.
//!
//! Rules that it keeps, each with a test:
//!
//! * remote memory: keys, bounds and access rights are checked; a breach fails both queue pairs
//! * Send with Invalidate takes the key away; a wrong key fails the connection
//! * every message needs a posted Receive that is long enough (RNR, length errors)
//! * order within a queue pair, none between queue pairs; the first error flushes the rest in order
//! * a peer that hangs up does not flush our queues: only our own disconnect does
//! * a completion queue that is not armed wakes nobody
//! * no zero-length messages, no memory outside the arena, no more work than the queue holds, no more RDMA
//!   Reads than agreed: breaches are refused or fatal, and counted in [`Violations`]
//! * a removed device takes everything with it

mod device;
mod endpoint;
mod execute;
mod fabric;
mod fault;
mod memory;
mod provider;
mod queue;
#[cfg(test)]
mod tests;
mod wake;

pub use endpoint::{SoftEndpoint, SoftRegion};
pub use fabric::{ConnectOptions, Fabric, FabricSettings};
pub use fault::{FaultPlan, Violations};
pub use provider::SoftProvider;
