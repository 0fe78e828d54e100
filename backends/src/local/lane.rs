//! The lane's half: each request goes the shortest way that cannot block the lane.
//!
//! * at once, when the object is held open: GETATTR, ACCESS, LOOKUP of cached names, small cached READs;
//! * the ring: data of READ, WRITE and COMMIT;
//! * the blocking pool: everything else, and the data too where there is no ring.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};

use crate::{
    attr::Attributes,
    backend::{LaneBackend, LaneResources},
    blocking::{BlockingPool, Job, creds},
    error::{BackendError, ErrorKind},
    op::{Completion, Operation, Request, Token},
    uring::{Io, IoDone, IoKind, RingOwner},
};

use super::{
    attr::stat,
    backend::{Arounds, LocalBackend},
    commit::{Awaited, Batch},
    inbox::{Answer, Inbox, Message, completion},
    open_file::{OpenFile, Purpose},
    perform::subject,
    permission,
    read::ReadTransfer,
    transfer::{Step, Subject, Transfer, not_prepared},
    write::WriteTransfer,
};

/// Jobs that wait on the lane for a place in the pool's queue; beyond that clients are told to come later.
const WAITING_MAX: usize = 65_536;

/// How often the ring's table of files is looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The lane's half of a local backend.
pub struct LocalLane {
    backend: Arc<LocalBackend>,
    blocking: Arc<BlockingPool>,
    waker: Waker,
    ring: Option<RingOwner>,
    inbox: Arc<Inbox>,
    transfers: HashMap<u64, Transfer>,
    next_tag: u64,
    waiting: VecDeque<Job>,
    io_done: Vec<IoDone>,
    swept: Instant,
    /// A thread is closing files.
    closing: Arc<AtomicBool>,
}

impl fmt::Debug for LocalLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLane")
            .field("transfers", &self.transfers.len())
            .field("waiting", &self.waiting.len())
            .field("ring", &self.ring.is_some())
            .finish_non_exhaustive()
    }
}

impl LocalLane {
    /// The half of `backend` on this lane.
    pub fn new(backend: Arc<LocalBackend>, lane: &LaneResources) -> Self {
        creds::keep();
        Self {
            backend,
            blocking: lane.blocking.clone(),
            waker: lane.waker.clone(),
            ring: lane.ring.as_ref().map(|ring| ring.owner()),
            inbox: Inbox::new(lane.waker.clone()),
            transfers: HashMap::new(),
            next_tag: 0,
            waiting: VecDeque::new(),
            io_done: Vec::new(),
            swept: Instant::now(),
            closing: Arc::default(),
        }
    }

    /// Queue a job for the pool, behind those that wait already.
    fn queue(&mut self, job: Job) {
        self.waiting.push_back(job);
        self.drain_waiting();
    }

    fn drain_waiting(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            if let Err(job) = self.blocking.submit(job, &self.waker) {
                self.waiting.push_front(job);
                break;
            }
        }
    }

    /// Do what can be done at once, or give the request back.
    #[allow(clippy::result_large_err)] // not an error: the request goes on another way
    fn at_once(&mut self, request: Request) -> Result<Completion, Request> {
        let Some(file) = subject(&request.operation).and_then(|handle| self.backend.held(&handle))
        else {
            return Err(request);
        };
        let mut around = Arounds::default();
        let backend = &self.backend;
        let who = &request.identity;
        let result = match &request.operation {
            Operation::GetAttributes { .. } => backend.get_attributes(&file, &mut around),
            Operation::Access { mask, .. } => backend.access(who, &file, *mask, &mut around),
            // The parent may have to be read from the drive.
            Operation::Lookup { name, .. } if &name[..] != b".." => {
                backend.lookup(who, &file, name, true, &mut around)
            }
            _ => return Err(request),
        };
        match result {
            Err(error) if would_block(&error) => Err(request),
            result => Ok(completion(request.token, result, around)),
        }
    }

    fn on_pool(&mut self, request: Request) {
        let backend = self.backend.clone();
        let answer = Answer::new(self.inbox.clone(), request.token);
        self.queue(Box::new(move || {
            let done = backend.perform(request);
            answer.send(Message::Finished(done));
        }));
    }

    /// Begin READ, WRITE or COMMIT, if the file is open for it; else open it on the pool first.
    fn transfer(&mut self, request: Request) -> Option<Completion> {
        let file = subject(&request.operation).and_then(|handle| self.backend.held(&handle));
        let Some(file) = file.filter(|file| self.is_prepared(file, &request.operation)) else {
            self.prepare(request);
            return None;
        };
        match permission::for_transfer(&file, &request.operation, &request.identity) {
            Ok(attr) => self.start(request, file, attr),
            Err((error, _)) if error.kind == ErrorKind::Later => {
                self.prepare(request);
                None
            }
            Err((error, first)) => {
                let around = Arounds { first, ..Arounds::default() };
                Some(completion(request.token, Err(error), around))
            }
        }
    }

    /// A thread has opened the file and found that the caller may.
    fn prepared(&mut self, request: Request, file: Arc<OpenFile>) -> Option<Completion> {
        match stat(&file.path) {
            Ok(about) => self.start(request, file, about.attributes),
            Err(error) => Some(Completion::failed(request.token, error)),
        }
    }

    fn is_prepared(&self, file: &OpenFile, operation: &Operation) -> bool {
        let direct = self.backend.settings.io_mode == super::settings::IoMode::Direct;
        let ready = |purpose| file.ready(purpose).is_some();
        match operation {
            Operation::Read { .. } => {
                ready(Purpose::Read)
                    && (!direct || ready(Purpose::DirectRead) || file.lacks_direct())
            }
            Operation::Write { .. } => {
                ready(Purpose::Write)
                    && (!direct || ready(Purpose::DirectWrite) || file.lacks_direct())
                    && (ready(Purpose::Read) || file.lacks_read())
            }
            _ => ready(Purpose::Read) || ready(Purpose::Write),
        }
    }

    fn prepare(&mut self, request: Request) {
        let backend = self.backend.clone();
        let answer = Answer::new(self.inbox.clone(), request.token);
        self.queue(Box::new(move || {
            let prepared = backend.prepare(&request.operation).and_then(|file| {
                permission::for_transfer(&file, &request.operation, &request.identity)
                    .map_err(|(error, _)| error)?;
                Ok(file)
            });
            match prepared {
                Ok(file) => answer.send(Message::Prepared(request, file)),
                Err(error) => {
                    let held = subject(&request.operation).and_then(|handle| backend.held(&handle));
                    let mut around = Arounds::default();
                    if let Some(file) = held {
                        around.first = backend.after(&file);
                    }
                    answer.send(Message::Finished(completion(request.token, Err(error), around)));
                }
            }
        }));
    }

    fn start(
        &mut self,
        request: Request,
        file: Arc<OpenFile>,
        attr: Attributes,
    ) -> Option<Completion> {
        let Request { token, identity, operation } = request;
        let subject = Subject { token, who: identity, file };
        self.next_tag = self.next_tag.wrapping_add(1);
        let tag = self.next_tag;
        let (transfer, step) = match operation {
            Operation::Read { offset, count, into, pages, .. } => {
                let what = (offset, count, into);
                let (read, step) = ReadTransfer::start(&self.backend, subject, &attr, what, pages);
                (read.map(|read| Transfer::Read(Box::new(read))), step)
            }
            Operation::Write { offset, data, stability, .. } => {
                let what = (offset, data, stability);
                let (write, step) =
                    WriteTransfer::start(&self.backend, subject, what, (&self.inbox, tag));
                (write.map(|write| Transfer::Write(Box::new(write))), step)
            }
            _ => {
                self.join_sync(subject.token, Awaited::Commit, subject.file);
                return None;
            }
        };
        if let (Some(transfer), false) = (transfer, matches!(step, Step::Done(_) | Step::Sync(..)))
        {
            self.transfers.insert(tag, transfer);
        }
        self.take(tag, step)
    }

    fn take(&mut self, tag: u64, step: Step) -> Option<Completion> {
        match step {
            Step::Io(io) => {
                self.start_io(tag, io);
                None
            }
            Step::Wait => None,
            Step::Sync(subject, what) => {
                self.transfers.remove(&tag);
                self.join_sync(subject.token, what, subject.file);
                None
            }
            Step::Done(done) => {
                self.transfers.remove(&tag);
                Some(done)
            }
        }
    }

    /// Move data: by the ring, or by a thread.
    fn start_io(&mut self, tag: u64, mut io: Io) {
        if let Some(ring) = &self.ring {
            ring.push(tag, io);
            return;
        }
        let inbox = self.inbox.clone();
        self.queue(Box::new(move || {
            let result = match io.identity.clone() {
                None => io.run_blocking(),
                Some(who) => creds::with(&who, || io.run_blocking()).unwrap_or(-libc::EAGAIN),
            };
            inbox.send(Message::IoDone(IoDone { tag, result, io }));
        }));
    }

    fn join_sync(&mut self, token: Token, what: Awaited, file: Arc<OpenFile>) {
        if file.commits.arrive(self.inbox.clone(), token, what) {
            self.begin_sync(file);
        }
    }

    fn begin_sync(&mut self, file: Arc<OpenFile>) {
        let fd = file.ready(Purpose::Read).or_else(|| file.ready(Purpose::Write)).cloned();
        let batch = Batch::begin(file, self.backend.verifier.current());
        self.next_tag = self.next_tag.wrapping_add(1);
        let tag = self.next_tag;
        let Some(fd) = fd else {
            tracing::error!(error = %not_prepared(), "a file is not open for its COMMIT");
            batch.refuse(not_prepared);
            return;
        };
        self.backend.count_commit_sync();
        // Attributes that matter for finding the data are part of a data sync.
        let kind = IoKind::Sync { data_only: batch.data_only() };
        self.transfers.insert(tag, Transfer::Sync(batch));
        self.start_io(tag, Io { file: fd, offset: 0, flags: 0, identity: None, kind });
    }

    fn end_sync(&mut self, batch: Batch, result: i32) {
        let injected = self.backend.fail_next_sync.swap(false, Ordering::SeqCst);
        let result = if injected { -libc::EIO } else { result };
        let file = batch.file().clone();
        let result = if result < 0 { Err(-result) } else { Ok(()) };
        if let Err(errno) = result {
            file.set_dirty(true);
            if !matches!(errno, libc::EAGAIN | libc::EINTR) {
                self.backend.verifier.rotate("COMMIT failed");
            }
        }
        let after = self.backend.after(&file);
        if batch.finish(result, after) {
            self.begin_sync(file);
        }
    }

    fn io_done(&mut self, done: IoDone, out: &mut Vec<Completion>) {
        let tag = done.tag;
        match self.transfers.remove(&tag) {
            Some(Transfer::Sync(batch)) => self.end_sync(batch, done.result),
            Some(mut transfer) => {
                let step = transfer.advance(&self.backend, done);
                self.transfers.insert(tag, transfer);
                out.extend(self.take(tag, step));
            }
            None => {}
        }
    }

    fn gate_open(&mut self, tag: u64, out: &mut Vec<Completion>) {
        let Some(Transfer::Write(write)) = self.transfers.get_mut(&tag) else { return };
        let step = write.passed();
        out.extend(self.take(tag, step));
    }

    /// Let the ring's table go of files that are closed otherwise, now and then.
    fn sweep_ring(&mut self) {
        let Some(ring) = &self.ring else { return };
        if self.swept.elapsed() < SWEEP_INTERVAL {
            return;
        }
        self.swept = Instant::now();
        let unused = ring.ring().take_unused_files();
        if !unused.is_empty() {
            self.queue(Box::new(move || drop(unused)));
        }
    }

    /// Close what has to be closed, where it may block.
    fn see_to_chores(&mut self) {
        self.sweep_ring();
        if self.closing.load(Ordering::Relaxed) {
            return;
        }
        let Some(chores) = self.backend.chores() else { return };
        let (backend, closing) = (self.backend.clone(), self.closing.clone());
        closing.store(true, Ordering::Relaxed);
        self.queue(Box::new(move || {
            backend.do_chores(chores);
            closing.store(false, Ordering::Relaxed);
        }));
    }
}

impl Drop for LocalLane {
    fn drop(&mut self) {
        // Writes that have just been let in leave their gates as the transfers are dropped.
        for message in self.inbox.close() {
            if let Message::GateOpen(tag) = message
                && let Some(Transfer::Write(write)) = self.transfers.get_mut(&tag)
            {
                write.admitted();
            }
        }
        let mut syncs = self.transfers.values().filter_map(|transfer| match transfer {
            Transfer::Sync(batch) => Some(batch.file()),
            _ => None,
        });
        // Nobody will see whether such a sync fails, and the kernel does not tell of an error twice.
        if let Some(file) = syncs.next() {
            file.set_dirty(true);
            syncs.for_each(|file| file.set_dirty(true));
            self.backend.verifier.rotate("a lane ended during a COMMIT");
        }
    }
}

/// Whether a lookup of cached names has to be done again on a thread. (Kernels before 5.12 do not know the
/// flag for it and answer EINVAL.)
fn would_block(error: &BackendError) -> bool {
    error.kind == ErrorKind::Later
        || (error.operation == "openat2" && error.kind == ErrorKind::Invalid)
}

impl LaneBackend for LocalLane {
    fn submit(&mut self, request: Request) -> Option<Completion> {
        let refuse = |kind| {
            let error = BackendError::new(kind, request.operation.name());
            Some(Completion::failed(request.token, error))
        };
        if self.backend.settings.read_only && request.operation.is_mutation() {
            return refuse(ErrorKind::ReadOnly);
        }
        if self.waiting.len() >= WAITING_MAX {
            return refuse(ErrorKind::Later);
        }
        match &request.operation {
            Operation::Read { .. } | Operation::Write { .. } | Operation::Commit { .. } => {
                self.transfer(request)
            }
            _ => match self.at_once(request) {
                Ok(done) => Some(done),
                Err(request) => {
                    self.on_pool(request);
                    None
                }
            },
        }
    }

    fn completions(&mut self, out: &mut Vec<Completion>) {
        for message in self.inbox.take() {
            match message {
                Message::Finished(done) => out.push(done),
                Message::Prepared(request, file) => out.extend(self.prepared(request, file)),
                Message::IoDone(done) => self.io_done(done, out),
                Message::GateOpen(tag) => self.gate_open(tag, out),
                Message::SyncAgain(token, what, file) => self.join_sync(token, what, file),
            }
        }
        let mut finished = std::mem::take(&mut self.io_done);
        if let Some(ring) = &self.ring {
            ring.completions(&mut finished);
        }
        for done in finished.drain(..) {
            self.io_done(done, out);
        }
        self.io_done = finished;
        self.drain_waiting();
    }

    fn flush(&mut self) {
        self.drain_waiting();
        self.see_to_chores();
        if let Some(ring) = &self.ring {
            ring.ring().submit();
        }
    }

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.ring.iter().map(|ring| ring.ring().eventfd()).collect()
    }
}
