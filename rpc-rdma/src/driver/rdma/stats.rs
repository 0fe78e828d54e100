//! What an operator wants to know about the RDMA side of a lane.

use std::net::SocketAddr;

use crate::conn::{Counters, State};

/// Sums over all connections of a lane, open and closed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RdmaStats {
    /// Open connections.
    pub connections: usize,
    /// Credits granted on them.
    pub credits_granted: usize,
    /// Calls under way on them.
    pub calls_under_way: usize,
    /// Buffers that are being waited for.
    pub leases_waiting: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connection requests turned down since the start.
    pub rejected: u64,
    /// Devices lost since the start.
    pub devices_lost: u64,
    /// Everything that connections count.
    pub counters: Counters,
}

/// One open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionStats {
    /// The client. The port carries no meaning.
    pub peer: SocketAddr,
    /// Where it stands.
    pub state: State,
    /// Credits granted.
    pub credits_granted: u32,
    /// Calls under way.
    pub calls_under_way: usize,
    /// What it has seen.
    pub counters: Counters,
}
