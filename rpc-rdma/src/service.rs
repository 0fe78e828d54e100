//! What a program above the transports does: take a call, give a reply.

use std::{net::SocketAddr, os::fd::OwnedFd, sync::Arc};

use crate::{rpc::Call, xdr::Rope};

/// By which kind of transport a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A TCP stream.
    Tcp,
    /// An RDMA connection.
    Rdma,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its address. On RDMA the port carries no meaning.
    pub address: SocketAddr,
    /// The transport.
    pub transport: Transport,
}

/// How much a reply may be. A program keeps to it while it encodes, so that the transport never has to
/// refuse what was already executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyBudget {
    /// Most bytes of the reply as XDR, from the xid on, without what is placed directly.
    pub message_bytes_max: usize,
    /// Most bytes of bulk data that the client has room for beside the message (the first Write chunk, a
    /// reply has one item of bulk data); `None` when bulk data must go into the message.
    pub direct_bytes_max: Option<usize>,
}

impl ReplyBudget {
    /// Most bytes of bulk data in a reply whose other parts take `other_bytes`.
    pub fn bulk_bytes_max(&self, other_bytes: usize) -> usize {
        match self.direct_bytes_max {
            Some(direct) => direct,
            None => (self.message_bytes_max.saturating_sub(other_bytes)) & !3,
        }
    }
}

/// Names one call under way on a lane. Only the lane that gave it out can use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// What became of a call when it was handed over.
#[derive(Debug)]
pub enum Begun {
    /// It is done.
    Reply(Rope),
    /// The reply comes later through [`Service::finished`].
    Pending,
}

/// The programs of one lane. Lives on the lane's thread; every call gets exactly one reply.
pub trait Service {
    /// Begin a call.
    fn call(&mut self, ticket: Ticket, peer: &Peer, budget: ReplyBudget, call: Call) -> Begun;

    /// Most bytes of bulk data in the reply to this call: so much of the lane's buffers can be bound to it
    /// until the peer has taken the reply. 0 where replies carry none.
    fn reply_bulk_bytes(&self, _call: &Call) -> usize {
        0
    }

    /// Append the replies that have become ready since the last call.
    fn finished(&mut self, out: &mut Vec<(Ticket, Rope)>);

    /// Hand batched work to the kernel; called at the end of every turn.
    fn flush(&mut self);

    /// File descriptors that become readable when `finished` may have something, besides the lane's waker.
    /// The lane shares them while it watches them, so that no number is closed and reused under its hands.
    fn wake_fds(&self) -> Vec<Arc<OwnedFd>>;

    /// Where the bulk data of a call begins, as an offset from the xid, if `start` (the first bytes of a
    /// record, at least the RPC header) shows that it has some. The transport receives it page-aligned.
    fn bulk_offset(&self, start: &[u8]) -> Option<usize>;
}
