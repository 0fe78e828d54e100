//! What an RDMA provider does for one lane: post work, poll completions, report connection events.
//!
//! Providers: `verbs` (real devices) and [`crate::soft`] (in-process). Ownership travels with the work: a
//! provider keeps every buffer that is posted and gives it back with the completion, so no memory that a
//! device may still touch can be freed. Whoever drops a provider drops the device's use of the memory first.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::Arc,
};

use buffers::Lease;
use bytes::Bytes;

/// Names a queue pair of this provider; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpId(pub u64);

/// Something for each queue pair.
pub type QpMap<V> = HashMap<QpId, V, BuildHasherDefault<QpHasher>>;

/// Hashes a [`QpId`], several times for every message. Providers count their queue pairs, so nobody can choose
/// numbers that collide.
#[derive(Debug, Clone, Copy, Default)]
pub struct QpHasher(u64);

impl Hasher for QpHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // Odd, so that numbers in a row keep apart in the low bits; and large, so that they differ in the high ones.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The poster's mark on a piece of work; it comes back with the completion.
pub type WorkId = u64;

/// Longest private data that rdma_cm delivers, in bytes (the REP of InfiniBand).
pub const PRIVATE_DATA_BYTES_MAX: usize = 196;

/// Memory at the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Key of the peer's registration (`handle` in RFC 8166).
    pub rkey: u32,
    /// Address in the peer's terms (`offset` in RFC 8166).
    pub address: u64,
}

/// One RDMA Write of a reply.
#[derive(Debug, Clone)]
pub struct RdmaWrite {
    /// What to write; never empty. Bytes outside the registered arena are the poster's error.
    pub local: Bytes,
    /// Where to.
    pub remote: RemoteMemory,
}

/// One RDMA Read into a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RdmaRead {
    /// Offset in the sink, in bytes.
    pub sink_offset: usize,
    /// Bytes to read; never 0.
    pub len: usize,
    /// Where from.
    pub remote: RemoteMemory,
}

/// Work for a send queue. Each piece is posted as one chain of work requests of which only the last is
/// signaled, and completes as one.
#[derive(Debug)]
pub enum Work {
    /// RDMA Writes in order, then a Send that the peer sees only after them.
    Reply {
        /// The RDMA Writes.
        writes: Vec<RdmaWrite>,
        /// The message; lies in registered memory.
        send: Bytes,
        /// Remote key to invalidate with the Send.
        invalidate: Option<u32>,
    },
    /// RDMA Reads into a lease.
    Fetch {
        /// Where the data goes.
        sink: Lease,
        /// The reads.
        reads: Vec<RdmaRead>,
    },
}

impl Work {
    /// Work requests that it takes on the send queue.
    pub fn requests(&self) -> usize {
        match self {
            Self::Reply { writes, .. } => writes.len() + 1,
            Self::Fetch { reads, .. } => reads.len(),
        }
    }
}

/// Why work failed. Any of them leaves the queue pair in the error state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WireFault {
    /// Flushed because the queue pair is in the error state or was destroyed.
    Flushed,
    /// The peer's memory could not be accessed (bad key, bounds, rights).
    RemoteAccess,
    /// The peer could not carry out the request (also: invalidation of a wrong key).
    RemoteOperation,
    /// The peer does not answer.
    RetryExceeded,
    /// The peer has no Receive posted.
    ReceiverNotReady,
    /// A message was longer than the Receive buffer.
    LocalLength,
    /// The device did not take it.
    Refused,
    /// The local device or memory failed.
    Local,
    /// The device is gone.
    DeviceGone,
}

/// A finished piece of work.
#[derive(Debug)]
pub enum WorkCompletion {
    /// A message has arrived.
    Received {
        /// On which queue pair.
        qp: QpId,
        /// The buffer that it arrived in.
        buffer: Lease,
        /// Length of the message.
        len: usize,
    },
    /// A posted Receive came back without a message.
    ReceiveFailed {
        /// Of which queue pair.
        qp: QpId,
        /// Its buffer.
        buffer: Lease,
        /// Why.
        fault: WireFault,
    },
    /// A reply was sent, or failed.
    Replied {
        /// On which queue pair.
        qp: QpId,
        /// The poster's mark.
        id: WorkId,
        /// How it went.
        result: Result<(), WireFault>,
    },
    /// A fetch is done, or failed. The sink comes back in either case.
    Fetched {
        /// On which queue pair.
        qp: QpId,
        /// The poster's mark.
        id: WorkId,
        /// The sink.
        sink: Lease,
        /// How it went.
        result: Result<(), WireFault>,
    },
}

/// A peer that wants to connect. Dropping it unanswered leaves the peer to its timeout.
#[derive(Debug, Clone)]
pub struct ConnectRequest {
    /// Names the request for [`Provider::prepare`] and [`Provider::reject`].
    pub id: u64,
    /// Who asks. The port carries no meaning.
    pub peer: SocketAddr,
    /// The address that it asked for.
    pub local: SocketAddr,
    /// Private data of the request, as delivered (zero-padded on InfiniBand).
    pub private_data: Bytes,
    /// RDMA Reads that the peer lets us keep outstanding.
    pub reads_outstanding_max: u8,
}

/// What happens to connections.
#[derive(Debug)]
pub enum WireEvent {
    /// Somebody wants to connect.
    ConnectRequest(ConnectRequest),
    /// The handshake is complete.
    Established(QpId),
    /// The peer has hung up, or the connection broke. Posted work is flushed only after
    /// [`Provider::disconnect`].
    Disconnected(QpId),
    /// A queue pair failed without a completion to say so (asynchronous event).
    Failed(QpId),
    /// The device is going away or has failed: every queue pair of this provider must be destroyed and the
    /// provider dropped, promptly.
    DeviceGone,
}

/// What a device allows. All figures are for one queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireLimits {
    /// Most send work requests outstanding.
    pub send_requests_max: usize,
    /// Most Receives posted.
    pub receives_max: usize,
    /// Most RDMA Reads outstanding as initiator.
    pub reads_outstanding_max: usize,
    /// Whether Send with Invalidate works.
    pub send_with_invalidate: bool,
}

/// Depths of a new queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpDepths {
    /// Send work requests.
    pub send_requests: usize,
    /// Receives.
    pub receives: usize,
}

/// What wakes a lane that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// What arrives (messages, and Receives that fail): enough as long as nobody waits for buffers or for
    /// room on a send queue. The ends of Sends are found when the lane is awake for another reason.
    Arrivals,
    /// Every completion.
    Everything,
}

/// Why a provider could not do something at once.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The system refused.
    #[error("{operation}: {source}")]
    System {
        /// Which call.
        operation: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The queue pair or the request does not exist (any more).
    #[error("no such queue pair or connection request")]
    Unknown,
    /// More work than the queue holds: the poster counted wrong.
    #[error("the queue is full")]
    QueueFull,
    /// Bytes outside the registered arena.
    #[error("the buffer does not lie in registered memory")]
    NotRegistered,
}

/// One RDMA device as one lane sees it.
///
/// Life of a connection: `ConnectRequest` → [`Self::prepare`] → [`Self::post_receive`] for every credit →
/// [`Self::accept`] → messages → `Disconnected`, a fault or our own wish → [`Self::disconnect`] → every posted
/// piece of work comes back, flushed → [`Self::destroy`].
pub trait Provider: fmt::Debug {
    /// Name, port and address for people: `rxe0/1 10.77.0.1 GID ::ffff:10.77.0.1`.
    fn name(&self) -> &str;

    /// What the device allows.
    fn limits(&self) -> WireLimits;

    /// Make a queue pair for a request. Returns the depths that it really has (at least those asked for).
    ///
    /// # Errors
    /// When the device or the system refuses; the request is then still there to be rejected.
    fn prepare(&mut self, request: u64, depths: QpDepths) -> Result<(QpId, QpDepths), WireError>;

    /// Complete the handshake. `reads_outstanding` is the number of RDMA Reads that we will keep under way.
    ///
    /// # Errors
    /// When the peer has gone away or the system refuses; the queue pair must then be destroyed.
    fn accept(
        &mut self,
        qp: QpId,
        private_data: &[u8],
        reads_outstanding: u8,
    ) -> Result<(), WireError>;

    /// Turn a request down.
    fn reject(&mut self, request: u64, private_data: &[u8]);

    /// Post a Receive, at once or with the next [`Self::flush`]. The buffer comes back as `Received` or
    /// `ReceiveFailed`; the latter with [`WireFault::Refused`] if the device does not take it then.
    ///
    /// # Errors
    /// When it cannot be posted; the buffer is dropped.
    fn post_receive(&mut self, qp: QpId, buffer: Lease) -> Result<(), WireError>;

    /// Post work, at once or with the next [`Self::flush`]. It comes back as `Replied` or `Fetched`, once, also
    /// when it fails on the way or the device does not take it ([`WireFault::Refused`]).
    ///
    /// # Errors
    /// When nothing of it was posted; what it owned is dropped.
    fn post(&mut self, qp: QpId, id: WorkId, work: Work) -> Result<(), WireError>;

    /// Hand what was posted since the last call to the device (providers may batch until then); Receives before
    /// work. A lane calls it at the end of every turn, and never sleeps before. Returns how many pieces of work
    /// have come back for which there will be no wake-up: it must `poll` then.
    fn flush(&mut self) -> usize;

    /// Append up to `max` messages that have arrived, and finished pieces of work. Work that was finished
    /// before a message arrived is reported before it.
    fn poll(&mut self, out: &mut Vec<WorkCompletion>, max: usize);

    /// Append connection events of this lane.
    fn events(&mut self, out: &mut Vec<WireEvent>);

    /// Ask for a wake-up through [`Self::wake_fds`] at the next completion of the kinds named; what had
    /// completed before is found by one more `poll`. (A wake-up asked for earlier may still come.)
    fn arm(&mut self, alarm: Alarm);

    /// File descriptors that become readable when `poll` (after `arm`) or `events` may have something.
    fn wake_fds(&self) -> Vec<Arc<OwnedFd>>;

    /// Bring the queue pair into the error state; everything posted comes back flushed (also what no
    /// [`Self::flush`] has followed). Harmless twice.
    fn disconnect(&mut self, qp: QpId);

    /// Give the queue pair up. Everything posted must have come back, or is lost with the device.
    fn destroy(&mut self, qp: QpId);
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashSet,
        hash::{BuildHasher, BuildHasherDefault},
    };

    use super::*;

    #[test]
    fn queue_pairs_in_a_row_hash_apart() {
        let hash = |number| BuildHasherDefault::<QpHasher>::default().hash_one(QpId(number));
        for first in [0, 1, 1 << 32, u64::MAX - 4096] {
            let hashes: Vec<u64> = (first..first + 1024).map(hash).collect();
            let places: HashSet<u64> = hashes.iter().map(|hash| hash % 1024).collect();
            assert_eq!(places.len(), 1024, "a table picks the place by the low bits");
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert_eq!(tags.len(), 128, "and tells neighbours apart by the high ones");
        }
    }
}
