//! How the RDMA client behaves, and what it says about itself when it connects (RFC 8797).

use super::shape::Shape;
use crate::header::PrivateData;

/// How the client behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdmaClientSettings {
    /// Longest Send, in bytes.
    pub send_bytes: usize,
    /// Size of our Receives, in bytes.
    pub receive_bytes: usize,
    /// Credits that we ask for, and never exceed.
    pub credits: u32,
    /// Receives that the endpoint has posted when it connects.
    pub receives_posted: usize,
    /// Keep to the server's grants. A test may choose not to.
    pub heed_credits: bool,
    /// Give every region a new key for each use, as Linux does. Dear on real devices.
    pub new_keys: bool,
    /// Which chunks are used.
    pub shape: Shape,
    /// The first xid.
    pub first_xid: u32,
}

impl Default for RdmaClientSettings {
    /// What a Linux client does.
    fn default() -> Self {
        Self {
            send_bytes: 4096,
            receive_bytes: 4096,
            credits: 128,
            receives_posted: 8,
            heed_credits: true,
            new_keys: true,
            shape: Shape::default(),
            first_xid: 0x5a01_0000,
        }
    }
}

impl RdmaClientSettings {
    /// Private data for the connection request.
    pub fn private_data(&self, remote_invalidation: bool) -> Vec<u8> {
        let data = PrivateData {
            invalidate: remote_invalidation,
            send_bytes: self.send_bytes,
            receive_bytes: self.receive_bytes,
        };
        data.encode().to_vec()
    }
}
