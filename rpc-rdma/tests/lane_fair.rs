//! One lane, both transports, and too few buffers: who gets them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use buffers::{Arena, Lease, Pool, PoolLayout, pool::Carver};
use bytes::Bytes;
use rpc_rdma::{
    client::{Procedure, RdmaClient, RdmaClientSettings, ReplyOptions, RpcClient},
    driver::{ConnectionLimits, Lane, LaneHandle, LaneSettings, stream::StreamSettings},
    rpc::{Call, Credential, record::FragmentHeader, reply},
    service::{Begun, Peer, ReplyBudget, Service, Ticket, Transport},
    soft::{ConnectOptions, Fabric, FabricSettings, SoftEndpoint},
    xdr::{Rope, Writer},
};

const LARGE: usize = 1 << 20;
/// Index of the class of large buffers.
const CLASS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(20);
const SINK: Procedure = Procedure { program: 400_000, version: 1, procedure: 1 };

/// Takes data, and notes by which way it came.
struct Sink(Arc<Mutex<Vec<Transport>>>);

impl Service for Sink {
    fn call(&mut self, _: Ticket, peer: &Peer, _: ReplyBudget, call: Call) -> Begun {
        if call.args().payload(LARGE as u32, "data").is_ok_and(|data| data.len() == LARGE) {
            self.0.lock().unwrap().push(peer.transport);
        }
        Begun::Reply(reply::success(call.header.xid).finish())
    }

    fn reply_bulk_bytes(&self, _: &Call) -> usize {
        0
    }

    fn finished(&mut self, _: &mut Vec<(Ticket, Rope)>) {}

    fn flush(&mut self) {}

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        Vec::new()
    }

    fn bulk_offset(&self, start: &[u8]) -> Option<usize> {
        (start.len() >= 44).then_some(44)
    }
}

struct Server {
    _lane: LaneHandle,
    address: SocketAddr,
    fabric: Arc<Fabric>,
    pool: Arc<Pool>,
    came: Arc<Mutex<Vec<Transport>>>,
}

impl Server {
    fn start() -> Self {
        let pool = Pool::standalone(32 << 20);
        // Nobody is hung up in here to make room.
        let patience = Duration::from_secs(60);
        let stream = StreamSettings { stall_timeout_starved: patience, ..Default::default() };
        let settings = LaneSettings { stream, ..settings() };
        let came = Arc::new(Mutex::new(Vec::new()));
        let sink = Sink(came.clone());
        let lane =
            Lane::spawn(settings, pool.clone(), Box::new(move |_| Ok(Box::new(sink)))).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        lane.listen_tcp(listener).unwrap();
        let fabric = Fabric::new(FabricSettings::default());
        lane.add_provider(Box::new(fabric.provider(pool.arena().clone()).unwrap())).unwrap();
        Self { _lane: lane, address, fabric, pool, came }
    }

    fn take_all(&self) -> Vec<Lease> {
        std::iter::from_fn(|| self.pool.take(LARGE)).collect()
    }

    /// So many stand in the line by now.
    fn wait_for(&self, waiting: usize, mut meanwhile: impl FnMut()) {
        let start = Instant::now();
        while self.pool.stats().waiting[CLASS] != waiting {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.pool.stats());
            meanwhile();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn rdma(&self) -> RdmaClient<SoftEndpoint> {
        let settings = RdmaClientSettings::default();
        let peer = "10.77.0.2:700".parse().unwrap();
        let start = Instant::now();
        // The lane may have to read first that it has a device.
        let endpoint = loop {
            let (data, options) = (settings.private_data(true), ConnectOptions::default());
            match self.fabric.connect(peer, &data, options) {
                Ok(endpoint) => break endpoint,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
        };
        let mut client = RdmaClient::new(endpoint, settings);
        // The first reply brings credits.
        let (args, reply) = (data(0), ReplyOptions::message(64));
        client.call_and_wait(SINK, &Credential::None, args, reply, PATIENCE).unwrap();
        client
    }

    /// A TCP connection on which so many bytes of a large call were sent.
    fn tcp(&self, bytes: usize) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut writer = Writer::default();
        for word in [7, 0, 2, SINK.program, SINK.version, SINK.procedure, 0, 0, 0, 0] {
            writer.u32(word);
        }
        writer.opaque(&vec![5; LARGE]);
        let message = writer.finish().flatten();
        let mut record = FragmentHeader::single(message.len()).to_vec();
        record.extend_from_slice(&message);
        record.truncate(bytes);
        stream.write_all(&record).unwrap();
        stream
    }
}

fn settings() -> LaneSettings {
    LaneSettings {
        name: "lane".into(),
        cpu: None,
        spin: Duration::ZERO,
        stream: Default::default(),
        rdma: Default::default(),
        limits: ConnectionLimits::new(100, 100, 100),
    }
}

fn data(len: usize) -> Rope {
    let mut writer = Writer::default();
    writer.payload(Bytes::from(vec![9; len]));
    writer.finish()
}

fn send(client: &mut RdmaClient<SoftEndpoint>, count: usize) {
    for _ in 0..count {
        client.call(SINK, &Credential::None, data(LARGE), ReplyOptions::message(64)).unwrap();
    }
}

#[test]
fn bug_tcp_got_no_buffer_while_rdma_waited_for_some() {
    let server = Server::start();
    let mut rdma = server.rdma();
    let mut held = server.take_all();
    let mut replies = Vec::new();
    send(&mut rdma, 3);
    server.wait_for(3, || rdma.poll(&mut replies).unwrap());
    // It is sent whole only once there is a buffer.
    let tcp = std::thread::scope(|scope| {
        let tcp = scope.spawn(|| {
            let mut stream = server.tcp(usize::MAX);
            stream.read_exact(&mut [0; 28]).unwrap();
        });
        server.wait_for(4, || rdma.poll(&mut replies).unwrap());
        send(&mut rdma, 3);
        server.wait_for(7, || rdma.poll(&mut replies).unwrap());
        // One buffer goes from hand to hand.
        held.pop();
        let start = Instant::now();
        while replies.len() < 6 {
            rdma.poll(&mut replies).unwrap();
            rdma.wait(Duration::from_millis(20));
            assert!(start.elapsed() < PATIENCE);
        }
        tcp.join()
    });
    tcp.unwrap();
    use Transport::{Rdma, Tcp};
    assert_eq!(*server.came.lock().unwrap(), [Rdma, Rdma, Rdma, Tcp, Rdma, Rdma, Rdma]);
    assert!(replies.iter().all(|reply| reply.result.is_ok()));
}

#[test]
fn streams_that_hold_their_share_do_not_keep_rdma_waiting() {
    let server = Server::start();
    let mut rdma = server.rdma();
    let total = server.pool.stats().total[CLASS];
    let halves: Vec<_> = (0..total + 10).map(|_| server.tcp(1000)).collect();
    let start = Instant::now();
    while server.pool.stats().free[CLASS] > total.div_ceil(4) {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.pool.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..20 {
        let reply = ReplyOptions::message(64);
        let patience = Duration::from_secs(5);
        rdma.call_and_wait(SINK, &Credential::None, data(LARGE), reply, patience).unwrap();
    }
    drop(halves);
}

#[test]
fn a_pool_without_large_buffers_makes_no_lane() {
    let arena = Arena::map(8 << 20).unwrap();
    let pool = Carver::new(arena).pool(PoolLayout { counts: [100, 8, 8, 0] });
    let make = Box::new(|_: &_| Ok(Box::new(Sink(Arc::default())) as Box<dyn Service>));
    let refused = Lane::spawn(settings(), pool, make).unwrap_err();
    assert!(refused.to_string().contains("no buffer of 1056768 bytes"), "{refused}");
}
