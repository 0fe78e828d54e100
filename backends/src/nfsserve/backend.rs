//! The two halves of the backend trait: operations run as tasks on a tokio runtime, a bounded number at a
//! time for each lane, and come back through an inbox that wakes the lane.

use std::{
    collections::VecDeque,
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    io, mem,
    sync::{Arc, Mutex, PoisonError},
    task::Waker,
};

use ::nfsserve::{
    nfs::fileid3,
    vfs::{NFSFileSystem, VFSCapabilities},
};
use tokio::runtime::Handle;

use super::convert;
use crate::{
    attr::{Around, Attributes, Space, Timestamp},
    backend::{Backend, Capabilities, LaneBackend, LaneResources},
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    op::{Completion, NAME_BYTES_MAX, Operation, Outcome, Request, Token, WriteVerifier},
};

pub(super) type Result<T> = std::result::Result<T, BackendError>;

/// Bounds, and what the file system cannot say of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Operations of one lane that run at a time.
    pub running_max: usize,
    /// Operations of one lane that wait for their turn; more are answered `Later`.
    pub waiting_max: usize,
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// What is said about space.
    pub space: Space,
}

impl Default for Limits {
    fn default() -> Self {
        let (bytes, files) = (1 << 40, 1 << 32);
        Self {
            running_max: 64,
            waiting_max: 4096,
            file_bytes_max: i64::MAX as u64,
            space: Space {
                total: bytes,
                free: bytes,
                available: bytes,
                files_total: files,
                files_free: files,
                files_available: files,
            },
        }
    }
}

/// An `nfsserve` file system as a backend.
pub struct NfsServeBackend<F> {
    shared: Arc<Shared<F>>,
    runtime: Handle,
}

/// What the tasks need.
pub(super) struct Shared<F> {
    pub(super) fs: F,
    pub(super) limits: Limits,
    pub(super) verifier: WriteVerifier,
    /// Held by operations that look at names first and change them then.
    pub(super) names: tokio::sync::Mutex<()>,
}

impl<F> fmt::Debug for NfsServeBackend<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NfsServeBackend")
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

impl<F: NFSFileSystem + Send + Sync + 'static> NfsServeBackend<F> {
    /// Serve `fs`; its operations run on `runtime`.
    pub fn new(fs: F, runtime: Handle, limits: Limits) -> Arc<Self> {
        let verifier = RandomState::new().build_hasher().finish().to_be_bytes();
        let names = tokio::sync::Mutex::new(());
        Arc::new(Self { shared: Arc::new(Shared { fs, limits, verifier, names }), runtime })
    }
}

impl<F: NFSFileSystem + Send + Sync + 'static> Backend for NfsServeBackend<F> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            hard_links: false,
            symlinks: true,
            special_files: false,
            set_times: true,
            unstable_writes: false,
            read_only: matches!(self.shared.fs.capabilities(), VFSCapabilities::ReadOnly),
            file_bytes_max: self.shared.limits.file_bytes_max,
            name_bytes_max: NAME_BYTES_MAX as u32,
            links_max: 1,
            time_granularity: Timestamp { seconds: 0, nanos: 1 },
        }
    }

    fn root(&self) -> ObjectHandle {
        convert::handle(self.shared.fs.root_dir())
    }

    fn attach(self: Arc<Self>, lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
        let inbox = Inbox { finished: Mutex::default(), waker: lane.waker.clone() };
        Ok(Box::new(NfsServeLane {
            backend: self,
            inbox: Arc::new(inbox),
            running: 0,
            waiting: VecDeque::new(),
        }))
    }
}

/// Where tasks put what they have finished.
#[derive(Debug)]
struct Inbox {
    finished: Mutex<Vec<Completion>>,
    waker: Waker,
}

impl Inbox {
    fn put(&self, completion: Completion) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        self.waker.wake_by_ref();
    }

    fn take(&self) -> Vec<Completion> {
        mem::take(&mut self.finished.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The answer that a task owes. Should the task end without one, because the file system panics or the
/// runtime shuts down, this gives one in its place.
struct Owed {
    inbox: Arc<Inbox>,
    token: Option<Token>,
}

impl Owed {
    fn pay(mut self, completion: Completion) {
        self.token = None;
        self.inbox.put(completion);
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            let error = BackendError::new(ErrorKind::ServerFault, "nfsserve task");
            self.inbox.put(Completion::failed(token, error));
        }
    }
}

/// A lane's half.
struct NfsServeLane<F> {
    backend: Arc<NfsServeBackend<F>>,
    inbox: Arc<Inbox>,
    running: usize,
    waiting: VecDeque<Request>,
}

impl<F> fmt::Debug for NfsServeLane<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NfsServeLane")
            .field("running", &self.running)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl<F: NFSFileSystem + Send + Sync + 'static> NfsServeLane<F> {
    fn start(&mut self, request: Request) {
        self.running += 1;
        let shared = self.backend.shared.clone();
        let owed = Owed { inbox: self.inbox.clone(), token: Some(request.token) };
        self.backend.runtime.spawn(async move { owed.pay(shared.execute(request).await) });
    }
}

impl<F: NFSFileSystem + Send + Sync + 'static> LaneBackend for NfsServeLane<F> {
    fn submit(&mut self, request: Request) -> Option<Completion> {
        let limits = &self.backend.shared.limits;
        if self.running < limits.running_max.max(1) {
            self.start(request);
        } else if self.waiting.len() < limits.waiting_max {
            self.waiting.push_back(request);
        } else {
            let error = BackendError::new(ErrorKind::Later, "nfsserve queue");
            return Some(Completion::failed(request.token, error));
        }
        None
    }

    fn completions(&mut self, out: &mut Vec<Completion>) {
        let finished = self.inbox.take();
        self.running -= finished.len();
        out.extend(finished);
        while self.running < self.backend.shared.limits.running_max.max(1)
            && let Some(request) = self.waiting.pop_front()
        {
            self.start(request);
        }
    }
}

impl<F: NFSFileSystem + Send + Sync> Shared<F> {
    /// Carry out one operation.
    async fn execute(&self, request: Request) -> Completion {
        let step = request.operation.name();
        let (first, second) = request.operation.objects();
        let ids = convert::file_id(&first, step).and_then(|first| match &second {
            Some(second) => Ok((first, Some(convert::file_id(second, step)?))),
            None => Ok((first, None)),
        });
        let (first, second) = match ids {
            Ok(ids) => ids,
            Err(error) => return Completion::failed(request.token, error),
        };
        let token = request.token;
        let result = self.run((first, second.unwrap_or(first)), request).await;
        let around =
            async |id| Around { before: None, after: self.attributes(id, step).await.ok() };
        Completion {
            token,
            result,
            first: around(first).await,
            second: match second {
                Some(second) => around(second).await,
                None => Around::default(),
            },
        }
    }

    /// Carry out an operation on its objects. `second` is meaningful for RENAME only.
    async fn run(&self, (first, second): (fileid3, fileid3), request: Request) -> Result<Outcome> {
        let who = &*request.identity;
        match request.operation {
            Operation::GetAttributes { .. } => {
                self.attributes(first, "getattr").await.map(|_| Outcome::Done)
            }
            Operation::SetAttributes { changes, guard, .. } => {
                self.set_attributes(who, first, &changes, guard).await
            }
            Operation::Lookup { name, .. } => self.lookup(who, first, &name).await,
            Operation::Access { mask, .. } => self.access(who, first, mask).await,
            Operation::ReadLink { .. } => self.read_link(first).await,
            Operation::Read { offset, count, into, .. } => {
                self.read(who, first, (offset, count), into).await
            }
            Operation::Write { offset, data, .. } => self.write(who, first, offset, &data).await,
            Operation::Commit { .. } => self.commit(who, first).await,
            Operation::Create { name, how, .. } => self.create(who, first, &name, how).await,
            Operation::MakeDirectory { name, changes, .. } => {
                self.make_directory(who, first, &name, &changes).await
            }
            Operation::MakeSymlink { name, target, changes, .. } => {
                self.make_symlink(who, first, (&name, &target), &changes).await
            }
            Operation::MakeNode { .. } => Err(BackendError::new(ErrorKind::NotSupported, "mknod")),
            Operation::Link { .. } => Err(BackendError::new(ErrorKind::NotSupported, "link")),
            Operation::Remove { name, .. } => self.remove(who, first, &name, false).await,
            Operation::RemoveDirectory { name, .. } => self.remove(who, first, &name, true).await,
            Operation::Rename { from_name, to_name, .. } => {
                self.rename(who, (first, &from_name), (second, &to_name)).await
            }
            Operation::ReadDirectory(args) => self.read_directory(who, first, &args).await,
            Operation::FileSystemSpace { .. } => Ok(Outcome::Space(self.limits.space)),
        }
    }

    /// Attributes of an object that somebody has a handle of.
    pub(super) async fn attributes(&self, id: fileid3, step: &'static str) -> Result<Attributes> {
        let attr = self.fs.getattr(id).await.map_err(convert::object_error(step))?;
        Ok(convert::attributes(&attr))
    }
}
