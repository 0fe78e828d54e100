//! Where calls and replies meet: transports above, programs below, on one thread.

use std::{
    cell::{Cell, RefCell},
    fmt,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use buffers::Pool;
use tokio::sync::Notify;

use super::{
    holdings::{Holdings, Parked},
    rdma::RdmaSide,
    stream::Connection,
    wake::LaneWaker,
};
use crate::{
    rpc::{self, Call, Rejected},
    service::{Begun, Peer, ReplyBudget, Service, Ticket},
    xdr::Rope,
};

/// Replies that are taken from the service in one turn.
const REPLIES_PER_TURN: usize = 256;

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
    pub(super) draining: Cell<bool>,
    /// What streams hold of the pool.
    pub(super) holdings: Holdings,
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
            draining: Cell::new(false),
            holdings: Holdings::new(pool),
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
        progress += self.serve_those_who_wait();
        self.service.borrow_mut().flush();
        progress + self.rdma.borrow_mut().flush()
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
                let cost = self.holdings.reply_cost(bytes);
                connection.books.expect(call.header.xid, cost);
                if !self.holdings.admits(cost) {
                    connection.books.park(cost);
                    return self.holdings.park(Parked { ticket, peer: *peer, budget, call, cost });
                }
                self.holdings.account(&connection);
            }
        }
        self.call(ticket, peer, budget, call);
    }

    fn call(&self, ticket: Ticket, peer: &Peer, budget: ReplyBudget, call: Call) {
        let begun = self.service.borrow_mut().call(ticket, peer, budget, call);
        if let Begun::Reply(reply) = begun {
            self.reply(ticket, reply);
        }
    }

    /// Streams that wait for buffers get them, and calls that were put off begin, as far as there is room.
    fn serve_those_who_wait(&self) -> usize {
        let mut served = self.holdings.serve();
        while let Some(parked) = self.holdings.next_parked() {
            served += 1;
            let Parked { ticket, peer, budget, call, cost } = parked;
            // Nobody wants the reply when the stream has ended.
            if let Some(connection) = self.stream(ticket) {
                connection.books.unpark(cost);
                self.holdings.account(&connection);
                self.call(ticket, &peer, budget, call);
            }
        }
        served
    }

    /// Note what a stream holds now; if that is less, others may go on.
    pub(super) fn account(&self, connection: &Connection) {
        if self.holdings.account(connection) && self.holdings.is_waited_for() {
            self.kicked.notify_one();
        }
    }

    /// When memory is short, hang up those who hold most of it and have not moved for a while.
    pub(super) fn relieve(&self, now: Instant) {
        let waited_for = self.holdings.is_waited_for() || self.rdma.borrow().leases_waiting() > 0;
        if !waited_for && !self.holdings.is_dry() {
            return;
        }
        let streams = self.streams.borrow();
        let streams = streams.slots.iter().filter_map(|(_, stream)| stream.as_ref());
        let mut stuck: Vec<_> = streams.filter(|stream| stream.is_stuck(now)).collect();
        stuck.sort_by_key(|stream| std::cmp::Reverse(stream.books.held()));
        let mut freed = 0;
        for stream in stuck.into_iter().filter(|stream| stream.books.held() > 0) {
            if freed >= self.holdings.stream_max() {
                break;
            }
            freed += stream.books.held();
            stream.hang_up_for_others();
        }
    }

    fn reply(&self, ticket: Ticket, reply: Rope) {
        if ticket.0 & RDMA_TICKET != 0 {
            self.rdma.borrow_mut().reply(ticket, reply);
        } else if let Some(connection) = self.stream(ticket) {
            connection.push(&reply);
            self.account(&connection);
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
        let ended = streams.slots[slot as usize].1.take();
        streams.free.push(slot);
        drop(streams);
        if let Some(connection) = ended {
            self.holdings.forget(&connection);
            self.kicked.notify_one();
        }
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
