//! The RPC-over-RDMA connection under any sequence of messages, completions and events.

use std::{
    collections::VecDeque,
    sync::OnceLock,
    time::{Duration, Instant},
};

use buffers::{Lease, Pool};
use bytes::Bytes;
use rpc_rdma::{
    conn::{Action, CallId, CloseReason, Connection, Settings, State, Terms},
    rpc::reply,
    wire::{WireFault, Work},
};

const TERMS: Terms = Terms {
    credits: 4,
    receives: 6,
    send_requests: 16,
    reads_outstanding: 2,
    send_bytes_max: 1024,
    invalidate: true,
};
const MESSAGE_BYTES: usize = 4096;
/// Turns that a connection may need to come to rest; the byte sequences are shorter than that.
const TURNS_MAX: usize = 10_000;

fn pool() -> &'static std::sync::Arc<Pool> {
    static POOL: OnceLock<std::sync::Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::standalone(64 << 20))
}

fn fault(number: u8) -> WireFault {
    match number % 4 {
        0 => WireFault::RemoteAccess,
        1 => WireFault::RetryExceeded,
        2 => WireFault::Local,
        _ => WireFault::Flushed,
    }
}

/// A driver of a few lines, which holds the connection to its bounds.
struct Driver {
    conn: Connection,
    now: Instant,
    receives: VecDeque<Lease>,
    posted: VecDeque<(CallId, Work)>,
    delivered: VecDeque<(CallId, u32)>,
    leases: VecDeque<(CallId, usize)>,
    disconnected: bool,
    destroyed: bool,
    /// Time passed while posted work was to come back: it may count as lost.
    lost: bool,
}

impl Driver {
    fn new() -> Self {
        let now = Instant::now();
        let arena = pool().arena().clone();
        let conn = Connection::new(Settings::default(), TERMS, arena, vec![9], now);
        let receives = (0..TERMS.receives).map(|_| message_buffer()).collect();
        Self {
            conn,
            now,
            receives,
            posted: VecDeque::new(),
            delivered: VecDeque::new(),
            leases: VecDeque::new(),
            disconnected: false,
            destroyed: false,
            lost: false,
        }
    }

    /// Carry out what it asks for.
    fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            let more = self.conn.work(self.now, 8);
            while let Some(action) = self.conn.poll_action() {
                assert!(!self.destroyed, "an action after the end: {action:?}");
                self.carry_out(action);
            }
            if !more {
                return self.check();
            }
        }
        panic!("the connection never comes to rest");
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Receive(lease) => self.receives.push_back(lease),
            Action::Post(call, work) => {
                if let Work::Reply { writes, send, .. } = &work {
                    assert!(!send.is_empty() && send.len() <= TERMS.send_bytes_max);
                    assert!(writes.iter().all(|write| !write.local.is_empty()));
                }
                self.posted.push_back((call, work));
            }
            Action::Deliver { call, budget, message } => {
                assert!(message.len() >= 8, "at least xid and direction");
                self.delivered.push_back((call, budget.message_bytes_max.try_into().unwrap_or(0)));
            }
            Action::NeedLease { call, bytes } => self.leases.push_back((call, bytes)),
            Action::Remember { .. } => {}
            Action::Disconnect => self.disconnected = true,
            Action::Destroy => {
                assert!(self.lost || self.posted.is_empty(), "destroyed with work posted");
                assert!(self.lost || self.receives.is_empty(), "destroyed with Receives posted");
                self.destroyed = true;
            }
        }
    }

    fn check(&self) {
        let requests: usize = self.posted.iter().map(|(_, work)| work.requests()).sum();
        assert!(requests <= TERMS.send_requests, "{requests} requests posted");
        let reads = self.posted.iter().map(|(_, work)| match work {
            Work::Fetch { reads, .. } => reads.len(),
            Work::Reply { .. } => 0,
        });
        assert!(reads.sum::<usize>() <= TERMS.reads_outstanding);
        assert!(self.receives.len() <= TERMS.receives, "more Receives than the queue holds");
        // An answer uses the client's credit no longer as soon as it is posted, for the client may have seen it;
        // its call stays under way until the Send has completed. Each of those has its request on the queue.
        assert!(self.conn.calls_under_way() <= TERMS.credits + TERMS.send_requests);
        let alive = matches!(self.conn.state(), State::Handshaking | State::Ready);
        assert!(!alive || self.receives.len() == TERMS.receives, "the Receive queue has shrunk");
    }

    fn message(&mut self, bytes: &[u8], with_spare: bool) {
        let Some(mut buffer) = self.receives.pop_front() else { return };
        let len = bytes.len().min(MESSAGE_BYTES);
        buffer[..len].copy_from_slice(&bytes[..len]);
        let spare = with_spare.then(message_buffer);
        self.conn.received(self.now, buffer, len, spare);
    }

    /// The oldest piece of work is done.
    fn complete(&mut self, result: Result<(), WireFault>) {
        match self.posted.pop_front() {
            Some((call, Work::Fetch { sink, .. })) => {
                self.conn.fetched(self.now, call, sink, result);
            }
            Some((call, Work::Reply { .. })) => self.conn.replied(self.now, call, result),
            None => {}
        }
    }

    fn answer(&mut self, payload_bytes: usize, abandon: bool) {
        let Some((call, _)) = self.delivered.pop_front() else { return };
        if abandon {
            return self.conn.abandon(call);
        }
        let mut writer = reply::success(7);
        if payload_bytes.is_multiple_of(2) {
            writer.payload(Bytes::from(vec![1; payload_bytes]));
        } else {
            writer.opaque(&vec![1; payload_bytes]);
        }
        self.conn.reply(call, writer.finish());
    }

    fn lend(&mut self) {
        if let Some((call, bytes)) = self.leases.pop_front()
            && let Some(lease) = pool().take(bytes)
        {
            self.conn.lease(self.now, call, lease);
        }
    }

    /// Everything posted comes back flushed; then the connection must be over.
    fn wind_up(mut self) {
        self.conn.close(self.now, CloseReason::Local);
        self.turn();
        assert!(self.disconnected || self.destroyed);
        while !self.posted.is_empty() {
            self.complete(Err(WireFault::Flushed));
            self.turn();
        }
        while self.receives.pop_front().is_some() {
            self.conn.receive_failed(self.now, WireFault::Flushed);
            self.turn();
        }
        assert!(self.destroyed, "{:?} with nothing left to wait for", self.conn.state());
        assert_eq!(self.conn.state(), State::Closed);
    }
}

fn message_buffer() -> Lease {
    pool().take(MESSAGE_BYTES).expect("the Receives of one connection fit")
}

/// Steps: a byte of what happens and a byte of detail; a message has its length and bytes behind them.
pub(super) fn connection(data: &[u8]) {
    let driver = drive(data);
    if !driver.destroyed {
        driver.wind_up();
    }
}

fn drive(mut data: &[u8]) -> Driver {
    let mut driver = Driver::new();
    driver.turn();
    while let Some((&[what, detail], rest)) = data.split_first_chunk() {
        data = rest;
        match what {
            0 => driver.conn.established(driver.now),
            1..=63 => {
                let len = (usize::from(what) << 4).min(rest.len());
                let (message, rest) = rest.split_at(len);
                driver.message(message, detail & 1 == 1);
                data = rest;
            }
            64..=95 => driver.complete(Ok(())),
            96..=127 => driver.answer(usize::from(detail) * usize::from(what - 95), what == 96),
            128..=159 => driver.lend(),
            160..=191 => {
                driver.lost |= driver.conn.state() == State::Closing;
                driver.now += Duration::from_millis(u64::from(detail) << 5);
                driver.conn.tick(driver.now);
            }
            192..=199 => driver.complete(Err(fault(detail))),
            200 => driver.conn.drain(driver.now),
            201 => driver.conn.disconnected(driver.now),
            202 => driver.conn.failed(driver.now),
            203 => driver.conn.forbid_invalidate(),
            204 if driver.receives.pop_front().is_some() => {
                driver.conn.receive_failed(driver.now, fault(detail));
            }
            205 if !driver.posted.is_empty() => {
                let (call, _) = driver.posted.remove(0).expect("not empty");
                driver.conn.work_refused(driver.now, call);
            }
            _ => {}
        }
        driver.turn();
        if driver.destroyed {
            break;
        }
    }
    driver
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::seeds;

    /// The fuzzer begins where calls are served, not where they are refused.
    #[test]
    fn the_seeds_reach_the_program_and_come_back() {
        let seeds = seeds::of("rdma_connection");
        let seen = |number: usize| *drive(&seeds[number]).conn.counters();
        let inline = seen(0);
        assert_eq!((inline.calls, inline.replies_inline, inline.chunk_errors), (1, 1, 0));
        assert_eq!(seen(1).written_bytes, 400, "placed by RDMA Write");
        assert_eq!(seen(2).replies_long, 1, "by the Reply chunk");
        assert_eq!((seen(3).calls, seen(3).read_bytes), (1, 128), "fetched by RDMA Read");
        assert_eq!(seen(4).chunk_errors, 1, "abandoned");
    }

    /// The bound on calls under way was that of the Receives, which says nothing about answers.
    #[test]
    fn bug_answers_that_had_not_completed_counted_against_the_receives() {
        let posted =
            include_bytes!("../../fuzz/corpus/rdma_connection/answers_posted_and_not_completed");
        let driver = drive(posted);
        assert_eq!(driver.posted.len(), TERMS.send_requests, "nothing has completed");
        assert_eq!(driver.conn.calls_under_way(), TERMS.credits + TERMS.send_requests);
        assert_eq!(driver.conn.state(), State::Ready);
        connection(posted);
    }
}
