//! A transport of a few lines: call bytes in, reply bytes out, and every call gets exactly one reply.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use backends::{
    Backend, Capabilities, Completion, LaneBackend, LaneResources, ObjectHandle,
    attr::Timestamp,
    blocking::BlockingPool,
    memory::{Clock, MemoryBackend, MemorySettings},
    op::Request as BackendRequest,
};
use buffers::Pool;
use bytes::Bytes;
use rpc_rdma::{
    rpc::{call, reply::ACCEPTED_BYTES},
    service::{Begun, Peer, ReplyBudget, Service, Ticket, Transport},
    xdr::{Reader, Rope, Writer},
};

use crate::{
    dispatch::{LaneService, Limits, Shared},
    exports::{
        ClientRules, Export, ExportSettings, ExportTable, Exports, HandleKey, Rights, Squash,
    },
};

pub(super) const NFS: u32 = 100_003;
pub(super) const MOUNT: u32 = 100_005;

/// Room as on TCP.
pub(super) const ROOMY: ReplyBudget =
    ReplyBudget { message_bytes_max: (1 << 20) + (64 << 10), direct_bytes_max: None };

pub(super) fn peer(address: &str) -> Peer {
    Peer { address: address.parse::<SocketAddr>().unwrap(), transport: Transport::Tcp }
}

pub(super) fn settings(id: u32, path: &str) -> ExportSettings {
    ExportSettings {
        id,
        path: path.to_owned(),
        origin: format!("memory {path}"),
        read_only: false,
        squash: Squash::None,
        anonymous_uid: 65534,
        anonymous_gid: 65534,
        clients: ClientRules::everyone(Rights::ReadWrite),
        require_reserved_port: false,
    }
}

pub(super) fn memory() -> Arc<MemoryBackend> {
    MemoryBackend::new(MemorySettings {
        clock: Clock::Stepping(Timestamp { seconds: 1_000_000, nanos: 0 }),
        ..MemorySettings::default()
    })
}

pub(super) fn table(exports: Vec<(ExportSettings, Arc<dyn Backend>)>) -> ExportTable {
    let exports = exports.into_iter().map(|(settings, backend)| Export::new(settings, backend));
    ExportTable::new(exports.map(Arc::new).collect()).unwrap()
}

/// The memory backend never uses it, so one does for all tests.
static BLOCKING: OnceLock<Arc<BlockingPool>> = OnceLock::new();

pub(super) fn resources(pool: Arc<Pool>) -> LaneResources {
    LaneResources {
        pool,
        ring: None,
        blocking: Arc::clone(BLOCKING.get_or_init(|| BlockingPool::start(1, 16).unwrap())),
        waker: Waker::noop().clone(),
    }
}

/// A gateway with one lane or more, without sockets.
pub(super) struct Server {
    pub(super) exports: Arc<Exports>,
    pub(super) shared: Arc<Shared>,
    pub(super) lane: LaneService,
    pub(super) pool: Arc<Pool>,
    pub(super) peer: Peer,
    pub(super) budget: ReplyBudget,
    pub(super) ids: (u32, u32),
    next_xid: u32,
    next_ticket: u64,
    answered: HashSet<Ticket>,
}

impl Server {
    /// One export `/data` in memory that anybody may write.
    pub(super) fn new() -> Self {
        Self::serving(vec![(settings(1, "/data"), memory())])
    }

    pub(super) fn serving(exports: Vec<(ExportSettings, Arc<dyn Backend>)>) -> Self {
        let exports = Exports::new(table(exports));
        let shared = Shared::new(Arc::clone(&exports), HandleKey::new([7; 16]), Limits::default());
        let pool = Pool::standalone(16 << 20);
        Self::lane(exports, shared, pool)
    }

    pub(super) fn lane(exports: Arc<Exports>, shared: Arc<Shared>, pool: Arc<Pool>) -> Self {
        let lane = LaneService::new(Arc::clone(&shared), resources(Arc::clone(&pool))).unwrap();
        Self {
            exports,
            shared,
            lane,
            pool,
            peer: peer("10.0.0.1:700"),
            budget: ROOMY,
            ids: (1000, 1000),
            next_xid: 100,
            next_ticket: 1,
            answered: HashSet::new(),
        }
    }

    /// Handle of the root of an export's backend.
    pub(super) fn root(&self, id: u32) -> Bytes {
        let export = Arc::clone(self.exports.load().by_id(id).unwrap());
        let sealed = self.shared.handle_key.seal(id, &export.backend.root());
        Bytes::copy_from_slice(sealed.as_bytes())
    }

    /// The message of a call.
    pub(super) fn message(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        args: impl FnOnce(&mut Writer),
    ) -> Rope {
        self.next_xid += 1;
        let mut writer = Writer::default();
        for word in [self.next_xid, 0, 2, program, version, procedure, 1, 24, 0, 0] {
            writer.u32(word);
        }
        for word in [self.ids.0, self.ids.1, 1, 77, 0, 0] {
            writer.u32(word);
        }
        args(&mut writer);
        writer.finish()
    }

    /// Hand over a message; the reply if it is there at once.
    pub(super) fn hand_over(&mut self, message: Rope) -> (Ticket, Option<Rope>) {
        let call = call::decode(message).unwrap();
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        match self.lane.call(ticket, &self.peer, self.budget, call) {
            Begun::Reply(rope) => {
                assert!(self.answered.insert(ticket), "two replies for one call");
                (ticket, Some(rope))
            }
            Begun::Pending => (ticket, None),
        }
    }

    /// One turn of the lane.
    pub(super) fn turn(&mut self) -> Vec<(Ticket, Rope)> {
        self.lane.flush();
        let mut out = Vec::new();
        self.lane.finished(&mut out);
        for (ticket, _) in &out {
            assert!(self.answered.insert(*ticket), "two replies for one call");
        }
        out
    }

    /// Hand over a message and wait for its reply.
    pub(super) fn exchange(&mut self, message: Rope) -> Rope {
        let (ticket, reply) = self.hand_over(message);
        if let Some(reply) = reply {
            return reply;
        }
        for _ in 0..10 {
            if let Some((_, reply)) = self.turn().into_iter().find(|(other, _)| *other == ticket) {
                return reply;
            }
        }
        panic!("a call without a reply");
    }

    /// An NFSv3 call and its results.
    pub(super) fn nfs(&mut self, procedure: u32, args: impl FnOnce(&mut Writer)) -> Results {
        let message = self.message(NFS, 3, procedure, args);
        Results::of(self.exchange(message))
    }

    /// A MOUNT call and its results.
    pub(super) fn mount(&mut self, procedure: u32, args: impl FnOnce(&mut Writer)) -> Results {
        let message = self.message(MOUNT, 3, procedure, args);
        Results::of(self.exchange(message))
    }

    pub(super) fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<Bytes, u32> {
        let results = self.nfs(3, |w| at(w, directory, name));
        let mut reader = results.reader();
        match reader.u32("status").unwrap() {
            0 => Ok(reader.shared(64, "handle").unwrap()),
            status => Err(status),
        }
    }

    /// CREATE, unchecked, mode 0644.
    pub(super) fn create(&mut self, directory: &[u8], name: &[u8]) -> Result<Bytes, u32> {
        let results = self.nfs(8, |w| {
            at(w, directory, name);
            w.u32(0);
            sattr_mode(w, 0o644);
        });
        results.created()
    }

    pub(super) fn mkdir(&mut self, directory: &[u8], name: &[u8]) -> Result<Bytes, u32> {
        let results = self.nfs(9, |w| {
            at(w, directory, name);
            sattr_mode(w, 0o755);
        });
        results.created()
    }

    pub(super) fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> u32 {
        self.nfs(7, |w| write_args(w, file, offset, data)).status()
    }

    pub(super) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> (Vec<u8>, bool) {
        let results = self.nfs(6, |w| read_args(w, file, offset, count));
        results.data()
    }
}

/// `diropargs3`.
pub(super) fn at(w: &mut Writer, directory: &[u8], name: &[u8]) {
    w.opaque(directory);
    w.opaque(name);
}

/// `sattr3` with a mode only.
pub(super) fn sattr_mode(w: &mut Writer, mode: u32) {
    for word in [1, mode, 0, 0, 0, 0, 0] {
        w.u32(word);
    }
}

pub(super) fn read_args(w: &mut Writer, file: &[u8], offset: u64, count: u32) {
    w.opaque(file);
    w.u64(offset);
    w.u32(count);
}

/// WRITE3args, unstable.
pub(super) fn write_args(w: &mut Writer, file: &[u8], offset: u64, data: &[u8]) {
    w.opaque(file);
    w.u64(offset);
    w.u32(data.len() as u32);
    w.u32(0);
    w.payload(Bytes::copy_from_slice(data));
}

/// The reply of a call that was accepted and carried out.
#[derive(Debug)]
pub(super) struct Results {
    pub(super) rope: Rope,
}

impl Results {
    pub(super) fn of(rope: Rope) -> Self {
        let head: Vec<u32> = words(&rope.head[4..ACCEPTED_BYTES]);
        assert_eq!(head, [1, 0, 0, 0, 0], "accepted and successful");
        Self { rope }
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader::at(&self.rope, ACCEPTED_BYTES)
    }

    pub(super) fn status(&self) -> u32 {
        self.reader().u32("status").unwrap()
    }

    /// Everything behind the RPC header, as words.
    pub(super) fn words(&self) -> Vec<u32> {
        words(&self.rope.flatten()[ACCEPTED_BYTES..])
    }

    pub(super) fn created(&self) -> Result<Bytes, u32> {
        let mut reader = self.reader();
        match reader.u32("status").unwrap() {
            0 => {
                assert!(reader.bool("handle follows").unwrap());
                Ok(reader.shared(64, "handle").unwrap())
            }
            status => Err(status),
        }
    }

    /// Data and end-of-file of a READ.
    pub(super) fn data(&self) -> (Vec<u8>, bool) {
        let mut reader = self.reader();
        assert_eq!(reader.u32("status"), Ok(0));
        post_op(&mut reader);
        let count = reader.u32("count").unwrap();
        let eof = reader.bool("eof").unwrap();
        let data = reader.payload(u32::MAX, "data").unwrap();
        assert_eq!(count as usize, data.len());
        reader.finish().unwrap();
        (data.to_vec(), eof)
    }
}

pub(super) fn words(bytes: &[u8]) -> Vec<u32> {
    assert_eq!(bytes.len() % 4, 0);
    bytes.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

/// `post_op_attr`: the words of `fattr3`.
pub(super) fn post_op(reader: &mut Reader<'_>) -> Option<Vec<u32>> {
    reader
        .bool("attributes follow")
        .unwrap()
        .then(|| (0..21).map(|_| reader.u32("attribute").unwrap()).collect())
}

/// `wcc_data`.
pub(super) fn wcc(reader: &mut Reader<'_>) -> (bool, bool) {
    let before = reader.bool("before").unwrap();
    if before {
        reader.skip(24, "before").unwrap();
    }
    (before, post_op(reader).is_some())
}

/// A backend that keeps what it is asked until the gate opens.
#[derive(Debug)]
pub(super) struct Gated {
    inner: Arc<MemoryBackend>,
    open: AtomicBool,
    held: Mutex<Vec<BackendRequest>>,
    executed: Mutex<Vec<&'static str>>,
}

impl Gated {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: memory(),
            open: AtomicBool::new(true),
            held: Mutex::default(),
            executed: Mutex::default(),
        })
    }

    pub(super) fn open(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
    }

    /// How often this operation was carried out.
    pub(super) fn executed(&self, name: &str) -> usize {
        self.executed.lock().unwrap().iter().filter(|other| **other == name).count()
    }
}

impl Backend for Gated {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn root(&self) -> ObjectHandle {
        self.inner.root()
    }

    fn attach(self: Arc<Self>, _lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
        Ok(Box::new(GatedLane { shared: self }))
    }
}

#[derive(Debug)]
struct GatedLane {
    shared: Arc<Gated>,
}

impl LaneBackend for GatedLane {
    fn submit(&mut self, request: BackendRequest) -> Option<Completion> {
        self.shared.held.lock().unwrap().push(request);
        None
    }

    fn completions(&mut self, out: &mut Vec<Completion>) {
        if self.shared.open.load(Ordering::SeqCst) {
            for request in self.shared.held.lock().unwrap().drain(..) {
                self.shared.executed.lock().unwrap().push(request.operation.name());
                out.push(self.shared.inner.execute(request));
            }
        }
    }
}
