//! Faults on order, and a tally of what the posters did wrong.

use crate::wire::WireFault;

/// What goes wrong, set by a test through [`super::Fabric::inject`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Fail the n-th piece of send-queue work from now (0 is the next) in this way.
    pub fail_work: Option<(u64, WireFault)>,
    /// Carry out independent queue pairs in an order drawn from this seed instead of posting order.
    pub reorder_seed: Option<u64>,
    /// Keep completions back until [`super::Fabric::release_completions`].
    pub hold_completions: bool,
    /// Work towards a peer that is gone fails at once (RetryExceeded) instead of hanging until disconnect.
    pub retry_exceeded: bool,
}

impl FaultPlan {
    /// The fault for the piece of work that is about to be carried out.
    pub(super) fn next_work(&mut self) -> Option<WireFault> {
        let (left, fault) = self.fail_work?;
        if left == 0 {
            self.fail_work = None;
            return Some(fault);
        }
        self.fail_work = Some((left - 1, fault));
        None
    }

    /// Put `queue_pairs` into the order in which they make progress.
    pub(super) fn order<T>(&mut self, queue_pairs: &mut [T]) {
        let Some(seed) = self.reorder_seed.as_mut() else { return };
        for i in (1..queue_pairs.len()).rev() {
            // xorshift64; the seed must not be 0.
            *seed = (*seed).max(1);
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            queue_pairs.swap(i, (*seed % (i as u64 + 1)) as usize);
        }
    }
}

/// What a poster did that a real device would have punished. All zero in a correct server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Violations {
    /// Memory outside the arena was posted.
    pub unregistered: u64,
    /// More send work than the queue holds.
    pub send_queue_full: u64,
    /// More Receives than the queue holds.
    pub receive_queue_full: u64,
    /// More RDMA Reads outstanding than agreed, or an agreement above the peer's offer.
    pub reads_over_limit: u64,
    /// A message, RDMA Write or RDMA Read of no bytes, or outside its sink.
    pub bad_length: u64,
    /// Send work before the handshake was complete.
    pub not_connected: u64,
    /// Send with Invalidate on a device that has none.
    pub invalidate_unsupported: u64,
    /// A queue pair was destroyed while work that was posted on it had not come back.
    pub destroyed_with_work: u64,
    /// The peer was sent a message for which it had no Receive.
    pub receiver_not_ready: u64,
}
