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

    /// Whether it waits for the end of what it has posted: fetched data, room on the send queue, or the last
    /// of its work before it closes.
    pub fn awaits_completions(&self) -> bool {
        self.state == State::Draining
            || self.state == State::Closing
            || !self.gather_waiting.is_empty()
            || self.queue.is_waiting()
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

    /// Work failed; the queue pair is in the error state, or is brought there now.
    pub(super) fn work_failed(&mut self, now: Instant, fault: WireFault) {
        match fault {
            WireFault::Flushed => {}
            WireFault::Refused => return self.close(now, CloseReason::Refused),
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
                // Calls that were not handed over yet come again on the client's next connection.
                self.actions.retain(|action| !matches!(action, Action::Deliver { .. }));
                self.actions.push_back(Action::Disconnect);
                self.check_flushed(now);
            }
            State::Closed => {
                self.backlog.clear();
                self.calls = CallTable::default();
                let last = |action: &Action| {
                    matches!(action, Action::Remember { .. } | Action::Disconnect)
                };
                self.actions.retain(last);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::time::Duration;

    use buffers::Pool;

    use super::*;
    use crate::{rpc::reply, xdr::Rope};

    struct Bench {
        pool: Arc<Pool>,
        conn: Connection,
        now: Instant,
        receives: Vec<Lease>,
    }

    impl Bench {
        fn new() -> Self {
            let pool = Pool::standalone(8 << 20);
            let terms = Terms {
                credits: 2,
                receives: 3,
                send_requests: 4,
                reads_outstanding: 1,
                send_bytes_max: 4096,
                invalidate: false,
            };
            let now = Instant::now();
            let arena = pool.arena().clone();
            let conn = Connection::new(Settings::default(), terms, arena, Vec::new(), now);
            let receives = (0..3).map(|_| pool.take(4096).unwrap()).collect();
            Self { pool, conn, now, receives }
        }

        fn message(&mut self, bytes: &[u8]) {
            let mut buffer = self.receives.pop().unwrap();
            buffer[..bytes.len()].copy_from_slice(bytes);
            let spare = self.pool.take(4096);
            self.conn.received(self.now, buffer, bytes.len(), spare);
        }

        fn null(&mut self, xid: u32) {
            let words = [xid, 1, 9, 0, 0, 0, 0, xid, 0, 2, 9, 9, 0, 0, 0, 0, 0];
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            self.message(&bytes);
        }

        fn actions(&mut self) -> Vec<Action> {
            std::iter::from_fn(|| self.conn.poll_action()).collect()
        }

        /// Work, and the calls that are delivered.
        fn delivered(&mut self) -> Vec<CallId> {
            self.conn.work(self.now, 32);
            let mut calls = Vec::new();
            for action in self.actions() {
                match action {
                    Action::Deliver { call, .. } => calls.push(call),
                    Action::Receive(lease) => self.receives.push(lease),
                    other => panic!("unexpected {other:?}"),
                }
            }
            calls
        }

        /// Answer a call up to the posted work.
        fn post_reply(&mut self, call: CallId) {
            self.conn.reply(call, Rope::inline(reply::success(1).finish().flatten()));
            let Some(Action::NeedLease { call, bytes }) = self.conn.poll_action() else {
                panic!("a reply needs a buffer")
            };
            let lease = self.pool.take(bytes).unwrap();
            self.conn.lease(self.now, call, lease);
            assert!(matches!(self.actions().as_slice(), [Action::Post(..)]));
        }

        fn wait(&mut self, seconds: u64) {
            self.now += Duration::from_secs(seconds);
            self.conn.tick(self.now);
        }
    }

    #[test]
    fn messages_before_the_handshake_is_complete_wait() {
        let mut bench = Bench::new();
        bench.null(1);
        assert!(bench.delivered().is_empty());
        bench.conn.established(bench.now);
        assert_eq!(bench.delivered().len(), 1);
    }

    #[test]
    fn work_that_the_device_did_not_take_closes_like_work_that_it_refused_at_once() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(1);
        bench.null(2);
        let calls = bench.delivered();
        calls.iter().for_each(|&call| bench.post_reply(call));
        // The first was taken, the second not.
        bench.conn.replied(bench.now, calls[1], Err(WireFault::Refused));
        assert_eq!(bench.conn.close_reason(), Some(CloseReason::Refused));
        assert_eq!(bench.conn.state(), State::Closing);
        assert_eq!(bench.conn.counters().work_failures, 0, "nothing was sent that could fail");
        assert!(matches!(bench.actions().as_slice(), [Action::Disconnect]));
        bench.conn.replied(bench.now, calls[0], Err(WireFault::Flushed));
        for _ in 0..3 {
            assert_eq!(bench.conn.state(), State::Closing);
            bench.conn.receive_failed(bench.now, WireFault::Flushed);
        }
        assert_eq!(bench.conn.state(), State::Closed);
    }

    #[test]
    fn handshake_timer() {
        let mut bench = Bench::new();
        bench.wait(29);
        assert_eq!(bench.conn.state(), State::Handshaking);
        bench.wait(1);
        assert_eq!(bench.conn.state(), State::Closing);
        assert_eq!(bench.conn.close_reason(), Some(CloseReason::HandshakeTimeout));
        assert!(matches!(bench.actions().as_slice(), [Action::Disconnect]));
    }

    #[test]
    fn posted_work_is_watched() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(1);
        let [call] = bench.delivered()[..] else { panic!("one call") };
        bench.wait(300);
        assert_eq!(bench.conn.state(), State::Ready, "programs may take their time");
        bench.post_reply(call);
        bench.wait(29);
        assert_eq!(bench.conn.state(), State::Ready);
        bench.wait(1);
        assert_eq!(bench.conn.close_reason(), Some(CloseReason::WorkTimeout));
    }

    #[test]
    fn idle_connections_close_in_the_end() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.wait(899);
        assert_eq!(bench.conn.state(), State::Ready);
        bench.wait(1);
        assert_eq!(bench.conn.close_reason(), Some(CloseReason::Idle));
    }

    #[test]
    fn draining_waits_for_calls_that_are_executed() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(1);
        let [call] = bench.delivered()[..] else { panic!("one call") };
        bench.conn.drain(bench.now);
        bench.null(2);
        assert!(bench.delivered().is_empty());
        bench.post_reply(call);
        assert_eq!(bench.conn.state(), State::Draining);
        bench.conn.replied(bench.now, call, Ok(()));
        assert_eq!(bench.conn.state(), State::Closing);
    }

    #[test]
    fn draining_has_an_end() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(1);
        assert_eq!(bench.delivered().len(), 1);
        bench.conn.drain(bench.now);
        bench.wait(30);
        assert_eq!(bench.conn.state(), State::Closing);
    }

    #[test]
    fn closing_waits_for_everything_posted_or_the_deadline() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(1);
        let [call] = bench.delivered()[..] else { panic!("one call") };
        bench.post_reply(call);
        bench.conn.disconnected(bench.now);
        assert!(matches!(bench.actions().as_slice(), [Action::Disconnect]));
        for _ in 0..3 {
            bench.conn.receive_failed(bench.now, WireFault::Flushed);
            assert_eq!(bench.conn.state(), State::Closing);
        }
        bench.conn.replied(bench.now, call, Err(WireFault::Flushed));
        assert_eq!(bench.conn.state(), State::Closed);
        assert!(matches!(bench.actions().as_slice(), [Action::Destroy]));

        let mut bench = Bench::new();
        bench.conn.disconnected(bench.now);
        bench.wait(10);
        assert_eq!(bench.conn.state(), State::Closed);
        assert!(matches!(bench.actions().as_slice(), [Action::Disconnect, Action::Destroy]));
    }

    #[test]
    fn the_call_that_broke_the_connection_is_remembered_even_when_all_comes_back_at_once() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(77);
        let [call] = bench.delivered()[..] else { panic!("one call") };
        bench.post_reply(call);
        bench.conn.replied(bench.now, call, Err(WireFault::RemoteAccess));
        (0..3).for_each(|_| bench.conn.receive_failed(bench.now, WireFault::Flushed));
        let actions = bench.actions();
        let expected = matches!(
            actions.as_slice(),
            [Action::Remember { xid: 77 }, Action::Disconnect, Action::Destroy]
        );
        assert!(expected, "{actions:?}");
    }

    #[test]
    fn a_message_without_a_spare_buffer_is_copied_and_the_receive_posted_again() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        let held: Vec<Lease> = std::iter::from_fn(|| bench.pool.take(4096)).collect();
        bench.null(1);
        assert_eq!(bench.delivered().len(), 1);
        assert_eq!(bench.receives.len(), 3);
        drop(held);
    }

    #[test]
    fn late_and_double_answers_are_ignored() {
        let mut bench = Bench::new();
        bench.conn.established(bench.now);
        bench.null(1);
        let [call] = bench.delivered()[..] else { panic!("one call") };
        bench.post_reply(call);
        bench.conn.reply(call, Rope::inline(vec![0; 24]));
        bench.conn.abandon(call);
        assert!(bench.actions().is_empty());
        bench.conn.replied(bench.now, call, Ok(()));
        bench.conn.reply(call, Rope::inline(vec![0; 24]));
        assert!(bench.actions().is_empty());
    }
}
