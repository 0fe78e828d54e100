//! The connection: its state, its inputs that are not calls, and its timers.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{collections::VecDeque, sync::Arc, time::Instant};

use buffers::{Arena, Lease};
use bytes::Bytes;

use super::{
    action::{Action, CloseReason, Counters},
    meter::FaultMeter,
    send_queue::SendQueue,
    settings::{Settings, Terms},
    state::{Input, State},
    table::{CallId, CallTable, Stage},
};
use crate::{credit::Credits, wire::WireFault};

/// Messages that may wait beyond the posted Receives: one round of completions.
const BACKLOG_SPARE: usize = 64;

/// One RPC-over-RDMA connection, responder's side.
#[derive(Debug)]
pub struct Connection {
    pub(super) settings: Settings,
    pub(super) terms: Terms,
    pub(super) arena: Arc<Arena>,
    state: State,
    entered_at: Instant,
    active_at: Instant,
    close_reason: Option<CloseReason>,
    pub(super) credits: Credits,
    pub(super) calls: CallTable,
    pub(super) queue: SendQueue,
    pub(super) backlog: VecDeque<Bytes>,
    pub(super) gather_bytes: usize,
    pub(super) gather_waiting: VecDeque<CallId>,
    receives_posted: usize,
    pub(super) works_posted: usize,
    pub(super) actions: VecDeque<Action>,
    meter: FaultMeter,
    pub(super) poisoned: Vec<u32>,
    pub(super) counters: Counters,
}

impl Connection {
    /// A connection whose Receives are posted and which is being accepted. `poisoned` are the calls that
    /// broke earlier connections of this client.
    pub fn new(
        settings: Settings,
        terms: Terms,
        arena: Arc<Arena>,
        poisoned: Vec<u32>,
        now: Instant,
    ) -> Self {
        Self {
            settings,
            terms,
            arena,
            state: State::Handshaking,
            entered_at: now,
            active_at: now,
            close_reason: None,
            credits: Credits::new(terms.credits, terms.receives),
            calls: CallTable::default(),
            queue: SendQueue::new(terms.send_requests, terms.reads_outstanding),
            backlog: VecDeque::new(),
            gather_bytes: 0,
            gather_waiting: VecDeque::new(),
            receives_posted: terms.receives,
            works_posted: 0,
            actions: VecDeque::new(),
            meter: FaultMeter::new(settings.faults_per_minute_max),
            poisoned,
            counters: Counters::default(),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it was closed, once it was.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    /// What it has seen.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Credits that it grants.
    pub fn credits_granted(&self) -> u32 {
        self.credits.granted()
    }

    /// Calls under way, from the header to the completed reply.
    pub fn calls_under_way(&self) -> usize {
        self.calls.len()
    }

    /// Send without Invalidate from now on: the device refused it.
    pub fn forbid_invalidate(&mut self) {
        self.terms.invalidate = false;
    }

    /// The handshake is complete.
    pub fn established(&mut self, now: Instant) {
        self.step(now, Input::Established);
    }

    /// A message of `len` bytes has arrived in `buffer`. With `spare` as the next Receive the message stays
    /// where it is; without, it is copied so that the buffer can be posted again: the Receive queue never
    /// shrinks.
    pub fn received(&mut self, now: Instant, buffer: Lease, len: usize, spare: Option<Lease>) {
        self.receives_posted = self.receives_posted.saturating_sub(1);
        if matches!(self.state, State::Closing | State::Closed) {
            return self.check_flushed(now);
        }
        let len = len.min(buffer.capacity());
        let (message, next) = match spare {
            Some(spare) => (buffer.freeze(0, len), spare),
            None => (Bytes::copy_from_slice(buffer.get(..len).unwrap_or(&[])), buffer),
        };
        self.actions.push_back(Action::Receive(next));
        self.receives_posted += 1;
        if self.state == State::Draining {
            return;
        }
        self.active_at = now;
        self.backlog.push_back(message);
        if self.backlog.len() > self.terms.receives + BACKLOG_SPARE {
            self.overrun(now);
        }
    }

    /// A Receive came back without a message.
    pub fn receive_failed(&mut self, now: Instant, fault: WireFault) {
        self.receives_posted = self.receives_posted.saturating_sub(1);
        self.work_failed(now, fault);
        self.check_flushed(now);
    }

    /// A Receive could not be posted.
    pub fn receive_refused(&mut self, now: Instant) {
        self.receives_posted = self.receives_posted.saturating_sub(1);
        self.close(now, CloseReason::Refused);
        self.check_flushed(now);
    }

    /// The peer has hung up.
    pub fn disconnected(&mut self, now: Instant) {
        self.close(now, CloseReason::Peer);
    }

    /// The queue pair failed without a completion.
    pub fn failed(&mut self, now: Instant) {
        self.close(now, CloseReason::QueuePair);
    }

    /// End it at once.
    pub fn close(&mut self, now: Instant, reason: CloseReason) {
        if matches!(self.state, State::Closing | State::Closed) {
            return;
        }
        self.close_reason.get_or_insert(reason);
        self.step(now, Input::Close);
    }

    /// End it when the calls that are being executed are answered.
    pub fn drain(&mut self, now: Instant) {
        self.close_reason.get_or_insert(CloseReason::Local);
        self.step(now, Input::Drain);
    }

    /// The device is gone: nothing will come back.
    pub fn device_gone(&mut self, now: Instant) {
        self.close_reason.get_or_insert(CloseReason::DeviceGone);
        self.step(now, Input::Gone);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        let in_state = now.saturating_duration_since(self.entered_at);
        match self.state {
            State::Handshaking if in_state >= self.settings.handshake_timeout => {
                self.close(now, CloseReason::HandshakeTimeout);
            }
            State::Closing if in_state >= self.settings.teardown_timeout => {
                self.step(now, Input::Gone);
            }
            State::Draining if in_state >= self.settings.drain_timeout => {
                self.close(now, CloseReason::Local);
            }
            State::Ready | State::Draining => self.tick_running(now),
            State::Handshaking | State::Closing | State::Closed => {}
        }
    }

    fn tick_running(&mut self, now: Instant) {
        let oldest = self.calls.posted_first();
        if oldest.is_some_and(|at| now.saturating_duration_since(at) >= self.settings.work_timeout)
        {
            return self.close(now, CloseReason::WorkTimeout);
        }
        let idle = now.saturating_duration_since(self.active_at);
        let limit = self.settings.idle_timeout;
        if self.calls.len() == 0 && limit.is_some_and(|limit| idle >= limit) {
            self.close(now, CloseReason::Idle);
        }
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.active_at = now;
    }

    /// The peer broke the protocol. False when the connection was closed for it.
    pub(super) fn peer_fault(&mut self, now: Instant) -> bool {
        let too_many = self.meter.fault(now);
        if too_many {
            self.close(now, CloseReason::Faults);
        }
        !too_many
    }

    /// The peer has more calls under way than it may.
    pub(super) fn overrun(&mut self, now: Instant) {
        self.counters.overruns += 1;
        self.close(now, CloseReason::Overrun);
    }

    /// Work failed; the queue pair is in the error state.
    pub(super) fn work_failed(&mut self, now: Instant, fault: WireFault) {
        match fault {
            WireFault::Flushed => {}
            WireFault::ReceiverNotReady => self.counters.receiver_not_ready += 1,
            _ => self.counters.work_failures += 1,
        }
        self.close(now, CloseReason::Work(fault));
    }

    fn step(&mut self, now: Instant, input: Input) {
        let next = self.state.next(input);
        if next == self.state {
            return;
        }
        self.state = next;
        self.entered_at = now;
        match next {
            State::Handshaking | State::Ready => self.active_at = now,
            State::Draining => {
                self.backlog.clear();
                self.shed(|stage| !matches!(stage, Stage::Gathering(_)));
                self.check_quiet(now);
            }
            State::Closing => {
                self.backlog.clear();
                self.shed(|_| false);
                self.actions.push_back(Action::Disconnect);
                self.check_flushed(now);
            }
            State::Closed => {
                self.backlog.clear();
                self.calls = CallTable::default();
                self.actions.clear();
                self.actions.push_back(Action::Destroy);
            }
        }
    }

    /// Drop all calls that nothing is posted for and `keep` does not want; the client sends them again on its
    /// next connection.
    fn shed(&mut self, keep: impl Fn(&Stage) -> bool) {
        for id in self.calls.ids() {
            let stays = self.calls.get(id).is_some_and(|c| c.posted_at.is_some() || keep(&c.stage));
            if !stays {
                self.calls.remove(id);
            }
        }
        let Self { queue, calls, gather_waiting, .. } = self;
        queue.replies.retain(|&id| calls.get(id).is_some());
        queue.fetches.retain(|&id| calls.get(id).is_some());
        gather_waiting.clear();
    }

    /// In Draining: all calls are answered.
    pub(super) fn check_quiet(&mut self, now: Instant) {
        if self.state == State::Draining && self.calls.len() == 0 {
            self.step(now, Input::Quiet);
        }
    }

    /// In Closing: everything has come back.
    pub(super) fn check_flushed(&mut self, now: Instant) {
        if self.state == State::Closing && self.receives_posted == 0 && self.works_posted == 0 {
            self.step(now, Input::Flushed);
        }
    }
}
