//! The lane's thread: a tokio current-thread runtime whose main task is the reactor.
//!
//! The reactor turns while there is something to do, spins for a short while after that (a sleep and a wake
//! cost more than a small call), and then sleeps on every descriptor that can announce work.

use std::{
    cell::RefCell,
    fmt, io,
    net::TcpListener as StdTcpListener,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Waker,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use buffers::{Pool, pool::SLACK_BYTES};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::LocalSet,
};

use super::{
    core::LaneCore,
    limits::ConnectionLimits,
    rdma::{RdmaSettings, RdmaSide},
    stream::{self, BULK_BYTES_MAX, StreamSettings},
    wait::WaitSet,
    wake::LaneWaker,
};
use crate::{
    log_rate::LogRate,
    service::{Service, Transport},
    wire::Provider,
};

/// What the largest bulk data needs.
const BUFFER_BYTES_MAX: usize = BULK_BYTES_MAX + SLACK_BYTES;
/// Messages to a lane that wait to be read.
const INBOX_MAX: usize = 64;
/// How often timeouts are looked at.
const TICK: Duration = Duration::from_secs(1);

/// How a lane works.
#[derive(Debug, Clone)]
pub struct LaneSettings {
    /// Name of the thread.
    pub name: String,
    /// Core to which the thread is pinned.
    pub cpu: Option<usize>,
    /// How long to look for work before going to sleep.
    pub spin: Duration,
    /// TCP connections.
    pub stream: StreamSettings,
    /// RDMA connections.
    pub rdma: RdmaSettings,
    /// Connections of all lanes.
    pub limits: Arc<ConnectionLimits>,
}

/// What a lane lends to the programs that run on it.
#[derive(Debug, Clone)]
pub struct LaneContext {
    /// Buffer memory of the lane.
    pub pool: Arc<Pool>,
    /// Wakes the lane from any thread.
    pub waker: Waker,
}

/// Makes the lane's programs, on the lane's thread.
pub type MakeService = Box<dyn FnOnce(&LaneContext) -> io::Result<Box<dyn Service>> + Send>;

enum Message {
    Listen(StdTcpListener),
    Provide(Box<dyn Provider + Send>),
    Drain { deadline: Duration, done: oneshot::Sender<()> },
}

/// Starts lanes.
#[derive(Debug)]
pub struct Lane;

/// The other threads' hold on a lane.
pub struct LaneHandle {
    inbox: mpsc::Sender<Message>,
    waker: Arc<LaneWaker>,
    thread: Option<JoinHandle<()>>,
    connections: Arc<AtomicUsize>,
}

impl fmt::Debug for LaneHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneHandle").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl Lane {
    /// Start a lane and wait until its programs are ready.
    ///
    /// # Errors
    /// When the thread or what it needs cannot be had, the pool has no buffer for the largest messages (nobody
    /// would ever get one), or `make_service` fails.
    pub fn spawn(
        settings: LaneSettings,
        pool: Arc<Pool>,
        make_service: MakeService,
    ) -> io::Result<LaneHandle> {
        if pool.class(BUFFER_BYTES_MAX).is_none() {
            return Err(io::Error::other(format!(
                "it has no buffer of {BUFFER_BYTES_MAX} bytes, which the largest messages need"
            )));
        }
        let waker = LaneWaker::new()?;
        let hook = waker.waker();
        pool.on_release(move || hook.wake_by_ref());
        let (inbox, messages) = mpsc::channel(INBOX_MAX);
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let connections = Arc::new(AtomicUsize::new(0));
        let thread = {
            let (waker, connections) = (waker.clone(), connections.clone());
            std::thread::Builder::new().name(settings.name.clone()).spawn(move || {
                let lane = match Running::set_up(settings, pool, waker, make_service) {
                    Ok(lane) => lane,
                    Err(error) => return drop(ready.send(Err(error))),
                };
                let _ = ready.send(Ok(()));
                lane.run(messages, connections);
            })?
        };
        started.recv().map_err(|_| io::Error::other("a lane ended while it started"))??;
        Ok(LaneHandle { inbox, waker, thread: Some(thread), connections })
    }
}

impl LaneHandle {
    /// Accept TCP connections from this listener (each lane has its own, with SO_REUSEPORT).
    ///
    /// # Errors
    /// When the lane has ended.
    pub fn listen_tcp(&self, listener: StdTcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        self.send(Message::Listen(listener))
    }

    /// Serve RDMA connections of this provider.
    ///
    /// # Errors
    /// When the lane has ended.
    pub fn add_provider(&self, provider: Box<dyn Provider + Send>) -> io::Result<()> {
        self.send(Message::Provide(provider))
    }

    /// Take no more calls, finish those under way, close; at the deadline close anyway. The receiver
    /// resolves when it is done.
    ///
    /// # Errors
    /// When the lane has ended.
    pub fn drain(&self, deadline: Duration) -> io::Result<oneshot::Receiver<()>> {
        let (done, finished) = oneshot::channel();
        self.send(Message::Drain { deadline, done })?;
        Ok(finished)
    }

    /// Connections that the lane has now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Wait for the end of the thread. It ends when it has drained.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn send(&self, message: Message) -> io::Result<()> {
        self.inbox
            .try_send(message)
            .map_err(|_| io::Error::other("the lane has ended or is flooded with messages"))?;
        self.waker.waker().wake();
        Ok(())
    }
}

struct Running {
    settings: LaneSettings,
    core: Rc<LaneCore>,
    runtime: tokio::runtime::Runtime,
}

impl Running {
    fn set_up(
        settings: LaneSettings,
        pool: Arc<Pool>,
        waker: Arc<LaneWaker>,
        make_service: MakeService,
    ) -> io::Result<Self> {
        if let Some(cpu) = settings.cpu {
            pin(cpu);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let context = LaneContext { pool: pool.clone(), waker: waker.waker() };
        let service = {
            let _guard = runtime.enter();
            make_service(&context)?
        };
        let rdma = RdmaSide::new(settings.rdma.clone(), settings.limits.clone(), pool.clone());
        let core = LaneCore::new(service, rdma, pool, waker);
        Ok(Self { settings, core, runtime })
    }

    fn run(self, messages: mpsc::Receiver<Message>, connections: Arc<AtomicUsize>) {
        let Self { settings, core, runtime } = self;
        let tasks = LocalSet::new();
        let reactor = Reactor {
            settings,
            core,
            messages,
            listeners: Rc::default(),
            connections,
            ticked_at: Instant::now(),
            draining: None,
        };
        tasks.block_on(&runtime, reactor.run());
    }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "cannot pin the lane to its core");
    }
}

struct Draining {
    until: Instant,
    done: Option<oneshot::Sender<()>>,
}

struct Reactor {
    settings: LaneSettings,
    core: Rc<LaneCore>,
    messages: mpsc::Receiver<Message>,
    listeners: Rc<RefCell<Vec<tokio::task::JoinHandle<()>>>>,
    connections: Arc<AtomicUsize>,
    ticked_at: Instant,
    draining: Option<Draining>,
}

impl Reactor {
    async fn run(mut self) {
        let mut set = WaitSet::default();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut busy_until = Instant::now();
        loop {
            self.core.waker.awake();
            let now = Instant::now();
            let progress = self.core.turn(now) + self.read_messages();
            if now.saturating_duration_since(self.ticked_at) >= TICK {
                // Also when the lane is too busy to sleep.
                self.tick(now);
            }
            if self.drained(now) {
                return;
            }
            if progress > 0 {
                busy_until = now + self.settings.spin;
                tokio::task::yield_now().await;
                continue;
            }
            if now < busy_until {
                tokio::task::yield_now().await;
                continue;
            }
            self.sleep(&mut set, &mut ticks).await;
        }
    }

    /// Sleep until something can have happened.
    async fn sleep(&mut self, set: &mut WaitSet, ticks: &mut tokio::time::Interval) {
        set.watch(self.core.wake_fds());
        self.core.rdma().arm();
        if !self.core.waker.prepare_sleep() || self.core.turn(Instant::now()) > 0 {
            return;
        }
        tokio::select! {
            biased;
            () = self.core.kicked.notified() => {}
            () = set.woken() => {}
            _ = ticks.tick() => self.tick(Instant::now()),
        }
    }

    /// Look at timeouts.
    fn tick(&mut self, now: Instant) {
        self.ticked_at = now;
        self.core.relieve(now);
        self.core.nudge_streams(now);
        let rdma = self.core.rdma().connections();
        self.connections.store(self.core.stream_count() + rdma, Ordering::Relaxed);
    }

    fn read_messages(&mut self) -> usize {
        let mut count = 0;
        while let Ok(message) = self.messages.try_recv() {
            count += 1;
            match message {
                Message::Listen(listener) => self.listen(listener),
                Message::Provide(provider) => self.core.rdma().add_provider(provider),
                Message::Drain { deadline, done } => {
                    self.core.draining.set(true);
                    self.core.rdma().drain();
                    self.listeners.borrow_mut().drain(..).for_each(|task| task.abort());
                    self.core.nudge_streams(Instant::now());
                    let until = Instant::now() + deadline;
                    self.draining = Some(Draining { until, done: Some(done) });
                }
            }
        }
        count
    }

    fn listen(&mut self, listener: StdTcpListener) {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                let task = accept_loop(self.core.clone(), listener, self.settings.clone());
                self.listeners.borrow_mut().push(tokio::task::spawn_local(task));
            }
            Err(error) => tracing::error!(%error, "cannot watch a TCP listener"),
        }
    }

    /// Whether a drain has come to its end.
    fn drained(&mut self, now: Instant) -> bool {
        let Some(draining) = &mut self.draining else { return false };
        let left = self.core.stream_count() + self.core.rdma().connections();
        if left > 0 && now < draining.until {
            return false;
        }
        if left > 0 {
            tracing::warn!(connections = left, "closing connections that did not finish in time");
        }
        if let Some(done) = draining.done.take() {
            let _ = done.send(());
        }
        true
    }
}

async fn accept_loop(core: Rc<LaneCore>, listener: TcpListener, settings: LaneSettings) {
    loop {
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors or memory: the connection stays in the backlog.
                static RATE: LogRate = LogRate::per_second();
                if let Some(left_out) = RATE.next() {
                    tracing::warn!(%error, left_out, "cannot accept a TCP connection");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let admission = match settings.limits.admit(Transport::Tcp, address.ip()) {
            Ok(admission) => admission,
            Err(reason) => {
                static RATE: LogRate = LogRate::per_second();
                if let Some(left_out) = RATE.next() {
                    tracing::warn!(peer = %address, left_out, "refused a TCP connection: {reason}");
                }
                continue;
            }
        };
        tracing::debug!(peer = %address, "TCP connection");
        tokio::task::spawn_local(stream::serve(core.clone(), stream, settings.stream, admission));
    }
}
