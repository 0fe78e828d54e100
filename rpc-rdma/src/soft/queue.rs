//! Queue pairs: the server's end, and the client's.

use std::collections::VecDeque;

use buffers::Lease;
use bytes::Bytes;

use super::{fabric::ConnectOptions, memory::KeyTable, wake::Wake};
use crate::{
    endpoint::EndpointEvent,
    wire::{QpDepths, WireFault, Work, WorkId},
};

/// `rnr_retry` value that means "for ever".
pub(super) const RNR_RETRY_FOREVER: u8 = 7;

/// Where the server's end stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Made, not accepted: Receives can be posted.
    Prepared,
    /// Work goes through. The peer may be gone; that shows only as work that does not finish.
    Connected,
    /// Everything is flushed.
    Error,
}

/// Work on a send queue.
#[derive(Debug)]
pub(super) struct Posted {
    pub id: WorkId,
    pub work: Work,
    /// More RDMA Reads than agreed were outstanding when it was posted: the peer will refuse.
    pub over_limit: bool,
    /// Carrying out has begun: its planned fault is decided and its RDMA Writes are done.
    pub begun: bool,
}

/// The server's end of a connection.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub lane: usize,
    pub client: u64,
    pub phase: Phase,
    pub depths: QpDepths,
    pub reads_offered: u8,
    pub reads_max: usize,
    pub rnr_retry: u8,
    pub rnr_left: u8,
    /// Posted work in order; the first `submitted` pieces are in the device's hands.
    pub sends: VecDeque<Posted>,
    pub submitted: usize,
    pub receives: VecDeque<Lease>,
    /// Posted and not yet polled.
    pub send_requests_held: usize,
    pub reads_held: usize,
    pub receives_held: usize,
    pub disconnect_told: bool,
}

impl QueuePair {
    /// The next piece of work that the device has.
    pub(super) fn take_submitted(&mut self) -> Option<Posted> {
        self.submitted = self.submitted.checked_sub(1)?;
        self.sends.pop_front()
    }

    /// It could not be finished yet.
    pub(super) fn put_back(&mut self, posted: Posted) {
        self.sends.push_front(posted);
        self.submitted += 1;
    }

    /// Posted work that its owner has not seen come back.
    pub(super) fn work_held(&self) -> usize {
        self.send_requests_held + self.receives_held
    }
}

/// Where the client's end stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientPhase {
    Connecting,
    Connected,
    Dead,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct Client {
    pub phase: ClientPhase,
    /// The server's queue pair, once it is prepared.
    pub queue_pair: Option<u64>,
    pub options: ConnectOptions,
    /// Times that our Sends may still be told "not ready"; the server's acceptance sets it.
    pub rnr_left: u8,
    pub receives: usize,
    /// Sends that wait for a Receive of the server.
    pub outgoing: VecDeque<Bytes>,
    pub keys: KeyTable,
    pub next_address: u64,
    pub events: VecDeque<EndpointEvent>,
    pub wake: Wake,
}

impl Client {
    pub(super) fn tell(&mut self, event: EndpointEvent) {
        self.events.push_back(event);
        self.wake.happened();
    }

    /// End it, if it has not ended already.
    pub(super) fn end(&mut self, event: EndpointEvent) {
        if self.phase != ClientPhase::Dead {
            self.phase = ClientPhase::Dead;
            self.outgoing.clear();
            self.tell(event);
        }
    }

    pub(super) fn fail(&mut self, fault: WireFault) {
        self.end(EndpointEvent::Failed(fault));
    }
}
