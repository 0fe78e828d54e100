//! Replies that another lane has made for calls of this one.

use std::{
    sync::{Mutex, PoisonError},
    task::Waker,
};

use rpc_rdma::{service::Ticket, xdr::Rope};

/// A lane's inbox. What is in it is bounded by the waiters that the reply cache keeps.
#[derive(Debug)]
pub struct Inbox {
    replies: Mutex<Vec<(Ticket, Rope)>>,
    waker: Waker,
}

impl Inbox {
    /// An inbox whose lane is woken by `waker`.
    pub fn new(waker: Waker) -> Self {
        Self { replies: Mutex::new(Vec::new()), waker }
    }

    /// Put in a reply and wake the lane.
    pub fn put(&self, ticket: Ticket, reply: Rope) {
        self.lock().push((ticket, reply));
        self.waker.wake_by_ref();
    }

    /// Take everything out.
    pub fn take(&self, out: &mut Vec<(Ticket, Rope)>) {
        out.append(&mut self.lock());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Ticket, Rope)>> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
