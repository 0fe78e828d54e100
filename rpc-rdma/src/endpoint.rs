//! The client's end of one RDMA connection: what a userspace RPC client needs from a device.
//!
//! Implementations: [`crate::soft::SoftEndpoint`] and, with real devices, the one in `verbs`. Connecting is
//! up to the implementation; an endpoint exists from the moment the handshake has begun and reports
//! [`EndpointEvent::Connected`] when it is through.

use std::{fmt, os::fd::RawFd, time::Duration};

use bytes::Bytes;

use crate::wire::{WireError, WireFault};

/// What the server may do with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// RDMA Read: Read chunks.
    RemoteRead,
    /// RDMA Write: Write and Reply chunks.
    RemoteWrite,
}

/// Memory that the server may reach through a key.
pub trait Region: fmt::Debug {
    /// The key (`handle` in RFC 8166).
    fn rkey(&self) -> u32;

    /// Address of the first byte in the server's terms (`offset` in RFC 8166).
    fn address(&self) -> u64;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copy bytes into the region.
    ///
    /// # Panics
    /// When they do not fit behind `at`.
    fn write(&mut self, at: usize, bytes: &[u8]);

    /// Copy bytes out of the region.
    ///
    /// # Panics
    /// When it ends before `at + bytes.len()`.
    fn read(&self, at: usize, bytes: &mut [u8]);
}

/// What happens at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointEvent {
    /// The server has accepted. Its private data is as delivered (zero-padded on InfiniBand).
    Connected {
        /// Private data of the acceptance.
        private_data: Bytes,
    },
    /// The server has turned us down.
    Rejected {
        /// Private data of the rejection.
        private_data: Bytes,
    },
    /// A message has arrived; its Receive is used up.
    Received {
        /// The message.
        message: Bytes,
        /// Our key that came with it and is no longer valid (Send with Invalidate).
        invalidated: Option<u32>,
    },
    /// The oldest Send is done.
    Sent,
    /// The connection failed on our side.
    Failed(WireFault),
    /// The connection has ended.
    Disconnected,
}

/// One connection of a client. After [`EndpointEvent::Failed`] or [`EndpointEvent::Disconnected`] it is of no
/// more use.
pub trait Endpoint: fmt::Debug {
    /// Memory that it registers.
    type Region: Region;

    /// Whether the server may invalidate our keys with its Sends. User-space memory regions of real devices
    /// cannot be invalidated remotely; such an endpoint says no, and the client tells the server so.
    fn remote_invalidation(&self) -> bool;

    /// Register new zeroed memory.
    ///
    /// # Errors
    /// When the device refuses.
    fn register(&mut self, len: usize, access: Access) -> Result<Self::Region, WireError>;

    /// Give a region a new key, whether or not the old one is still valid.
    ///
    /// # Errors
    /// When the device refuses; the region then has no valid key.
    fn refresh(&mut self, region: &mut Self::Region) -> Result<(), WireError>;

    /// End a registration.
    fn deregister(&mut self, region: Self::Region);

    /// Post one Receive of the size agreed at connect time.
    ///
    /// # Errors
    /// When the queue is full or the connection is gone.
    fn post_receive(&mut self) -> Result<(), WireError>;

    /// Send one message. [`EndpointEvent::Sent`] tells when it is done.
    ///
    /// # Errors
    /// When it cannot be posted.
    fn send(&mut self, message: &[u8]) -> Result<(), WireError>;

    /// Append what has happened since the last call.
    fn poll(&mut self, out: &mut Vec<EndpointEvent>);

    /// Ask for a wake-up at the next event; what happened before is found by one more `poll`.
    fn arm(&mut self);

    /// Become readable, after `arm`, when `poll` may have something.
    fn wake_fds(&self) -> Vec<RawFd>;

    /// Sleep until `poll` may have something, but not longer than `timeout`. It may return early.
    fn wait(&mut self, timeout: Duration);

    /// Hang up. Harmless twice.
    fn disconnect(&mut self);
}
