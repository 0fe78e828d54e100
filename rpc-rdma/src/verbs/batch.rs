//! Work requests that wait for the end of the turn: every call to the device costs a system call on some
//! (soft-RoCE rings its doorbell with one), so all that a turn has for a queue pair goes in one call.
//!
//! Nothing here knows whose memory the requests work on; [`super::slots`] does.

#![allow(unsafe_code)]

use std::io;

use ibverbs_sys as sys;

use super::{
    queue::{Opcode, SendRequest, errno},
    slots,
};

/// A work request in the form that the library takes, as an element of a linked list.
pub(super) trait Request {
    fn wr_id(&self) -> u64;
    fn link(&mut self, place: *mut sys::ibv_sge, next: *mut Self);
}

impl Request for sys::ibv_send_wr {
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    fn link(&mut self, place: *mut sys::ibv_sge, next: *mut Self) {
        self.sg_list = place;
        self.num_sge = 1;
        self.next = next;
    }
}

impl Request for sys::ibv_recv_wr {
    fn wr_id(&self) -> u64 {
        self.wr_id
    }

    fn link(&mut self, place: *mut sys::ibv_sge, next: *mut Self) {
        self.sg_list = place;
        self.num_sge = 1;
        self.next = next;
    }
}

/// How much the device took of what it refused to take whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing, or whole chains: what it has will complete.
    Chains,
    /// The last chain that it has lacks its end, which alone reports.
    Torn,
    /// It does not say. (The provider library queues the requests itself and then fails to tell the kernel.)
    Unknown,
}

/// The device did not take everything.
#[derive(Debug)]
pub(super) struct Refusal {
    pub taken: Taken,
    pub error: io::Error,
}

/// Requests of one queue, in order. The room for them is set aside once.
pub(super) struct Batch<R> {
    requests: Vec<R>,
    places: Vec<sys::ibv_sge>,
    room: usize,
}

// SAFETY: used by one thread at a time through `&mut`; the pointers in the requests mean something only
// during `post`, which sets them.
unsafe impl<R> Send for Batch<R> {}

impl<R: Request> Batch<R> {
    pub(super) fn new(room: usize) -> Self {
        Self { requests: Vec::with_capacity(room), places: Vec::with_capacity(room), room }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether so many more find room. What is longer than all the room does when nothing else waits.
    pub(super) fn fits(&self, more: usize) -> bool {
        self.is_empty() || self.requests.len() + more <= self.room
    }

    fn push(&mut self, request: R, place: sys::ibv_sge) {
        self.requests.push(request);
        self.places.push(place);
    }

    /// Hand everything to `device` in one call: it takes the first request and where to put the one that it
    /// did not take, and returns an error or 0. What it took is gone from here then. What stays are whole chains
    /// of which it has nothing.
    pub(super) fn post(
        &mut self,
        device: impl FnOnce(*mut R, *mut *mut R) -> libc::c_int,
    ) -> Result<(), Refusal> {
        let outcome = self.attempt(device);
        self.drop_torn(outcome)
    }

    /// The same, but of a chain that was torn the rest stays.
    fn attempt(
        &mut self,
        device: impl FnOnce(*mut R, *mut *mut R) -> libc::c_int,
    ) -> Result<(), Refusal> {
        let count = self.requests.len();
        if count == 0 {
            return Ok(());
        }
        let first = self.requests.as_mut_ptr();
        let places = self.places.as_mut_ptr();
        for index in 0..count {
            let next = match index + 1 < count {
                true => first.wrapping_add(index + 1),
                false => std::ptr::null_mut(),
            };
            // SAFETY: the index is below the length, and nothing else borrows the element.
            unsafe { &mut *first.add(index) }.link(places.wrapping_add(index), next);
        }
        let mut bad: *mut R = std::ptr::null_mut();
        let error = device(first, &raw mut bad);
        if error == 0 {
            self.forget(count);
            return Ok(());
        }
        let error = errno(error);
        let offset = (bad as usize).wrapping_sub(first as usize);
        let taken = offset / size_of::<R>();
        if bad.is_null() || !offset.is_multiple_of(size_of::<R>()) || taken >= count {
            self.forget(count);
            return Err(Refusal { taken: Taken::Unknown, error });
        }
        let last = taken.checked_sub(1).and_then(|last| self.requests.get(last));
        let whole = last.is_none_or(|last| slots::ends_chain(last.wr_id()));
        self.forget(taken);
        let taken = if whole { Taken::Chains } else { Taken::Torn };
        Err(Refusal { taken, error })
    }

    /// The rest of a chain that was torn is not to be posted, nor is its owner to get it back: the device has
    /// its beginning.
    fn drop_torn(&mut self, outcome: Result<(), Refusal>) -> Result<(), Refusal> {
        if matches!(&outcome, Err(Refusal { taken: Taken::Torn, .. })) {
            let end = self.requests.iter().position(|r| slots::ends_chain(r.wr_id()));
            self.forget(end.map_or(self.requests.len(), |end| end + 1));
        }
        outcome
    }

    /// The first `count` are the device's, or nobody's.
    fn forget(&mut self, count: usize) {
        self.requests.drain(..count);
        self.places.drain(..count);
        self.requests.shrink_to(self.room);
        self.places.shrink_to(self.room);
    }

    /// Take back everything that the device was not given. Returns the numbers of the requests.
    pub(super) fn discard(&mut self) -> Vec<u64> {
        let numbers = self.requests.iter().map(Request::wr_id).collect();
        self.forget(self.requests.len());
        numbers
    }
}

impl Batch<sys::ibv_recv_wr> {
    pub(super) fn push_receive(&mut self, wr_id: u64, place: sys::ibv_sge) {
        let (next, sg_list) = (std::ptr::null_mut(), std::ptr::null_mut());
        self.push(sys::ibv_recv_wr { wr_id, next, sg_list, num_sge: 1 }, place);
    }
}

impl Batch<sys::ibv_send_wr> {
    pub(super) fn push_send(&mut self, request: &SendRequest) {
        let &SendRequest { address, len, lkey, .. } = request;
        self.push(send_wr(request), sys::ibv_sge { addr: address, length: len, lkey });
    }

    /// As [`Batch::post`]. When the device does not take a Send with Invalidate, it is asked once more with
    /// plain Sends, and if it takes that, `invalidate` is cleared. (Azure's MANA says that it can, and its
    /// provider library cannot.)
    pub(super) fn post_sends(
        &mut self,
        invalidate: &mut bool,
        mut device: impl FnMut(*mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> libc::c_int,
    ) -> Result<(), Refusal> {
        let outcome = match self.attempt(&mut device) {
            Err(refusal) if self.refused_for_invalidation(&refusal) => {
                let left = self.requests.len();
                self.forbid_invalidate();
                match self.attempt(&mut device) {
                    // It was not that. How far the device got, the first answer tells.
                    Err(_) if self.requests.len() == left => Err(refusal),
                    Err(refusal) if refusal.taken == Taken::Unknown => Err(refusal),
                    again => {
                        *invalidate = false;
                        again
                    }
                }
            }
            other => other,
        };
        self.drop_torn(outcome)
    }

    fn refused_for_invalidation(&self, refusal: &Refusal) -> bool {
        let full = refusal.error.raw_os_error() == Some(libc::ENOMEM);
        !full && self.requests.first().is_some_and(invalidates)
    }

    /// Make every Send with Invalidate a plain Send.
    fn forbid_invalidate(&mut self) {
        for wr in self.requests.iter_mut().filter(|wr| invalidates(wr)) {
            wr.opcode = sys::ibv_wr_opcode::IBV_WR_SEND;
            wr.wr.rdma.rkey = 0;
            wr.__bindgen_anon_1.invalidate_rkey = 0;
        }
    }
}

fn invalidates(wr: &sys::ibv_send_wr) -> bool {
    wr.opcode == sys::ibv_wr_opcode::IBV_WR_SEND_WITH_INV
}

fn send_wr(request: &SendRequest) -> sys::ibv_send_wr {
    // SAFETY: a structure of integers, pointers and unions of them, for which all zeros is a value.
    let mut wr: sys::ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = request.wr_id;
    wr.opcode = match request.opcode {
        Opcode::Write => sys::ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        Opcode::Read => sys::ibv_wr_opcode::IBV_WR_RDMA_READ,
        Opcode::Send => sys::ibv_wr_opcode::IBV_WR_SEND,
        Opcode::SendWithInvalidate => sys::ibv_wr_opcode::IBV_WR_SEND_WITH_INV,
    };
    if request.signaled {
        wr.send_flags |= sys::ibv_send_flags::IBV_SEND_SIGNALED.0;
    }
    if request.inline {
        wr.send_flags |= sys::ibv_send_flags::IBV_SEND_INLINE.0;
    }
    // siw reads the key to invalidate from here, everybody else from `invalidate_rkey`.
    wr.wr.rdma.remote_addr = request.remote_address;
    wr.wr.rdma.rkey = request.rkey;
    if request.opcode == Opcode::SendWithInvalidate {
        wr.__bindgen_anon_1.invalidate_rkey = request.rkey;
    }
    wr
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use buffers::{Pool, PoolStats};

    use super::*;
    use crate::{
        verbs::slots::{Owner, Posted, Slots},
        wire::{QpId, WireFault, WorkCompletion},
    };

    const QP: QpId = QpId(7);

    /// Slots and a batch as a lane has them, over memory that is counted.
    struct Bench {
        pool: Arc<Pool>,
        idle: PoolStats,
        slots: Slots,
        batch: Batch<sys::ibv_send_wr>,
        /// Numbers of the requests that the device has, in its order.
        device: Vec<u64>,
        calls: usize,
    }

    impl Bench {
        fn new(room: usize) -> Self {
            let pool = Pool::standalone(8 << 20);
            let idle = pool.stats();
            let (slots, batch) = (Slots::default(), Batch::new(room));
            Self { pool, idle, slots, batch, device: Vec::new(), calls: 0 }
        }

        /// Queue a reply of so many requests. Returns their numbers.
        fn queue(&mut self, id: u64, requests: usize, opcode: Opcode) -> Vec<u64> {
            let lease = self.pool.take(100).unwrap();
            let owner = Owner::Reply { _writes: Vec::new(), _send: lease.freeze(0, 100) };
            let posted = Posted::Chain { qp: QP, id, requests, owner, fault: None };
            let slot = self.slots.insert(posted).unwrap();
            let number = |index| slot.wr_id(index + 1 == requests);
            for index in 0..requests {
                let last = index + 1 == requests;
                self.batch.push_send(&SendRequest {
                    wr_id: number(index),
                    opcode: if last { opcode } else { Opcode::Write },
                    address: 0x1000 * id + index as u64,
                    len: 10,
                    lkey: 3,
                    remote_address: 0,
                    rkey: 9,
                    signaled: last,
                    inline: false,
                });
            }
            (0..requests).map(number).collect()
        }

        /// Post to a device that takes requests as long as `takes` says so and then answers `error`.
        fn post(
            &mut self,
            error: libc::c_int,
            mut takes: impl FnMut(&sys::ibv_send_wr) -> bool,
        ) -> (Result<(), Refusal>, bool) {
            let mut invalidate = true;
            let Self { batch, device, calls, .. } = self;
            let outcome = batch.post_sends(&mut invalidate, |first, bad| {
                *calls += 1;
                let mut next = first;
                // SAFETY: a list as the batch links it.
                while let Some(wr) = unsafe { next.as_ref() } {
                    if !takes(wr) {
                        // SAFETY: where the batch wants the answer.
                        unsafe { *bad = next };
                        return error;
                    }
                    // SAFETY: each request has one place.
                    let place = unsafe { *wr.sg_list };
                    assert_eq!((place.length, place.lkey, wr.num_sge), (10, 3, 1));
                    device.push(wr.wr_id);
                    next = wr.next;
                }
                0
            });
            (outcome, invalidate)
        }

        /// What is given back as not posted.
        fn give_back(&mut self) -> Vec<u64> {
            let numbers = self.batch.discard();
            let done = numbers.into_iter().filter_map(|wr_id| {
                let (posted, result) = self.slots.completed(wr_id, Err(WireFault::Refused))?;
                match posted.complete(result) {
                    WorkCompletion::Replied { id, result: Err(WireFault::Refused), .. } => Some(id),
                    other => panic!("{other:?}"),
                }
            });
            done.collect()
        }

        /// Replies whose memory is still taken.
        fn held(&self) -> usize {
            let sum = |stats: &PoolStats| stats.free.iter().sum::<usize>();
            sum(&self.idle) - sum(&self.pool.stats())
        }
    }

    #[test]
    fn one_call_takes_all_in_order() {
        let mut bench = Bench::new(16);
        let mut numbers = bench.queue(1, 3, Opcode::Send);
        numbers.extend(bench.queue(2, 1, Opcode::Send));
        numbers.extend(bench.queue(3, 2, Opcode::Read));
        assert!(bench.device.is_empty(), "nothing before the end of the turn");
        assert!(bench.post(0, |_| true).0.is_ok());
        assert_eq!((bench.calls, &bench.device), (1, &numbers));
        assert!(bench.batch.is_empty() && bench.give_back().is_empty());
        assert_eq!(bench.held(), 3, "until their completions");
        // A turn without anything calls nobody.
        assert!(bench.post(0, |_| true).0.is_ok());
        assert_eq!(bench.calls, 1);
    }

    #[test]
    fn chains_behind_a_refused_request_come_back_and_those_before_it_do_not() {
        let mut bench = Bench::new(16);
        let first = bench.queue(1, 3, Opcode::Send);
        let second = bench.queue(2, 2, Opcode::Send);
        bench.queue(3, 1, Opcode::Send);
        let refusal = bench.post(libc::ENOMEM, |wr| wr.wr_id != second[0]).0.unwrap_err();
        assert_eq!(refusal.taken, Taken::Chains);
        assert_eq!(refusal.error.raw_os_error(), Some(libc::ENOMEM));
        assert_eq!((bench.calls, &bench.device), (1, &first));
        assert_eq!(bench.give_back(), [2, 3]);
        assert_eq!(bench.held(), 1, "the device works on the first");
        assert!(bench.slots.completed(first[2], Ok(0)).is_some());
        assert_eq!(bench.held(), 0);
    }

    #[test]
    fn nothing_is_the_devices_when_it_refuses_the_first() {
        let mut bench = Bench::new(16);
        bench.queue(1, 2, Opcode::Send);
        let refusal = bench.post(libc::EIO, |_| false).0.unwrap_err();
        assert_eq!(refusal.taken, Taken::Chains);
        assert_eq!(bench.give_back(), [1]);
        assert_eq!(bench.held(), 0);
    }

    #[test]
    fn a_torn_chain_is_held_until_the_queue_pair_is_gone() {
        let mut bench = Bench::new(16);
        bench.queue(1, 1, Opcode::Send);
        let torn = bench.queue(2, 3, Opcode::Send);
        bench.queue(3, 1, Opcode::Send);
        let refusal = bench.post(libc::ENOMEM, |wr| wr.wr_id != torn[2]).0.unwrap_err();
        assert_eq!(refusal.taken, Taken::Torn);
        assert_eq!(bench.give_back(), [3], "of the second the device has a part");
        assert_eq!(bench.held(), 2);
        assert_eq!(bench.slots.take_all_of(QP).len(), 2);
        assert_eq!(bench.held(), 0);
    }

    #[test]
    fn where_the_device_does_not_say_what_it_took_it_may_have_all() {
        for bad in [0_usize, 8, usize::MAX] {
            let mut bench = Bench::new(16);
            bench.queue(1, 1, Opcode::Send);
            let outcome = bench.batch.post(|_, out| {
                // SAFETY: where the batch wants the answer.
                unsafe { *out = bad as *mut _ };
                libc::EIO
            });
            assert_eq!(outcome.unwrap_err().taken, Taken::Unknown);
            assert!(bench.give_back().is_empty());
            assert_eq!((bench.held(), bench.slots.take_all_of(QP).len()), (1, 1));
        }
    }

    #[test]
    fn a_queue_pair_that_dies_before_the_end_of_the_turn_gives_everything_back() {
        let mut bench = Bench::new(16);
        bench.queue(1, 3, Opcode::Send);
        bench.queue(2, 1, Opcode::Send);
        assert_eq!(bench.give_back(), [1, 2]);
        assert_eq!(bench.held(), 0);
        assert!(bench.slots.take_all_of(QP).is_empty());
        assert!(bench.post(0, |_| true).0.is_ok());
        assert_eq!(bench.calls, 0, "nothing is left to post");
    }

    #[test]
    fn without_invalidation_the_rest_goes_plain_and_nothing_goes_twice() {
        let mut bench = Bench::new(16);
        let mut numbers = bench.queue(1, 1, Opcode::Send);
        numbers.extend(bench.queue(2, 2, Opcode::SendWithInvalidate));
        numbers.extend(bench.queue(3, 1, Opcode::SendWithInvalidate));
        let (outcome, invalidate) = bench.post(libc::EINVAL, |wr| !invalidates(wr));
        assert!(outcome.is_ok() && !invalidate);
        assert_eq!((bench.calls, &bench.device), (2, &numbers));
    }

    #[test]
    fn a_dead_device_says_nothing_about_invalidation() {
        let mut bench = Bench::new(16);
        let numbers = bench.queue(1, 2, Opcode::SendWithInvalidate);
        let (outcome, invalidate) = bench.post(libc::EIO, |wr| wr.wr_id == numbers[0]);
        assert_eq!(outcome.unwrap_err().taken, Taken::Torn);
        assert!(invalidate);
        assert!(bench.give_back().is_empty());
        assert_eq!(bench.held(), 1);
    }

    #[test]
    fn room_is_bounded_and_a_longer_chain_goes_alone() {
        let mut bench = Bench::new(4);
        assert!(bench.batch.fits(100), "alone");
        bench.queue(1, 3, Opcode::Send);
        assert!(bench.batch.fits(1) && !bench.batch.fits(2));
        assert!(bench.post(0, |_| true).0.is_ok());
        bench.queue(2, 100, Opcode::Send);
        assert!(!bench.batch.fits(1));
        assert!(bench.post(0, |_| true).0.is_ok());
        assert_eq!(bench.device.len(), 103);
        assert!(bench.batch.requests.capacity() < 100, "what it took is given back");
    }

    #[test]
    fn receives_that_are_not_taken_come_back() {
        let mut batch = Batch::<sys::ibv_recv_wr>::new(8);
        let pool = Pool::standalone(8 << 20);
        let mut slots = Slots::default();
        let mut numbers = Vec::new();
        for _ in 0..3 {
            let buffer = pool.take(100).unwrap();
            let wr_id = slots.insert(Posted::Receive { qp: QP, buffer }).unwrap().wr_id(true);
            batch.push_receive(wr_id, sys::ibv_sge { addr: 1, length: 2, lkey: 3 });
            numbers.push(wr_id);
        }
        let refusal = batch.post(|first, bad| {
            // SAFETY: the list as it was linked; the second is refused.
            unsafe { *bad = (*first).next };
            libc::ENOMEM
        });
        assert_eq!(refusal.unwrap_err().taken, Taken::Chains);
        assert_eq!(batch.discard(), numbers[1..]);
        assert!(slots.completed(numbers[0], Ok(5)).is_some());
    }
}
