//! COMMIT (RFC 1813 section 3.3.21) and stable WRITEs through the page cache, grouped: one sync answers all of
//! a file, from all lanes, that arrived before it began.
//!
//! The sync uses a descriptor that nothing else syncs with. The kernel reports an error of writing back once
//! for each descriptor, so no other sync of the file can take the error away from COMMIT; and syncs of one
//! file follow each other, so none of them can either.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    attr::Around,
    error::BackendError,
    op::{Completion, Outcome, Stability, Token, WriteVerifier},
};

use super::{
    inbox::{Inbox, Message},
    open_file::OpenFile,
};

/// What a sync is waited for, and so what the answer is.
#[derive(Debug, Clone, Copy)]
pub enum Awaited {
    /// A COMMIT.
    Commit,
    /// A WRITE whose data is in the page cache: so much, to be this stable, written under this verifier.
    Write(u32, Stability, WriteVerifier),
}

impl Awaited {
    fn outcome(self, verifier: WriteVerifier) -> Outcome {
        match self {
            Self::Commit => Outcome::Committed { verifier },
            Self::Write(count, stability, verifier) => {
                Outcome::Written { count, stability, verifier }
            }
        }
    }
}

/// Somebody who waits for a sync.
#[derive(Debug)]
struct Waiting {
    inbox: Arc<Inbox>,
    token: Token,
    what: Awaited,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    next: Vec<Waiting>,
}

/// The COMMITs of one file.
#[derive(Default)]
pub struct CommitQueue(Mutex<State>);

impl fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitQueue")
    }
}

impl CommitQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody waits from now on. True: no sync is running, the caller must start one with [`Batch::begin`].
    pub fn arrive(&self, inbox: Arc<Inbox>, token: Token, what: Awaited) -> bool {
        let mut state = self.lock();
        state.next.push(Waiting { inbox, token, what });
        !std::mem::replace(&mut state.running, true)
    }
}

/// A sync on its way and those whom it answers. If it is lost they ask again.
#[derive(Debug)]
pub struct Batch {
    file: Arc<OpenFile>,
    waiting: Vec<Waiting>,
    verifier: WriteVerifier,
}

impl Batch {
    /// Everybody who waits now, answered under `verifier`, which is valid before the sync begins.
    pub fn begin(file: Arc<OpenFile>, verifier: WriteVerifier) -> Self {
        let waiting = std::mem::take(&mut file.commits.lock().next);
        file.set_dirty(false);
        Self { file, waiting, verifier }
    }

    /// The file.
    pub fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// Whether nobody needs more than the data: all attributes are part of what FILE_SYNC promises.
    pub fn data_only(&self) -> bool {
        let full = |w: &Waiting| matches!(w.what, Awaited::Write(_, Stability::FileSync, _));
        !self.waiting.iter().any(full)
    }

    /// How many are answered by this sync.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// There is no sync: answer all who wait, those who came since too.
    pub fn refuse(mut self, error: impl Fn() -> BackendError) {
        let mut refused = std::mem::take(&mut self.waiting);
        let mut state = self.file.commits.lock();
        state.running = false;
        refused.append(&mut state.next);
        drop(state);
        for Waiting { inbox, token, .. } in refused {
            inbox.send(Message::Finished(Completion::failed(token, error())));
        }
    }

    /// The sync is done: answer. True: others have arrived meanwhile, and the caller must start the next.
    pub fn finish(mut self, result: Result<(), i32>, after: Around) -> bool {
        for waiting in std::mem::take(&mut self.waiting) {
            let result = match result {
                Ok(()) => Ok(waiting.what.outcome(self.verifier)),
                Err(errno) => Err(BackendError::from_errno(errno, "fsync")),
            };
            let second = Around::default();
            waiting.inbox.send(Message::Finished(Completion {
                token: waiting.token,
                result,
                first: after,
                second,
            }));
        }
        let mut state = self.file.commits.lock();
        state.running = !state.next.is_empty();
        state.running
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        // The lane that ran the sync is gone, and has seen to the verifier. Those of other lanes begin anew
        // there.
        let mut state = self.file.commits.lock();
        state.running = false;
        let mut lost = std::mem::take(&mut self.waiting);
        lost.append(&mut state.next);
        drop(state);
        for Waiting { inbox, token, what } in lost {
            inbox.send(Message::SyncAgain(token, what, self.file.clone()));
        }
    }
}
