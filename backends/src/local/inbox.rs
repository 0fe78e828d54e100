//! What threads of the blocking pool, and other lanes, send to a lane.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    task::Waker,
};

use crate::{
    error::{BackendError, ErrorKind},
    op::{Completion, Request, Token},
    uring::IoDone,
};

use super::{backend::Arounds, commit::Awaited, open_file::OpenFile};

/// One message.
#[allow(clippy::large_enum_variant)] // moved once; a box would cost an allocation for each
#[derive(Debug)]
pub enum Message {
    /// An operation is done.
    Finished(Completion),
    /// A file is open for the transfer that this request asks for.
    Prepared(Request, Arc<OpenFile>),
    /// A data operation that a thread did in the ring's place.
    IoDone(IoDone),
    /// The sync that was to answer this COMMIT or WRITE is lost with its lane.
    SyncAgain(Token, Awaited, Arc<OpenFile>),
    /// A write may pass its gate.
    GateOpen(u64),
}

/// The lane's inbox. It holds at most a few messages for each request under way, so it is bounded as they are.
pub struct Inbox {
    /// `None` once the lane is gone.
    messages: Mutex<Option<Vec<Message>>>,
    waker: Waker,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}

impl Inbox {
    /// An inbox that wakes its lane by `waker`.
    pub fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self { messages: Mutex::new(Some(Vec::new())), waker })
    }

    /// Send. False: the lane is gone.
    pub fn send(&self, message: Message) -> bool {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(messages) = messages.as_mut() else { return false };
        messages.push(message);
        self.waker.wake_by_ref();
        true
    }

    /// The lane goes. Returns what it has not read.
    pub fn close(&self) -> Vec<Message> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.take().unwrap_or_default()
    }

    /// Take everything.
    pub fn take(&self) -> Vec<Message> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// Completion of a request from its parts.
pub fn completion(
    token: Token,
    result: Result<crate::op::Outcome, BackendError>,
    around: Arounds,
) -> Completion {
    Completion { token, result, first: around.first, second: around.second }
}

/// The duty to answer a request. A thread that dies on the way answers with a fault.
#[derive(Debug)]
pub struct Answer {
    inbox: Arc<Inbox>,
    token: Token,
    open: bool,
}

impl Answer {
    /// The duty to answer `token`.
    pub fn new(inbox: Arc<Inbox>, token: Token) -> Self {
        Self { inbox, token, open: true }
    }

    /// Answer.
    pub fn send(mut self, message: Message) {
        self.open = false;
        self.inbox.send(message);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.open {
            let fault = BackendError::new(ErrorKind::ServerFault, "blocking pool");
            self.inbox.send(Message::Finished(Completion::failed(self.token, fault)));
        }
    }
}
