//! Where calls and replies meet: transports above, programs below, on one thread.

use std::{
    cell::{Cell, RefCell},
    fmt,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use buffers::{
    Pool,
    pool::{CLASS_BYTES, SLACK_BYTES},
};
use tokio::sync::Notify;

use super::{
    rdma::RdmaSide,
    stream::{BULK_BYTES_MAX, Connection},
    wake::LaneWaker,
};
use crate::{
    rpc::{self, Rejected},
    service::{Begun, Peer, ReplyBudget, Service, Ticket},
    xdr::Rope,
};

/// Replies that are taken from the service in one turn.
const REPLIES_PER_TURN: usize = 256;

/// One stream gets at most this fraction of the payload buffers.
const PAYLOAD_SHARES: usize = 4;

/// Tickets with this bit belong to RDMA connections.
const RDMA_TICKET: u64 = 1 << 63;

/// The lane's state. Shared by the reactor and the connection tasks, which all run on the lane's thread and
/// never hold a borrow across an await.
pub struct LaneCore {
    service: RefCell<Box<dyn Service>>,
    rdma: RefCell<RdmaSide>,
    streams: RefCell<Streams>,
    /// Calls were begun or replies queued: the reactor must turn.
    pub(super) kicked: Notify,
    /// A pool buffer came back after somebody was refused.
    pub(super) buffer_freed: Notify,
    pub(super) draining: Cell<bool>,
    pub(super) pool: Arc<Pool>,
    /// Pieces of each class that the pool has.
    pool_total: [usize; CLASS_BYTES.len()],
    pub(super) waker: Arc<LaneWaker>,
    scratch: RefCell<Vec<(Ticket, Rope)>>,
}

impl fmt::Debug for LaneCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneCore").finish_non_exhaustive()
    }
}

/// TCP connections by slot; a ticket names slot and generation.
#[derive(Default)]
struct Streams {
    slots: Vec<(u32, Option<Rc<Connection>>)>,
    free: Vec<u32>,
}

impl LaneCore {
    pub(super) fn new(
        service: Box<dyn Service>,
        rdma: RdmaSide,
        pool: Arc<Pool>,
        waker: Arc<LaneWaker>,
    ) -> Rc<Self> {
        Rc::new(Self {
            service: RefCell::new(service),
            rdma: RefCell::new(rdma),
            streams: RefCell::default(),
            kicked: Notify::new(),
            buffer_freed: Notify::new(),
            draining: Cell::new(false),
            pool_total: pool.stats().total,
            pool,
            waker,
            scratch: RefCell::default(),
        })
    }

    /// One pass over everything that may have happened; bounded work, no await. Returns how much was done.
    pub(super) fn turn(&self, now: Instant) -> usize {
        let mut calls = Vec::new();
        let mut progress = self.rdma.borrow_mut().turn(now, &mut calls);
        for call in calls {
            self.begin(call.ticket, &call.peer, call.budget, call.message);
        }
        let mut replies = self.scratch.take();
        self.service.borrow_mut().finished(&mut replies);
        progress += replies.len();
        for (ticket, reply) in replies.drain(..) {
            self.reply(ticket, reply);
        }
        replies.shrink_to(REPLIES_PER_TURN);
        self.scratch.replace(replies);
        self.service.borrow_mut().flush();
        self.rdma.borrow_mut().flush();
        progress
    }

    /// Decode a message and carry it out, or answer at once.
    pub(super) fn begin(&self, ticket: Ticket, peer: &Peer, budget: ReplyBudget, message: Rope) {
        let call = match rpc::call::decode(message) {
            Ok(call) => call,
            Err(Rejected::Answer(reply)) => return self.reply(ticket, reply),
            Err(Rejected::Drop(error)) => {
                tracing::debug!(peer = %peer.address, %error, "not an RPC call");
                return self.abandon(ticket);
            }
        };
        if ticket.0 & RDMA_TICKET == 0 {
            let bytes = self.service.borrow().reply_bulk_bytes(&call);
            if let Some(connection) = self.stream(ticket).filter(|_| bytes > 0) {
                connection.expect(call.header.xid, lease_cost(&self.pool_total, bytes));
            }
        }
        let begun = self.service.borrow_mut().call(ticket, peer, budget, call);
        if let Begun::Reply(reply) = begun {
            self.reply(ticket, reply);
        }
    }

    fn reply(&self, ticket: Ticket, reply: Rope) {
        if ticket.0 & RDMA_TICKET != 0 {
            self.rdma.borrow_mut().reply(ticket, reply);
        } else if let Some(connection) = self.stream(ticket) {
            connection.push(&reply);
        }
    }

    fn abandon(&self, ticket: Ticket) {
        if ticket.0 & RDMA_TICKET != 0 {
            self.rdma.borrow_mut().abandon(ticket);
        } else if let Some(connection) = self.stream(ticket) {
            connection.abandon();
        }
    }

    fn stream(&self, ticket: Ticket) -> Option<Rc<Connection>> {
        let streams = self.streams.borrow();
        let (generation, connection) = streams.slots.get(ticket.0 as u32 as usize)?;
        (u64::from(*generation) == ticket.0 >> 32).then(|| connection.clone())?
    }

    /// Give a new stream its ticket.
    pub(super) fn add_stream(&self, connection: &Rc<Connection>) -> Ticket {
        let mut streams = self.streams.borrow_mut();
        let slot = streams.free.pop().unwrap_or_else(|| {
            streams.slots.push((0, None));
            streams.slots.len() as u32 - 1
        });
        let entry = &mut streams.slots[slot as usize];
        entry.0 = entry.0.wrapping_add(1) & (u32::MAX >> 1);
        entry.1 = Some(connection.clone());
        Ticket(u64::from(entry.0) << 32 | u64::from(slot))
    }

    /// The stream has ended; late replies to it are dropped from now on.
    pub(super) fn remove_stream(&self, ticket: Ticket) {
        let mut streams = self.streams.borrow_mut();
        let slot = ticket.0 as u32;
        streams.slots[slot as usize].1 = None;
        streams.free.push(slot);
    }

    /// Tell every stream to look at its state (drain, timeouts).
    pub(super) fn nudge_streams(&self, now: Instant) {
        for connection in self.streams.borrow().slots.iter().filter_map(|(_, c)| c.as_ref()) {
            connection.tick(now);
        }
    }

    pub(super) fn stream_count(&self) -> usize {
        let streams = self.streams.borrow();
        streams.slots.len() - streams.free.len()
    }

    /// What one stream may bind of the buffers at most, whatever the settings say, so that a few peers that
    /// do not take their replies leave enough for the others.
    pub(super) fn payload_share(&self) -> usize {
        (largest_class_bytes(&self.pool_total) / PAYLOAD_SHARES).max(BULK_BYTES_MAX)
    }

    pub(super) fn bulk_offset(&self, start: &[u8]) -> Option<usize> {
        self.service.borrow().bulk_offset(start)
    }

    pub(super) fn rdma(&self) -> std::cell::RefMut<'_, RdmaSide> {
        self.rdma.borrow_mut()
    }

    /// Every descriptor that can announce work, the lane's alarm among them, besides tokio's own.
    pub(super) fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        let mut fds = self.service.borrow().wake_fds();
        fds.extend(self.rdma.borrow().wake_fds());
        fds.push(self.waker.event());
        fds
    }
}

/// Bytes of the class that has most of the pool.
fn largest_class_bytes(total: &[usize; CLASS_BYTES.len()]) -> usize {
    CLASS_BYTES.iter().zip(total).map(|(bytes, pieces)| bytes * pieces).max().unwrap_or(0)
}

/// What a buffer for so many bytes counts against a stream's share: its size, and more where its class is a
/// smaller part of the pool than the largest, so that a share of the pool is that share of each class.
fn lease_cost(total: &[usize; CLASS_BYTES.len()], bytes: usize) -> usize {
    let mut classes = CLASS_BYTES.iter().zip(total).filter(|(_, pieces)| **pieces > 0);
    let class = classes.find(|(size, _)| **size >= bytes + SLACK_BYTES);
    class.map_or(bytes, |(size, pieces)| (largest_class_bytes(total) / pieces).max(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bug_a_share_of_the_pool_was_all_of_a_small_class() {
        let total = Pool::standalone(64 << 20).stats().total;
        let share = largest_class_bytes(&total) / PAYLOAD_SHARES;
        for (class, size) in CLASS_BYTES.into_iter().enumerate() {
            let bytes = size - SLACK_BYTES.min(size);
            let pieces = share / lease_cost(&total, bytes);
            assert!(pieces >= 1 && pieces <= total[class] / PAYLOAD_SHARES + 1, "class {class}");
        }
        assert_eq!(lease_cost(&[0; CLASS_BYTES.len()], 5), 5);
    }
}
