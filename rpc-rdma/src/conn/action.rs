//! What a connection asks its driver to do.

use buffers::Lease;

use super::CallId;
use crate::{
    service::ReplyBudget,
    wire::{WireFault, Work},
    xdr::Rope,
};

/// One thing to do. Actions are carried out in order.
#[derive(Debug)]
pub enum Action {
    /// Post a Receive.
    Receive(Lease),
    /// Post work; its completion carries the id of the call.
    Post(CallId, Work),
    /// Hand a call to the program.
    Deliver {
        /// Names the call for the reply.
        call: CallId,
        /// How much the reply may be.
        budget: ReplyBudget,
        /// The RPC message.
        message: Rope,
    },
    /// Bring a lease of `bytes` for a call, in the order of asking, as soon as there is one.
    NeedLease {
        /// For which call.
        call: CallId,
        /// How large.
        bytes: usize,
    },
    /// This call broke the connection: should the client send it again on the next one, it gets ERR_CHUNK.
    Remember {
        /// Its transaction id.
        xid: u32,
    },
    /// Disconnect the queue pair.
    Disconnect,
    /// Destroy the queue pair; the connection is over.
    Destroy,
}

/// Why a connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// The peer hung up.
    #[error("the client disconnected")]
    Peer,
    /// We were asked to.
    #[error("closed by this side")]
    Local,
    /// Too many calls at a time.
    #[error("the client used more credits than it was granted")]
    Overrun,
    /// Too many protocol errors.
    #[error("too many protocol errors of the client")]
    Faults,
    /// The handshake took too long.
    #[error("the handshake was not completed in time")]
    HandshakeTimeout,
    /// Posted work did not complete.
    #[error("posted work did not complete in time")]
    WorkTimeout,
    /// No call for a long time.
    #[error("idle for too long")]
    Idle,
    /// Work failed.
    #[error("work failed: {0:?}")]
    Work(WireFault),
    /// The queue pair failed without a completion.
    #[error("the queue pair failed")]
    QueuePair,
    /// The provider refused work.
    #[error("the device refused work")]
    Refused,
    /// The device is gone.
    #[error("the device is gone")]
    DeviceGone,
}

/// What a connection has seen; only ever grows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls handed to the program.
    pub calls: u64,
    /// Replies that went inline.
    pub replies_inline: u64,
    /// Replies that went by the Reply chunk.
    pub replies_long: u64,
    /// Bytes fetched from Read chunks.
    pub read_bytes: u64,
    /// Bytes placed into Write chunks.
    pub written_bytes: u64,
    /// Sends with Invalidate.
    pub invalidations: u64,
    /// ERR_VERS sent.
    pub version_errors: u64,
    /// ERR_CHUNK sent.
    pub chunk_errors: u64,
    /// Messages dropped without an answer.
    pub dropped: u64,
    /// Replies that did not fit what the client offered.
    pub misfits: u64,
    /// Calls above the grant.
    pub overruns: u64,
    /// Sends that found no Receive at the peer: always a bug of one side.
    pub receiver_not_ready: u64,
    /// Other failed work, flushes not counted.
    pub work_failures: u64,
}

impl Counters {
    /// Add `other`.
    pub fn add(&mut self, other: &Self) {
        let Self {
            calls,
            replies_inline,
            replies_long,
            read_bytes,
            written_bytes,
            invalidations,
            version_errors,
            chunk_errors,
            dropped,
            misfits,
            overruns,
            receiver_not_ready,
            work_failures,
        } = other;
        self.calls += calls;
        self.replies_inline += replies_inline;
        self.replies_long += replies_long;
        self.read_bytes += read_bytes;
        self.written_bytes += written_bytes;
        self.invalidations += invalidations;
        self.version_errors += version_errors;
        self.chunk_errors += chunk_errors;
        self.dropped += dropped;
        self.misfits += misfits;
        self.overruns += overruns;
        self.receiver_not_ready += receiver_not_ready;
        self.work_failures += work_failures;
    }
}
