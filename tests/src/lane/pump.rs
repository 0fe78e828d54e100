//! Submits operations and turns the backend's crank until they are done.

use std::{
    collections::HashSet,
    sync::Arc,
    task::{Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use backends::{
    Backend, Completion, Identity, LaneBackend, LaneResources, ObjectHandle, Operation, Request,
    Token, blocking::BlockingPool, uring::LaneRing,
};
use buffers::{Lease, Pool, pool::SLACK_BYTES};

/// Longer than any operation of a test may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to sleep when nothing is ready; file descriptors of the backend are not watched.
const NAP: Duration = Duration::from_micros(200);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A backend on a lane of its own, used from the thread that made it.
#[derive(Debug)]
pub struct Lane {
    backend: Box<dyn LaneBackend>,
    root: ObjectHandle,
    pool: Arc<Pool>,
    last_token: Token,
    under_way: HashSet<Token>,
    finished: Vec<Completion>,
}

impl Lane {
    /// Attach `backend` to a lane without an io_uring.
    pub fn attach(backend: Arc<dyn Backend>) -> Self {
        Self::attach_with(backend, Pool::standalone(16 << 20), None)
    }

    /// Attach `backend` to a lane with this memory and this ring.
    ///
    /// # Panics
    /// When the backend cannot be attached.
    pub fn attach_with(backend: Arc<dyn Backend>, pool: Arc<Pool>, ring: Option<LaneRing>) -> Self {
        let root = backend.root();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let blocking = BlockingPool::start(2, 1024).expect("threads can be started");
        let resources = LaneResources { pool: pool.clone(), ring, blocking, waker };
        let backend = backend.attach(&resources).expect("the backend can be attached");
        Self { backend, root, pool, last_token: 0, under_way: HashSet::new(), finished: Vec::new() }
    }

    /// Handle of the root directory.
    pub fn root(&self) -> ObjectHandle {
        self.root
    }

    /// A buffer to read `count` bytes into.
    ///
    /// # Panics
    /// When the test holds all buffers.
    pub fn buffer(&self, count: u32) -> Lease {
        self.pool.take(count as usize + SLACK_BYTES).expect("a buffer is free")
    }

    /// Begin an operation.
    ///
    /// # Panics
    /// When the backend completes something else.
    pub fn submit(&mut self, who: &Arc<Identity>, operation: Operation) -> Token {
        self.last_token += 1;
        let token = self.last_token;
        assert!(self.under_way.insert(token), "tokens are new");
        let request = Request { token, identity: who.clone(), operation };
        if let Some(completion) = self.backend.submit(request) {
            assert_eq!(completion.token, token, "submit completed another request");
            self.arrived(completion);
        }
        token
    }

    /// Turn the crank once; returns what has finished since the last time.
    pub fn turn(&mut self) -> Vec<Completion> {
        self.backend.flush();
        let mut out = Vec::new();
        self.backend.completions(&mut out);
        for completion in out {
            self.arrived(completion);
        }
        std::mem::take(&mut self.finished)
    }

    /// Wait until everything that was submitted has finished.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn drain(&mut self) -> Vec<Completion> {
        let deadline = Instant::now() + PATIENCE;
        let mut all = self.turn();
        while !self.under_way.is_empty() {
            assert!(Instant::now() < deadline, "no completion for {:?}", self.under_way);
            thread::park_timeout(NAP);
            all.extend(self.turn());
        }
        all
    }

    /// Do one operation and wait for its end.
    ///
    /// # Panics
    /// When it does not end, or something else does.
    pub fn call(&mut self, who: &Arc<Identity>, operation: Operation) -> Completion {
        assert!(self.under_way.is_empty(), "one call at a time");
        let token = self.submit(who, operation);
        let mut all = self.drain();
        assert_eq!(all.len(), 1, "one completion for one request");
        let completion = all.remove(0);
        assert_eq!(completion.token, token);
        completion
    }

    fn arrived(&mut self, completion: Completion) {
        let known = self.under_way.remove(&completion.token);
        assert!(known, "completion {} comes twice or was never asked for", completion.token);
        self.finished.push(completion);
    }
}
