//! What the TCP streams of a lane hold of its buffers, and who waits for more.
//!
//! A peer that does not take its replies, or stops in the middle of a record, keeps buffers from others. One
//! stream holds at most its share; all together leave a part of every size of buffer to RDMA and to what the
//! backends need. Beyond that, reads and records that need a buffer wait, first come, first served; calls that
//! need none go on. Among all who take from the pool, whatever their transport, the first to come is the first to
//! get a buffer.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
};

use buffers::{
    Lease, Place, Pool,
    pool::{CLASS_BYTES, SLACK_BYTES},
};

use super::stream::{BULK_BYTES_MAX, Connection};
use crate::{
    rpc::Call,
    service::{Peer, ReplyBudget, Ticket},
    xdr::Rope,
};

/// One stream gets at most this fraction of the payload buffers.
const STREAM_SHARES: usize = 4;
/// All streams together leave this fraction.
const LEFT_SHARES: usize = 4;

/// A call whose reply needs a buffer, put off until there may be one.
#[derive(Debug)]
pub(super) struct Parked {
    pub ticket: Ticket,
    pub peer: Peer,
    pub budget: ReplyBudget,
    pub call: Call,
    /// What it will hold.
    pub cost: usize,
}

/// A stream whose record waits for a buffer.
#[derive(Debug)]
struct Waiting {
    stream: Rc<Connection>,
    /// Among all who take from the pool.
    place: Place,
}

/// The books of a lane. All sums are in bytes of the class that has most of the pool: a share of the pool is
/// that share of each class.
#[derive(Debug)]
pub(super) struct Holdings {
    pool: Arc<Pool>,
    total: [usize; CLASS_BYTES.len()],
    held: Cell<usize>,
    parked: RefCell<VecDeque<Parked>>,
    waiting: RefCell<[VecDeque<Waiting>; CLASS_BYTES.len()]>,
}

impl Holdings {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            total: pool.stats().total,
            pool,
            held: Cell::new(0),
            parked: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// What one stream may hold at most, whatever the settings say.
    pub fn stream_max(&self) -> usize {
        (largest_class_bytes(&self.total) / STREAM_SHARES).max(BULK_BYTES_MAX)
    }

    /// What all streams may hold together.
    pub fn all_max(&self) -> usize {
        let largest = largest_class_bytes(&self.total);
        largest - largest / LEFT_SHARES
    }

    /// What a reply with so many bytes of bulk data holds.
    pub fn reply_cost(&self, bytes: usize) -> usize {
        cost(&self.total, bytes.saturating_add(SLACK_BYTES)).unwrap_or(bytes)
    }

    /// Whether so much more may be held. One may always.
    fn has_room(&self, cost: usize) -> bool {
        self.held.get() == 0 || self.held.get() + cost <= self.all_max()
    }

    /// Whether a call may begin whose reply holds so much. Nobody overtakes those who wait.
    pub fn admits(&self, cost: usize) -> bool {
        self.parked.borrow().is_empty() && self.has_room(cost)
    }

    /// Put a call off.
    pub fn park(&self, call: Parked) {
        self.parked.borrow_mut().push_back(call);
    }

    /// The next call that was put off and may begin now.
    pub fn next_parked(&self) -> Option<Parked> {
        let mut parked = self.parked.borrow_mut();
        let room = parked.front().is_some_and(|first| self.has_room(first.cost));
        if room { parked.pop_front() } else { None }
    }

    /// A buffer for a record that is arriving. If there is none, the stream gets it later and is told.
    pub fn borrow(&self, stream: &Rc<Connection>, bytes: usize) -> Option<Lease> {
        if let Some(lease) = stream.books.take_granted() {
            return Some(lease);
        }
        if stream.books.is_waiting() {
            return None;
        }
        let class = self.pool.class(bytes)?;
        let mut waiting = self.waiting.borrow_mut();
        let queue = waiting.get_mut(class)?;
        if queue.is_empty()
            && let Some(cost) = self.affordable(class)
            && let Some(lease) = self.pool.take(bytes)
        {
            self.lent(stream, cost);
            return Some(lease);
        }
        let place = self.pool.line_up(bytes)?;
        queue.push_back(Waiting { stream: stream.clone(), place });
        stream.books.set_waiting(true);
        None
    }

    /// What a buffer of this class counts, if streams may have one more.
    fn affordable(&self, class: usize) -> Option<usize> {
        cost(&self.total, CLASS_BYTES[class]).filter(|cost| self.has_room(*cost))
    }

    fn lent(&self, stream: &Connection, cost: usize) {
        stream.books.set_lent(cost);
        self.account(stream);
    }

    /// Give those who wait what there is by now. Returns how many got something.
    pub fn serve(&self) -> usize {
        let mut waiting = self.waiting.borrow_mut();
        let served =
            waiting.iter_mut().enumerate().map(|(class, queue)| self.hand_out(class, queue)).sum();
        // Those for whom the streams' share has no room must not keep others from the pool.
        for (class, queue) in waiting.iter_mut().enumerate() {
            let room = self.affordable(class).is_some();
            for Waiting { place, .. } in queue {
                if room { place.stand() } else { place.step_aside() }
            }
        }
        served
    }

    fn hand_out(&self, class: usize, queue: &mut VecDeque<Waiting>) -> usize {
        let mut served = 0;
        while let Some(Waiting { stream, place }) = queue.front_mut()
            && let Some(cost) = self.affordable(class)
            && let Some(lease) = place.take()
        {
            self.lent(stream, cost);
            stream.grant(lease);
            queue.pop_front();
            served += 1;
        }
        served
    }

    /// Whether somebody waits.
    pub fn is_waited_for(&self) -> bool {
        !self.parked.borrow().is_empty()
            || self.waiting.borrow().iter().any(|queue| !queue.is_empty())
    }

    /// Whether a size of buffer has run out, whoever has them.
    pub fn is_dry(&self) -> bool {
        let stats = self.pool.stats();
        stats.total.iter().zip(stats.free).any(|(total, free)| *total > 0 && free == 0)
    }

    /// Note what a stream holds now. True: it holds less than before.
    pub fn account(&self, stream: &Connection) -> bool {
        let (before, now) = stream.rebook();
        self.held.set((self.held.get() + now).saturating_sub(before));
        now < before
    }

    /// A stream has ended.
    pub fn forget(&self, stream: &Rc<Connection>) {
        self.waiting
            .borrow_mut()
            .iter_mut()
            .for_each(|queue| queue.retain(|other| !Rc::ptr_eq(&other.stream, stream)));
        drop(stream.books.take_granted());
        self.held.set(self.held.get().saturating_sub(stream.books.held()));
    }
}

/// What one stream holds and waits for.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Calls under way whose replies carry bulk data: xid, and what they hold.
    calls: RefCell<Vec<(u32, usize)>>,
    /// All of these.
    expected: Cell<usize>,
    /// Of these, what is put off until there is room.
    parked: Cell<usize>,
    /// What the buffer counts that the record in arrival fills.
    lent: Cell<usize>,
    /// What the lane knows of.
    held: Cell<usize>,
    waiting: Cell<bool>,
    granted: RefCell<Option<Lease>>,
}

impl Books {
    /// A call comes whose reply can hold so much.
    pub fn expect(&self, xid: u32, bytes: usize) {
        self.calls.borrow_mut().push((xid, bytes));
        self.expected.set(self.expected.get() + bytes);
    }

    /// What the replies to all calls under way can hold.
    pub fn expected(&self) -> usize {
        self.expected.get()
    }

    /// The reply to a call is here. Returns what it holds.
    pub fn replied(&self, reply: &Rope) -> usize {
        let mut calls = self.calls.borrow_mut();
        let xid = reply.head.first_chunk().map(|xid| u32::from_be_bytes(*xid));
        let found = calls.iter().position(|(known, _)| Some(*known) == xid);
        let bytes = found.map_or(0, |found| calls.swap_remove(found).1);
        self.expected.set(self.expected.get().saturating_sub(bytes));
        bytes
    }

    /// A call that is expected is put off.
    pub fn park(&self, bytes: usize) {
        self.parked.set(self.parked.get() + bytes);
    }

    /// It begins after all.
    pub fn unpark(&self, bytes: usize) {
        self.parked.set(self.parked.get().saturating_sub(bytes));
    }

    /// What it was noted to hold before, and what it holds now, with so much bound to replies.
    pub fn rebook(&self, outbound: usize) -> (usize, usize) {
        let begun = self.expected.get().saturating_sub(self.parked.get());
        let now = outbound + begun + self.lent.get();
        (self.held.replace(now), now)
    }

    /// What the lane knows that it holds.
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// A record in arrival has a buffer that counts so much.
    pub fn set_lent(&self, bytes: usize) {
        self.lent.set(bytes);
    }

    /// The buffer that it has waited for.
    pub fn grant(&self, lease: Lease) {
        self.waiting.set(false);
        self.granted.replace(Some(lease));
    }

    fn take_granted(&self) -> Option<Lease> {
        self.granted.take()
    }

    fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    fn set_waiting(&self, waiting: bool) {
        self.waiting.set(waiting);
    }
}

/// Bytes of the class that has most of the pool.
fn largest_class_bytes(total: &[usize; CLASS_BYTES.len()]) -> usize {
    CLASS_BYTES.iter().zip(total).map(|(bytes, pieces)| bytes * pieces).max().unwrap_or(0)
}

/// What a buffer of at least so many bytes counts: its size, and more where its class is a smaller part of the
/// pool than the largest. `None`: there is no such buffer.
fn cost(total: &[usize; CLASS_BYTES.len()], bytes: usize) -> Option<usize> {
    let mut classes = CLASS_BYTES.iter().zip(total).filter(|(_, pieces)| **pieces > 0);
    let (size, pieces) = classes.find(|(size, _)| **size >= bytes)?;
    Some((largest_class_bytes(total) / pieces).max(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bug_a_share_of_the_pool_was_all_of_a_small_class() {
        let holdings = Holdings::new(Pool::standalone(64 << 20));
        let share = largest_class_bytes(&holdings.total) / STREAM_SHARES;
        for (class, size) in CLASS_BYTES.into_iter().enumerate() {
            let pieces = share / cost(&holdings.total, size).unwrap();
            assert!(
                pieces >= 1 && pieces <= holdings.total[class] / STREAM_SHARES + 1,
                "class {class}"
            );
        }
        assert_eq!(cost(&[0; CLASS_BYTES.len()], 5), None);
    }

    #[test]
    fn all_together_leave_some_of_each_class() {
        for bytes in [4, 8, 16, 64, 256] {
            let holdings = Holdings::new(Pool::standalone(bytes << 20));
            for (class, size) in CLASS_BYTES.into_iter().enumerate() {
                let cost = cost(&holdings.total, size).unwrap();
                let (mut pieces, total) = (0, holdings.total[class]);
                while holdings.has_room(cost) {
                    holdings.held.set(holdings.held.get() + cost);
                    pieces += 1;
                }
                assert!(pieces > 0 && pieces <= total - total.div_ceil(LEFT_SHARES + 1), "{class}");
                holdings.held.set(0);
            }
        }
    }
}
