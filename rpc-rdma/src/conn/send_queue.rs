//! Room on the send queue: work requests and outstanding RDMA Reads.
//!
//! Replies come first, in order of readiness. A reply that does not fit holds back RDMA Reads, so that a
//! stream of them cannot starve it; RDMA Reads above the peer's depth wait here and not in the device, where
//! they would stall every reply behind them.

use std::collections::VecDeque;

use super::CallId;

/// The queue of one connection.
#[derive(Debug)]
pub(super) struct SendQueue {
    requests_free: usize,
    reads_free: usize,
    reads_max: usize,
    /// Calls whose reply is ready.
    pub replies: VecDeque<CallId>,
    /// Calls whose next RDMA Reads are ready.
    pub fetches: VecDeque<CallId>,
}

impl SendQueue {
    pub fn new(requests: usize, reads: usize) -> Self {
        Self {
            requests_free: requests,
            reads_free: reads,
            reads_max: reads,
            replies: VecDeque::new(),
            fetches: VecDeque::new(),
        }
    }

    /// Whether RDMA Reads are under way, or anything waits for room.
    pub fn is_waiting(&self) -> bool {
        self.reads_free < self.reads_max || !self.replies.is_empty() || !self.fetches.is_empty()
    }

    /// Take room for a reply of so many requests, if there is.
    pub fn take_reply(&mut self, requests: usize) -> bool {
        let fits = requests <= self.requests_free;
        if fits {
            self.requests_free -= requests;
        }
        fits
    }

    /// RDMA Reads that may be posted now.
    pub fn reads_room(&self) -> usize {
        self.reads_free.min(self.requests_free)
    }

    /// Take room for RDMA Reads, at most [`Self::reads_room`].
    pub fn take_reads(&mut self, reads: usize) {
        debug_assert!(reads <= self.reads_room());
        self.requests_free -= reads;
        self.reads_free -= reads;
    }

    /// A reply is done.
    pub fn give_reply(&mut self, requests: usize) {
        self.requests_free += requests;
    }

    /// RDMA Reads are done.
    pub fn give_reads(&mut self, reads: usize) {
        self.requests_free += reads;
        self.reads_free += reads;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_keep_to_both_limits() {
        let mut queue = SendQueue::new(5, 2);
        assert_eq!(queue.reads_room(), 2);
        queue.take_reads(2);
        assert_eq!(queue.reads_room(), 0);
        assert!(queue.take_reply(3));
        assert!(!queue.take_reply(1));
        queue.give_reads(2);
        assert_eq!(queue.reads_room(), 2);
        assert!(queue.take_reply(1));
        assert_eq!(queue.reads_room(), 1);
        queue.give_reply(3);
        assert_eq!(queue.reads_room(), 2);
    }
}
