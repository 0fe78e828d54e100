//! READ and WRITE as small state machines: what to move next, and what to answer in the end. Who moves it (the
//! ring or a thread) is the lane's business.

use std::{os::fd::OwnedFd, sync::Arc};

use crate::{
    attr::Around,
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{Completion, Outcome, Token},
    uring::{Io, IoDone},
};

use super::{
    attr::stat,
    backend::LocalBackend,
    commit::{Awaited, Batch},
    open_file::OpenFile,
    read::ReadTransfer,
    write::WriteTransfer,
};

/// `RWF_DSYNC`: the data is stable when the write returns.
pub const RWF_DSYNC: i32 = 0x2;
/// `RWF_SYNC`: data and attributes are stable when the write returns.
pub const RWF_SYNC: i32 = 0x4;
/// `RWF_DONTCACHE` (since Linux 6.14): the page cache forgets the data at once.
pub const RWF_DONTCACHE: i32 = 0x80;

/// Times that the kernel may say "try again" to one step.
pub const RETRIES_MAX: u32 = 64;

/// What is under way on the lane.
#[derive(Debug)]
pub enum Transfer {
    /// A READ.
    Read(Box<ReadTransfer>),
    /// A WRITE.
    Write(Box<WriteTransfer>),
    /// The sync for some COMMITs.
    Sync(Batch),
}

/// What follows a step.
#[allow(clippy::large_enum_variant)] // moved once; a box would cost an allocation for each
#[derive(Debug)]
pub enum Step {
    /// Move this next.
    Io(Io),
    /// The write must wait at its gate.
    Wait,
    /// The answer waits for a sync of the file that begins after this.
    Sync(Subject, Awaited),
    /// The answer.
    Done(Completion),
}

/// What a transfer needs to know of its request.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The request's mark.
    pub token: Token,
    /// The caller.
    pub who: Arc<Identity>,
    /// The file.
    pub file: Arc<OpenFile>,
}

impl Subject {
    /// The answer, with the attributes after the operation.
    pub fn answer(&self, result: Result<Outcome, BackendError>) -> Completion {
        let first = stat(&self.file.path)
            .map_or_else(|_| Around::default(), |about| Around::after(about.attributes));
        self.answer_with(result, first)
    }

    /// The answer, with these attributes.
    pub fn answer_with(&self, result: Result<Outcome, BackendError>, first: Around) -> Completion {
        Completion { token: self.token, result, first, second: Around::default() }
    }
}

impl Transfer {
    /// A step is done; what follows.
    pub fn advance(&mut self, backend: &LocalBackend, done: IoDone) -> Step {
        match self {
            Self::Read(read) => read.advance(backend, done),
            Self::Write(write) => write.advance(backend, done),
            Self::Sync(batch) => {
                // The lane ends syncs itself; reaching this is a fault in the lane.
                let error = BackendError::new(ErrorKind::ServerFault, "sync");
                tracing::error!(waiting = batch.len(), "a sync was taken for a transfer");
                Step::Done(Completion::failed(done.tag, error))
            }
        }
    }
}

/// A missing descriptor after the file was prepared: the open cache and the transfer disagree.
pub fn not_prepared() -> BackendError {
    BackendError::new(ErrorKind::Later, "open")
}

/// Shorthand for a file's descriptor.
pub type Fd = Arc<OwnedFd>;
