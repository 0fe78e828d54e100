//! A userspace RPC client over every transport, for tests and load generation.

pub mod endpoint;

pub use endpoint::{Access, Endpoint, EndpointEvent, Region};
