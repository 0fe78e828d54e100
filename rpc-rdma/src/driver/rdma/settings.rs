//! What is configured for RDMA.

use crate::{
    conn,
    header::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX},
};

/// Limits of one lane.
#[derive(Debug, Clone)]
pub struct RdmaSettings {
    /// Longest inline message in both directions, in bytes; a multiple of 1024.
    pub inline_bytes: usize,
    /// Calls that a client may have under way on one connection.
    pub credits: usize,
    /// Timers and limits of each connection.
    pub connection: conn::Settings,
}

impl Default for RdmaSettings {
    fn default() -> Self {
        Self { inline_bytes: 4096, credits: 128, connection: conn::Settings::default() }
    }
}

impl RdmaSettings {
    /// The inline size as the private data can express it.
    pub(super) fn inline(&self) -> usize {
        let bytes = self.inline_bytes.clamp(INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX);
        bytes - bytes % 1024
    }
}
