//! What is configured for every connection, and what one connection has negotiated.

use std::time::Duration;

use buffers::pool::CLASS_BYTES;

/// Most bytes that the Read chunks of one call may hold: what the largest buffer takes, a megabyte of payload
/// with room for the call around it.
pub const CALL_BYTES_MAX: usize = CLASS_BYTES[CLASS_BYTES.len() - 1];

/// Limits and timers of every connection.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long the handshake may take.
    pub handshake_timeout: Duration,
    /// How long posted work may take before the peer counts as lost.
    pub work_timeout: Duration,
    /// How long a connection may stay without a call; `None` for ever.
    pub idle_timeout: Option<Duration>,
    /// How long calls under way may take when the connection is to end.
    pub drain_timeout: Duration,
    /// How long posted work may take to come back after the disconnect.
    pub teardown_timeout: Duration,
    /// Protocol errors of the peer per minute before the connection closes.
    pub faults_per_minute_max: u32,
    /// Bytes of Read chunks that one connection may have in buffers; more waits its turn.
    pub gather_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(30),
            work_timeout: Duration::from_secs(30),
            idle_timeout: Some(Duration::from_secs(15 * 60)),
            drain_timeout: Duration::from_secs(30),
            teardown_timeout: Duration::from_secs(10),
            faults_per_minute_max: 16,
            gather_bytes_max: 64 << 20,
        }
    }
}

/// What holds for one connection.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Calls that the peer may have under way.
    pub credits: usize,
    /// Receives that are posted at the start and kept posted.
    pub receives: usize,
    /// Depth of the send queue.
    pub send_requests: usize,
    /// RDMA Reads that may be outstanding.
    pub reads_outstanding: usize,
    /// Longest Send that the peer can receive and we may post, in bytes.
    pub send_bytes_max: usize,
    /// Whether both sides and the device can do Send with Invalidate.
    pub invalidate: bool,
}
