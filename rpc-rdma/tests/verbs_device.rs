//! The verbs provider against a real device: connect, messages, RDMA Write and Read, faults, removal.
//!
//! Without an RDMA device every test says so and passes. Soft-RoCE is enough; the address to use is that of the
//! first device's IPv4 GID, or the one in `AQUEDUCT_TEST_RDMA_ADDRESS` (iWARP has no such GID). Removal needs root and a soft-RoCE device over the network device named in
//! `AQUEDUCT_TEST_RXE_NETDEV`: `rdma link del rxe0` and back.

#![cfg(feature = "rdma")]

use std::{
    collections::{HashMap, VecDeque},
    net::{Ipv6Addr, SocketAddr},
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use buffers::{Arena, Lease, Pool, PoolLayout, pool::Carver};
use bytes::Bytes;
use rpc_rdma::{
    client::{Access, Endpoint, EndpointEvent, Region},
    verbs::{EndpointSettings, Fabric, FabricSettings, VerbsEndpoint},
    wire::{
        Alarm, Provider, QpDepths, QpId, RdmaRead, RdmaWrite, RemoteMemory, WireEvent, WireFault,
        Work, WorkCompletion,
    },
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const RECEIVES: usize = 16;
const DEADLINE: Duration = Duration::from_secs(20);

static PORT: AtomicUsize = AtomicUsize::new(20_150);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The address of the first device, or `None` with a word about it.
fn device_address() -> Option<std::net::IpAddr> {
    if let Ok(text) = std::env::var("AQUEDUCT_TEST_RDMA_ADDRESS") {
        return Some(text.parse().expect("an IP address"));
    }
    let found = std::fs::read_dir("/sys/class/infiniband").ok().and_then(|devices| {
        devices.flatten().find_map(|device| {
            let gids = std::fs::read_dir(device.path().join("ports/1/gids")).ok()?;
            gids.flatten().find_map(|gid| {
                let text = std::fs::read_to_string(gid.path()).ok()?;
                text.trim().parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()
            })
        })
    });
    if found.is_none() {
        println!("skipped: no RDMA device with an IPv4 address here");
    }
    found.map(Into::into)
}

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the peer wants, in a message: a letter, key, address, length.
fn request(letter: u8, region: &impl Region, len: usize) -> Vec<u8> {
    let mut message = vec![letter];
    message.extend(region.rkey().to_be_bytes());
    message.extend(region.address().to_be_bytes());
    message.extend((len as u32).to_be_bytes());
    message
}

fn parse(message: &[u8]) -> (RemoteMemory, usize) {
    let rkey = u32::from_be_bytes(message[1..5].try_into().unwrap());
    let address = u64::from_be_bytes(message[5..13].try_into().unwrap());
    let len = u32::from_be_bytes(message[13..17].try_into().unwrap());
    (RemoteMemory { rkey, address }, len as usize)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    flushed: AtomicUsize,
    gone: AtomicUsize,
    faults: Mutex<Vec<WireFault>>,
}

struct Connection {
    posted: usize,
    closing: bool,
}

/// A little server on one lane: echoes, and reads or writes what it is asked to.
struct Server {
    provider: Box<dyn Provider + Send>,
    pool: Arc<Pool>,
    connections: HashMap<QpId, Connection>,
    fetches: HashMap<u64, usize>,
    next: u64,
    gone: bool,
    counts: Arc<Counts>,
}

impl Server {
    /// False when the device is gone.
    fn turn(&mut self) -> bool {
        if self.gone {
            return false;
        }
        let mut events = Vec::new();
        self.provider.events(&mut events);
        for event in events {
            match event {
                WireEvent::ConnectRequest(request) if request.private_data.starts_with(b"no") => {
                    self.provider.reject(request.id, b"not you");
                }
                WireEvent::ConnectRequest(request) => {
                    let depths = QpDepths { send_requests: 32, receives: RECEIVES };
                    let (qp, got) = self.provider.prepare(request.id, depths).expect("prepare");
                    assert!(got.send_requests >= 32 && got.receives >= RECEIVES);
                    assert!(request.reads_outstanding_max > 0);
                    for _ in 0..RECEIVES {
                        self.provider.post_receive(qp, self.pool.take(4096).unwrap()).unwrap();
                    }
                    self.connections.insert(qp, Connection { posted: RECEIVES, closing: false });
                    self.counts.open.fetch_add(1, Ordering::SeqCst);
                    let reads = request.reads_outstanding_max;
                    self.provider.accept(qp, b"welcome", reads).expect("accept");
                }
                WireEvent::Established(_) => {}
                WireEvent::Disconnected(qp) | WireEvent::Failed(qp) => self.close(qp),
                WireEvent::DeviceGone => {
                    self.counts.gone.fetch_add(1, Ordering::SeqCst);
                    self.gone = true;
                    return false;
                }
            }
        }
        let mut done = Vec::new();
        self.provider.poll(&mut done, 64);
        for completion in done {
            self.complete(completion);
        }
        self.provider.flush();
        true
    }

    fn close(&mut self, qp: QpId) {
        self.provider.disconnect(qp);
        if let Some(connection) = self.connections.get_mut(&qp) {
            connection.closing = true;
        }
        self.settle(qp, 0);
    }

    /// `back` pieces of work have come back.
    fn settle(&mut self, qp: QpId, back: usize) {
        let Some(connection) = self.connections.get_mut(&qp) else { return };
        connection.posted -= back;
        if connection.closing && connection.posted == 0 {
            self.connections.remove(&qp);
            self.provider.destroy(qp);
            self.counts.open.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn fault(&mut self, qp: QpId, fault: WireFault) {
        if fault != WireFault::Flushed {
            self.counts.faults.lock().unwrap().push(fault);
        }
        self.close(qp);
        self.settle(qp, 1);
    }

    fn complete(&mut self, completion: WorkCompletion) {
        match completion {
            WorkCompletion::Received { qp, buffer, len } => {
                self.settle(qp, 1);
                self.serve(qp, buffer, len);
            }
            WorkCompletion::ReceiveFailed { qp, fault, .. } => {
                if fault == WireFault::Flushed {
                    self.counts.flushed.fetch_add(1, Ordering::SeqCst);
                }
                self.fault(qp, fault);
            }
            WorkCompletion::Replied { qp, result: Err(fault), .. }
            | WorkCompletion::Fetched { qp, result: Err(fault), .. } => self.fault(qp, fault),
            WorkCompletion::Replied { qp, .. } => self.settle(qp, 1),
            WorkCompletion::Fetched { qp, id, sink, .. } => {
                self.settle(qp, 1);
                let len = self.fetches.remove(&id).unwrap();
                let sum: u32 = sink[..len].iter().map(|&b| u32::from(b)).sum();
                let mut reply = self.pool.take(8).unwrap();
                reply[..4].copy_from_slice(&sum.to_be_bytes());
                self.reply(qp, Vec::new(), reply.freeze(0, 4), None);
            }
        }
    }

    fn serve(&mut self, qp: QpId, buffer: Lease, len: usize) {
        if self.connections.get(&qp).is_none_or(|c| c.closing) {
            return;
        }
        self.provider.post_receive(qp, self.pool.take(4096).unwrap()).unwrap();
        self.connections.get_mut(&qp).unwrap().posted += 1;
        let letter = buffer[0];
        match letter {
            b'W' | b'I' => {
                let (remote, bytes) = parse(&buffer[..len]);
                let mut lease = self.pool.take(bytes).unwrap();
                lease[..bytes].copy_from_slice(&pattern(bytes));
                let data = lease.freeze(0, bytes);
                let half = bytes / 2;
                let write = |at: usize, part: Bytes| RdmaWrite {
                    local: part,
                    remote: RemoteMemory { address: remote.address + at as u64, ..remote },
                };
                let writes = vec![write(0, data.slice(..half)), write(half, data.slice(half..))];
                let invalidate = (letter == b'I').then_some(remote.rkey);
                self.reply(qp, writes, buffer.freeze(0, len), invalidate);
            }
            b'R' => {
                let (remote, bytes) = parse(&buffer[..len]);
                let sink = self.pool.take(bytes).unwrap();
                let half = bytes / 2;
                let read = |at: usize, len: usize| RdmaRead {
                    sink_offset: at,
                    len,
                    remote: RemoteMemory { address: remote.address + at as u64, ..remote },
                };
                let reads = vec![read(0, half), read(half, bytes - half)];
                self.next += 1;
                self.fetches.insert(self.next, bytes);
                self.provider.post(qp, self.next, Work::Fetch { sink, reads }).unwrap();
                self.connections.get_mut(&qp).unwrap().posted += 1;
            }
            b'L' => self.leave_in_the_middle(qp, buffer.freeze(0, len)),
            _ => self.reply(qp, Vec::new(), buffer.freeze(0, len), None),
        }
    }

    /// Post an answer and give the queue pair up before the end of the turn.
    fn leave_in_the_middle(&mut self, qp: QpId, answer: Bytes) {
        self.reply(qp, Vec::new(), answer, None);
        self.provider.destroy(qp);
        self.connections.remove(&qp);
        self.counts.open.fetch_sub(1, Ordering::SeqCst);
    }

    fn reply(&mut self, qp: QpId, writes: Vec<RdmaWrite>, send: Bytes, invalidate: Option<u32>) {
        self.next += 1;
        let work = Work::Reply { writes, send, invalidate };
        if self.provider.post(qp, self.next, work).is_ok() {
            self.connections.get_mut(&qp).unwrap().posted += 1;
        }
    }

    fn sleep(&mut self) {
        self.provider.arm(Alarm::Everything);
        if !self.turn() {
            return;
        }
        let fds = self.provider.wake_fds();
        let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
    }
}

struct Running {
    fabric: Option<Fabric>,
    address: SocketAddr,
    counts: Arc<Counts>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(address: std::net::IpAddr, lanes: usize, listen_on_device: bool) -> Self {
        let port = PORT.fetch_add(1, Ordering::SeqCst) as u16;
        let address = SocketAddr::new(address, port);
        let listen = match listen_on_device {
            true => address,
            false => SocketAddr::new("0.0.0.0".parse().unwrap(), port),
        };
        let layout = PoolLayout { counts: [2048, 16, 8, 8] };
        let arena = Arena::map(layout.bytes()).unwrap();
        let pool = Carver::new(arena.clone()).pool(layout);
        let (send, receive) = mpsc::channel();
        let settings = FabricSettings {
            listen: vec![listen],
            devices: Vec::new(),
            arena,
            lanes,
            wait_for_device: false,
        };
        let fabric = Fabric::start(settings, move |lane, provider| {
            send.send((lane, provider)).unwrap();
        })
        .expect("the fabric starts");
        let counts = Arc::new(Counts::default());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (counts, stop) = (counts.clone(), stop.clone());
            move || serve(&receive, &pool, &counts, &stop)
        });
        Self { fabric: Some(fabric), address, counts, stop, thread: Some(thread) }
    }
}

fn serve(
    incoming: &mpsc::Receiver<(usize, Box<dyn Provider + Send>)>,
    pool: &Arc<Pool>,
    counts: &Arc<Counts>,
    stop: &AtomicBool,
) {
    let mut servers: Vec<Server> = Vec::new();
    let free = pool.stats().free;
    while !stop.load(Ordering::SeqCst) {
        while let Ok((_, provider)) = incoming.try_recv() {
            println!("provider {} {:?}", provider.name(), provider.limits());
            servers.push(Server {
                provider,
                pool: pool.clone(),
                connections: HashMap::new(),
                fetches: HashMap::new(),
                next: 0,
                gone: false,
                counts: counts.clone(),
            });
        }
        servers.retain_mut(Server::turn);
        match servers.first_mut() {
            Some(first) => first.sleep(),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    drop(servers);
    assert_eq!(pool.stats().free, free, "every buffer has come back");
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.fabric.take());
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if !thread::panicking() {
                result.expect("the server did not panic");
            }
        }
    }
}

struct Client(VerbsEndpoint, VecDeque<EndpointEvent>);

impl Client {
    fn ask(address: SocketAddr, private_data: &'static [u8]) -> Self {
        let settings = EndpointSettings {
            private_data: Bytes::from_static(private_data),
            message_bytes: 4096,
            receives: 8,
            sends: 8,
            reads_served: 16,
        };
        let mut endpoint = VerbsEndpoint::connect(address, settings).expect("ask for a connection");
        for _ in 0..8 {
            endpoint.post_receive().unwrap();
        }
        Self(endpoint, VecDeque::new())
    }

    fn connect(address: SocketAddr) -> Self {
        let mut client = Self::ask(address, b"hello");
        match client.next() {
            EndpointEvent::Connected { private_data } => {
                assert!(private_data.starts_with(b"welcome"), "{private_data:?}");
            }
            other => panic!("not connected: {other:?}"),
        }
        client
    }

    /// The next event that is not `Sent`.
    fn next(&mut self) -> EndpointEvent {
        self.try_next(DEADLINE).expect("an event within the deadline")
    }

    fn try_next(&mut self, deadline: Duration) -> Option<EndpointEvent> {
        let until = Instant::now() + deadline;
        let mut events = Vec::new();
        while Instant::now() < until {
            self.0.poll(&mut events);
            self.1.extend(events.drain(..).filter(|event| *event != EndpointEvent::Sent));
            if let Some(event) = self.1.pop_front() {
                return Some(event);
            }
            self.0.wait(Duration::from_millis(50));
        }
        None
    }

    fn question(&mut self, message: &[u8]) -> EndpointEvent {
        self.0.send(message).unwrap();
        let event = self.next();
        if matches!(event, EndpointEvent::Received { .. }) {
            self.0.post_receive().unwrap();
        }
        event
    }

    fn answer(&mut self, message: &[u8]) -> Bytes {
        match self.question(message) {
            EndpointEvent::Received { message, .. } => message,
            other => panic!("no answer: {other:?}"),
        }
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < until, "not within the deadline: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn without_a_device_the_reason_is_told() {
    let _alone = alone();
    if std::path::Path::new("/dev/infiniband/rdma_cm").exists() {
        println!("skipped: this machine has RDMA");
        return;
    }
    let arena = Arena::map(1).unwrap();
    let settings = FabricSettings {
        listen: vec!["0.0.0.0:20049".parse().unwrap()],
        devices: Vec::new(),
        arena,
        lanes: 1,
        wait_for_device: false,
    };
    let text = Fabric::start(settings.clone(), |_, _| {}).expect_err("no RDMA here").to_string();
    assert!(text.contains("/dev/infiniband/rdma_cm"), "{text}");
    // Waiting for one is possible, and says what it waits for.
    let waiting = FabricSettings { wait_for_device: true, ..settings };
    let fabric = Fabric::start(waiting, |_, _| {}).unwrap();
    assert!(fabric.status().trouble.is_some_and(|t| t.contains("/dev/infiniband/rdma_cm")));
}

/// What the library lists is what the kernel shows, and asking keeps nothing open.
#[test]
fn the_list_is_that_of_the_kernel() {
    let _alone = alone();
    let before = descriptors_of_devices();
    let listed = rpc_rdma::verbs::list().unwrap();
    if listed.is_empty() {
        println!("skipped: no RDMA device here");
    }
    for device in listed {
        let folder = std::path::Path::new("/sys/class/infiniband").join(&device.name);
        let guid = std::fs::read_to_string(folder.join("node_guid")).unwrap();
        let guid = u64::from_str_radix(&guid.trim().replace(':', ""), 16).unwrap();
        assert_eq!(u64::from_be(device.guid), guid, "{device:?}");
        assert!(device.index.is_some(), "{device:?}");
    }
    // Those of earlier tests may still be closing.
    assert!(descriptors_of_devices() <= before, "the list keeps a device open");
}

fn descriptors_of_devices() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    open.filter(|path| path.starts_with("/dev/infiniband")).count()
}

#[test]
fn messages_go_both_ways() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 2, false);
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(server.address)).collect();
    for round in 0..50_usize {
        for client in &mut clients {
            // Below and above what travels inline.
            let message = vec![b'E'; 1 + round * 80];
            assert_eq!(client.answer(&message), message);
        }
    }
}

#[test]
fn a_refused_peer_hears_why() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    let mut client = Client::ask(server.address, b"no");
    match client.next() {
        EndpointEvent::Rejected { private_data } => assert!(private_data.starts_with(b"not you")),
        other => panic!("{other:?}"),
    }
}

/// Several answers in one call of the device leave in their order.
#[test]
fn answers_of_one_turn_arrive_in_order() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    let mut client = Client::connect(server.address);
    for round in 0..20_u8 {
        (0..4).for_each(|number| client.0.send(&[b'E', round, number]).unwrap());
        for number in 0..4 {
            match client.next() {
                EndpointEvent::Received { message, .. } => {
                    assert_eq!(message, [b'E', round, number][..]);
                }
                other => panic!("no answer: {other:?}"),
            }
            client.0.post_receive().unwrap();
        }
    }
}

/// What waits for the end of the turn when its queue pair goes is not sent, and its memory comes back (the
/// server counts it at its end).
#[test]
fn a_queue_pair_that_goes_before_the_end_of_the_turn_takes_its_answers_along() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    for _ in 0..5 {
        let mut client = Client::connect(server.address);
        match client.question(b"Leave") {
            EndpointEvent::Disconnected | EndpointEvent::Failed(_) => {}
            other => panic!("an answer that was not flushed: {other:?}"),
        }
    }
    eventually("all closed", || server.counts.open.load(Ordering::SeqCst) == 0);
}

#[test]
fn rdma_write_arrives_before_the_message() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    let mut client = Client::connect(server.address);
    let mut region = client.0.register(1 << 20, Access::RemoteWrite).unwrap();
    for len in [2, 4095, 4096, 65_537, 1 << 20] {
        region.write(0, &vec![0; len]);
        client.answer(&request(b'W', &region, len));
        let mut got = vec![0; len];
        region.read(0, &mut got);
        assert!(got == pattern(len), "{len} bytes");
    }
}

#[test]
fn rdma_read_fetches_what_is_there() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    let mut client = Client::connect(server.address);
    let mut region = client.0.register(1 << 20, Access::RemoteRead).unwrap();
    let data = pattern(1 << 20);
    region.write(0, &data);
    for len in [2, 4097, 1 << 20] {
        let sum: u32 = data[..len].iter().map(|&b| u32::from(b)).sum();
        let answer = client.answer(&request(b'R', &region, len));
        assert_eq!(answer[..], sum.to_be_bytes(), "{len} bytes");
    }
}

#[test]
fn a_wrong_key_ends_that_connection_only() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    let mut victim = Client::connect(server.address);
    let mut other = Client::connect(server.address);
    let mut region = victim.0.register(4096, Access::RemoteRead).unwrap();
    let stale = request(b'R', &region, 4096);
    victim.0.refresh(&mut region).unwrap();
    match victim.question(&stale) {
        EndpointEvent::Failed(_) | EndpointEvent::Disconnected => {}
        event => panic!("{event:?}"),
    }
    eventually("the connection is closed", || server.counts.open.load(Ordering::SeqCst) == 1);
    let faults = server.counts.faults.lock().unwrap().clone();
    assert!(
        faults.iter().any(|f| matches!(f, WireFault::RemoteAccess | WireFault::RemoteOperation)),
        "{faults:?}"
    );
    assert_eq!(other.answer(b"Echo"), &b"Echo"[..]);
}

#[test]
fn invalidating_a_plain_region_is_a_remote_fault_not_a_hang() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    let mut client = Client::connect(server.address);
    let region = client.0.register(4096, Access::RemoteWrite).unwrap();
    // A region of user space cannot be invalidated by the peer: devices answer with an error or ignore it.
    match client.question(&request(b'I', &region, 4096)) {
        EndpointEvent::Received { .. } => {}
        EndpointEvent::Failed(_) | EndpointEvent::Disconnected => {
            eventually("closed", || server.counts.open.load(Ordering::SeqCst) == 0);
        }
        event => panic!("{event:?}"),
    }
}

#[test]
fn connects_and_disconnects_many_times() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 2, false);
    for _ in 0..60 {
        let started = Instant::now();
        let mut client = Client::connect(server.address);
        assert_eq!(client.answer(b"Echo"), &b"Echo"[..]);
        client.0.disconnect();
        drop(client);
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
    eventually("all closed", || server.counts.open.load(Ordering::SeqCst) == 0);
    // Every Receive that was still posted has come back.
    assert_eq!(server.counts.flushed.load(Ordering::SeqCst), 60 * RECEIVES);
}

#[test]
fn a_client_that_vanishes_is_noticed() {
    let _alone = alone();
    let Some(address) = device_address() else { return };
    let server = Running::start(address, 1, false);
    for _ in 0..10 {
        let mut client = Client::connect(server.address);
        client.0.send(b"Echo").unwrap();
        drop(client);
    }
    eventually("all closed", || server.counts.open.load(Ordering::SeqCst) == 0);
}

fn link(arguments: &[&str]) {
    let status = Command::new("rdma").arg("link").args(arguments).status().expect("rdma");
    assert!(status.success(), "rdma link {arguments:?}");
}

#[test]
fn a_device_goes_and_comes_back() {
    let _alone = alone();
    let Ok(netdev) = std::env::var("AQUEDUCT_TEST_RXE_NETDEV") else {
        println!("skipped: AQUEDUCT_TEST_RXE_NETDEV names no network device");
        return;
    };
    let Some(address) = device_address() else { return };
    for listen_on_device in [false, true] {
        let server = Running::start(address, 2, listen_on_device);
        for round in 1..=2 {
            let mut client = Client::connect(server.address);
            let traffic = thread::spawn(move || {
                // Until the connection breaks; the client then lets go of its device.
                while client.0.send(b"Echo").is_ok() {
                    match client.try_next(Duration::from_millis(500)) {
                        Some(EndpointEvent::Received { .. }) if client.0.post_receive().is_ok() => {
                        }
                        _ => return,
                    }
                }
            });
            thread::sleep(Duration::from_millis(300));
            let started = Instant::now();
            link(&["del", "rxe0"]);
            assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
            traffic.join().unwrap();
            eventually("both lanes were told", || {
                server.counts.gone.load(Ordering::SeqCst) == 2 * round
            });
            link(&["add", "rxe0", "type", "rxe", "netdev", &netdev]);
            let fabric = server.fabric.as_ref().unwrap();
            eventually("served and listened on again", || {
                let status = fabric.status();
                status.devices.len() == 1 && status.listening.len() == 1
            });
            let mut again = Client::connect(server.address);
            assert_eq!(again.answer(b"Echo"), &b"Echo"[..]);
        }
    }
}
