//! The RDMA side of a lane: connections ([`crate::conn`]) on devices ([`crate::wire::Provider`]).

mod accept;
mod lease_queue;
mod links;
mod poison;
mod settings;
mod side;
mod stats;

pub use settings::RdmaSettings;
pub use side::{DeliveredCall, RdmaSide};
pub use stats::{ConnectionStats, RdmaStats};
