//! A lane for tests: submits one operation and sleeps on the wake-up sources until it is done, so a
//! lost wake-up fails the test.

use std::{
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    task::{Wake, Waker},
};

use backends::{
    Attributes, Backend, Completion, ErrorKind, Identity, LaneBackend, LaneResources, ObjectHandle,
    Operation, Outcome, Request,
    attr::Changes,
    blocking::{BlockingPool, creds},
    local::{IoMode, LocalBackend, LocalSettings},
    op::{CreateHow, Entry, ReadDirectory, Stability, WriteVerifier},
    uring::{LaneRing, RingSettings},
};
use buffers::{Lease, PagePool, Pages, Payload, Pool, pool::SLACK_BYTES};
use bytes::Bytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Longest wait for one operation.
const PATIENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

struct WakeFd(OwnedFd);

impl Wake for WakeFd {
    fn wake(self: Arc<Self>) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// How a test lane works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub ring: bool,
    pub io_mode: IoMode,
}

/// All ways.
pub fn ways() -> Vec<Way> {
    let modes = [IoMode::Buffered, IoMode::DontCache, IoMode::Direct];
    [true, false].into_iter().flat_map(|ring| modes.map(|io_mode| Way { ring, io_mode })).collect()
}

pub struct TestLane {
    pub backend: Arc<LocalBackend>,
    pub pool: Arc<Pool>,
    pub who: Arc<Identity>,
    lane: Box<dyn LaneBackend>,
    wake: Arc<WakeFd>,
    next: u64,
    early: Vec<Completion>,
    /// Duplicates of the lane's descriptors.
    ready: Vec<Arc<OwnedFd>>,
    /// READs that were answered with pages of the page cache.
    pub by_page: usize,
}

/// The identity that created files belong to: root where tests run as root, else the process's user.
pub fn myself() -> Arc<Identity> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Arc::new(Identity::new(uid, gid))
}

pub fn settings(root: &std::path::Path) -> LocalSettings {
    // The gateway clears the umask at its start.
    rustix::process::umask(rustix::fs::Mode::empty());
    LocalSettings { metadata_sync: false, ..LocalSettings::new(root) }
}

impl TestLane {
    pub fn new(root: &std::path::Path, way: Way) -> Self {
        let backend =
            LocalBackend::open(LocalSettings { io_mode: way.io_mode, ..settings(root) }).unwrap();
        Self::on(backend, way.ring)
    }

    pub fn buffered(root: &std::path::Path) -> Self {
        Self::new(root, Way { ring: true, io_mode: IoMode::Buffered })
    }

    pub fn on(backend: Arc<LocalBackend>, ring: bool) -> Self {
        let pool = Pool::standalone(16 << 20);
        let wake = Arc::new(WakeFd(eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
        let ring =
            ring.then(|| LaneRing::open(&RingSettings::default(), pool.arena()).ok()).flatten();
        let resources = LaneResources {
            pool: pool.clone(),
            ring,
            blocking: BlockingPool::start(2, 4).unwrap(),
            waker: Waker::from(wake.clone()),
        };
        let lane = backend.clone().attach(&resources).unwrap();
        let ready = lane.wake_fds();
        let (who, early) = (myself(), Vec::new());
        Self { backend, pool, who, lane, wake, next: 0, early, ready, by_page: 0 }
    }

    pub fn submit(&mut self, who: &Arc<Identity>, operation: Operation) -> u64 {
        self.next += 1;
        let request = Request { token: self.next, identity: who.clone(), operation };
        if let Some(done) = self.lane.submit(request) {
            self.early.push(done);
        }
        self.next
    }

    /// Wait for the completion of `token`.
    pub fn wait(&mut self, token: u64) -> Completion {
        loop {
            if let Some(index) = self.early.iter().position(|done| done.token == token) {
                return self.early.remove(index);
            }
            self.lane.flush();
            let before = self.early.len();
            self.lane.completions(&mut self.early);
            if self.early.len() == before {
                self.sleep();
            }
        }
    }

    fn sleep(&mut self) {
        self.lane.flush();
        let mut polled: Vec<PollFd> =
            self.ready.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.wake.0, PollFlags::IN));
        let ready = poll(&mut polled, Some(&PATIENCE)).unwrap();
        assert_ne!(ready, 0, "lost wake-up: {:?}", self.lane);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake.0, &mut count);
    }

    pub fn run_as(&mut self, who: &Arc<Identity>, operation: Operation) -> Completion {
        let token = self.submit(who, operation);
        self.wait(token)
    }

    pub fn run(&mut self, operation: Operation) -> Completion {
        let who = self.who.clone();
        self.run_as(&who, operation)
    }

    pub fn root(&self) -> ObjectHandle {
        self.backend.root()
    }

    pub fn lease(&self, bytes: usize) -> Lease {
        self.pool.take(bytes + SLACK_BYTES).unwrap()
    }

    pub fn lookup(
        &mut self,
        directory: ObjectHandle,
        name: &[u8],
    ) -> Result<ObjectHandle, ErrorKind> {
        let name = Bytes::copy_from_slice(name);
        match self.run(Operation::Lookup { directory, name }).result {
            Ok(Outcome::Found { object, .. }) => Ok(object),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.kind),
        }
    }

    pub fn try_create(
        &mut self,
        who: &Arc<Identity>,
        directory: ObjectHandle,
        name: &[u8],
        how: CreateHow,
    ) -> Result<ObjectHandle, ErrorKind> {
        let name = Bytes::copy_from_slice(name);
        match self.run_as(who, Operation::Create { directory, name, how }).result {
            Ok(Outcome::Created { object, .. }) => Ok(object),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.kind),
        }
    }

    pub fn create(&mut self, name: &[u8], mode: u32) -> ObjectHandle {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        let (who, root) = (self.who.clone(), self.root());
        self.try_create(&who, root, name, CreateHow::Guarded(changes)).unwrap()
    }

    pub fn make_directory(&mut self, name: &[u8], mode: u32) -> ObjectHandle {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        let name = Bytes::copy_from_slice(name);
        let operation = Operation::MakeDirectory { directory: self.root(), name, changes };
        match self.run(operation).result.unwrap() {
            Outcome::Created { object, .. } => object,
            other => panic!("{other:?}"),
        }
    }

    pub fn attributes(&mut self, object: ObjectHandle) -> Attributes {
        let done = self.run(Operation::GetAttributes { object });
        done.result.unwrap();
        done.first.after.unwrap()
    }

    pub fn set(
        &mut self,
        who: &Arc<Identity>,
        object: ObjectHandle,
        changes: Changes,
    ) -> Result<(), ErrorKind> {
        let operation = Operation::SetAttributes { object, changes, guard: None };
        self.run_as(who, operation).result.map(|_| ()).map_err(|error| error.kind)
    }

    pub fn write_as(
        &mut self,
        who: &Arc<Identity>,
        object: ObjectHandle,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<(u32, WriteVerifier), ErrorKind> {
        let operation = Operation::Write { object, offset, data, stability };
        match self.run_as(who, operation).result {
            Ok(Outcome::Written { count, stability: done, verifier }) => {
                assert!(done >= stability);
                Ok((count, verifier))
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.kind),
        }
    }

    /// Write from a lease at the same place in its page as in the file's, as the transports do.
    pub fn write(&mut self, object: ObjectHandle, offset: u64, data: &[u8]) -> WriteVerifier {
        let who = self.who.clone();
        let mut lease = self.lease(data.len());
        let skip = usize::try_from(offset % 4096).unwrap();
        lease[skip..skip + data.len()].copy_from_slice(data);
        let bytes = lease.freeze(skip, data.len());
        let (count, verifier) =
            self.write_as(&who, object, offset, bytes, Stability::Unstable).unwrap();
        assert_eq!(count as usize, data.len());
        verifier
    }

    pub fn read_as(
        &mut self,
        who: &Arc<Identity>,
        object: ObjectHandle,
        offset: u64,
        count: u32,
    ) -> Result<(Bytes, bool), ErrorKind> {
        let copied = self.read_to(who, (object, offset, count), None)?;
        assert_eq!(self.read_pages(who, object, offset, count)?, copied);
        Ok(copied)
    }

    /// The same as a transport asks that can send pages by reference.
    fn read_pages(
        &mut self,
        who: &Arc<Identity>,
        object: ObjectHandle,
        offset: u64,
        count: u32,
    ) -> Result<(Bytes, bool), ErrorKind> {
        let pages = PagePool::new(1).take(offset, count as usize);
        self.read_to(who, (object, offset, count), pages)
    }

    /// What lies there in a file that others make longer meanwhile, so that its end may lie anywhere.
    pub fn read_growing(&mut self, object: ObjectHandle, offset: u64, count: u32) -> Bytes {
        let who = self.who.clone();
        let (copied, _) = self.read_to(&who, (object, offset, count), None).unwrap();
        assert_eq!(self.read_pages(&who, object, offset, count).unwrap().0, copied);
        copied
    }

    fn read_to(
        &mut self,
        who: &Arc<Identity>,
        (object, offset, count): (ObjectHandle, u64, u32),
        pages: Option<Pages>,
    ) -> Result<(Bytes, bool), ErrorKind> {
        let into = self.lease(count as usize);
        match self.run_as(who, Operation::Read { object, offset, count, into, pages }).result {
            Ok(Outcome::Data { data: Payload::Bytes(data), end_of_file }) => {
                Ok((data, end_of_file))
            }
            Ok(Outcome::Data { data: Payload::Pages(pages), end_of_file }) => {
                self.by_page += 1;
                Ok((received(&pages), end_of_file))
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.kind),
        }
    }

    pub fn read(&mut self, object: ObjectHandle, offset: u64, count: u32) -> (Bytes, bool) {
        let who = self.who.clone();
        self.read_as(&who, object, offset, count).unwrap()
    }

    pub fn commit(&mut self, object: ObjectHandle) -> Result<WriteVerifier, ErrorKind> {
        match self.run(Operation::Commit { object, offset: 0, count: 0 }).result {
            Ok(Outcome::Committed { verifier }) => Ok(verifier),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.kind),
        }
    }

    /// One page of a directory.
    pub fn page(
        &mut self,
        directory: ObjectHandle,
        cookie: u64,
        plus: bool,
        name_bytes_max: u32,
    ) -> Result<(Vec<Entry>, bool), ErrorKind> {
        let asked =
            ReadDirectory { directory, cookie, plus, name_bytes_max, entries_max: u32::MAX };
        match self.run(Operation::ReadDirectory(asked)).result {
            Ok(Outcome::Entries { entries, end }) => Ok((entries, end)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.kind),
        }
    }
}

/// What arrives at the other end of a socket.
fn received(pages: &Pages) -> Bytes {
    let len = pages.len();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut data = vec![0; len];
    let mut got = 0;
    while got < len {
        if !pages.is_empty() {
            match pages.splice_to(ours.as_fd(), false) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
                _ => {}
            }
        }
        got += theirs.read(&mut data[got..]).unwrap();
    }
    data.into()
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Whether identities can be told apart on this machine; tests of them are void otherwise.
pub fn can_switch() -> bool {
    creds::can_switch()
}
