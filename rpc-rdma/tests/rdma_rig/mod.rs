//! A server side with a toy program, and clients that speak RPC-over-RDMA by hand, on the soft fabric.

#![allow(dead_code)] // each test file uses its part

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use buffers::{Pool, PoolStats};
use bytes::Bytes;
use rpc_rdma::{
    chunk::{ChunkLists, ReadSegment, Segment, WriteChunk},
    client::{Access, Endpoint, EndpointEvent, Region},
    driver::{
        ConnectionLimits,
        rdma::{DeliveredCall, RdmaSettings, RdmaSide},
    },
    header::{Header, PrivateData, Procedure, ReplyHeader, decode_reply},
    rpc::{self, AcceptError, reply},
    service::{ReplyBudget, Ticket},
    soft::{ConnectOptions, Fabric, FabricSettings, SoftEndpoint, SoftRegion, Violations},
    xdr::{Reader, Rope, Writer},
};

pub const XID: u32 = 0x5a01_c0de;

/// Procedures of the toy program.
pub const NULL: u32 = 0;
/// `count` → `opaque<>` as payload, as much as the budget allows.
pub const READ: u32 = 6;
/// `opaque<>` payload, word → length, sum, word.
pub const WRITE: u32 = 7;
/// `count` → `opaque<>` that is not payload; ignores the budget.
pub const LIST: u32 = 8;
/// As NULL, but the test answers.
pub const HOLD: u32 = 9;
/// `count` → payload of so many bytes, whatever the budget says.
pub const READ_BLINDLY: u32 = 10;
/// READ with payload that does not lie in the arena.
pub const READ_UNREGISTERED: u32 = 11;

/// Two `opaque<>` payloads → their lengths and sums.
pub const WRITE_TWO: u32 = 12;

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

pub fn sum(data: &[u8]) -> u32 {
    data.iter().fold(17, |sum: u32, &b| sum.wrapping_mul(31).wrapping_add(u32::from(b)))
}

/// The server.
pub struct Rig {
    pub fabric: Arc<Fabric>,
    pub pool: Arc<Pool>,
    pub side: RdmaSide,
    pub now: Instant,
    pub held: Vec<Ticket>,
    pub calls: Vec<(u32, ReplyBudget)>,
    idle: PoolStats,
}

impl Default for Rig {
    fn default() -> Self {
        Self::new(FabricSettings::default(), RdmaSettings { credits: 32, ..Default::default() })
    }
}

impl Rig {
    pub fn new(fabric: FabricSettings, settings: RdmaSettings) -> Self {
        Self::with_memory(fabric, settings, 64 << 20)
    }

    pub fn with_memory(fabric: FabricSettings, settings: RdmaSettings, bytes: usize) -> Self {
        Self::with_limits(fabric, settings, bytes, ConnectionLimits::new(0, 1024, 64))
    }

    pub fn with_limits(
        fabric: FabricSettings,
        settings: RdmaSettings,
        bytes: usize,
        limits: Arc<ConnectionLimits>,
    ) -> Self {
        let fabric = Fabric::new(fabric);
        let pool = Pool::standalone(bytes);
        let idle = pool.stats();
        let mut side = RdmaSide::new(settings, limits, pool.clone());
        side.add_provider(Box::new(fabric.provider(pool.arena().clone()).unwrap()));
        let now = Instant::now();
        Self { fabric, pool, side, now, held: Vec::new(), calls: Vec::new(), idle }
    }

    /// One turn of the lane. Returns how much was done.
    pub fn turn(&mut self) -> usize {
        let mut calls = Vec::new();
        let mut progress = self.side.turn(self.now, &mut calls);
        for call in calls {
            progress += 1;
            self.answer(call);
        }
        progress + self.side.flush()
    }

    /// Turn until nothing happens any more.
    pub fn run(&mut self) {
        let mut quiet = 0;
        for _ in 0..200_000 {
            quiet = if self.turn() == 0 { quiet + 1 } else { 0 };
            if quiet == 3 {
                return;
            }
        }
        panic!("the lane never comes to rest");
    }

    /// Let time pass, in steps that timers notice.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(500);
            self.run();
        }
    }

    fn answer(&mut self, delivered: DeliveredCall) {
        let DeliveredCall { ticket, budget, message, .. } = delivered;
        let call = match rpc::call::decode(message) {
            Ok(call) => call,
            Err(rpc::Rejected::Answer(answer)) => return self.side.reply(ticket, answer),
            Err(rpc::Rejected::Drop(_)) => return self.side.abandon(ticket),
        };
        let procedure = call.header.procedure;
        self.calls.push((procedure, budget));
        if procedure == HOLD {
            self.held.push(ticket);
            return;
        }
        let result = self.execute(call.header.xid, procedure, call.args(), &budget);
        let garbage = reply::error(call.header.xid, AcceptError::GarbageArguments);
        self.side.reply(ticket, result.unwrap_or(garbage));
    }

    fn execute(
        &self,
        xid: u32,
        procedure: u32,
        mut args: Reader<'_>,
        budget: &ReplyBudget,
    ) -> Option<Rope> {
        let mut out = reply::success(xid);
        match procedure {
            NULL => {}
            READ | READ_BLINDLY | READ_UNREGISTERED => {
                let mut count = args.u32("count").ok()? as usize;
                if procedure != READ_BLINDLY {
                    count = count.min(budget.bulk_bytes_max(reply::ACCEPTED_BYTES + 8));
                }
                out.payload(self.payload(count, procedure != READ_UNREGISTERED));
                out.u32(0x7a11);
            }
            WRITE => {
                let data = args.payload(1 << 20, "data").ok()?;
                let tail = args.u32("tail").ok()?;
                args.finish().ok()?;
                out.u32(data.len() as u32);
                out.u32(sum(&data));
                out.u32(tail);
            }
            WRITE_TWO => {
                for _ in 0..2 {
                    let data = args.payload(1 << 20, "data").ok()?;
                    out.u32(data.len() as u32);
                    out.u32(sum(&data));
                }
                args.finish().ok()?;
            }
            LIST => out.opaque(&pattern(args.u32("count").ok()? as usize)),
            _ => return Some(reply::error(xid, AcceptError::ProcedureUnavailable)),
        }
        Some(out.finish())
    }

    fn payload(&self, len: usize, registered: bool) -> Bytes {
        // A program that finds no buffer takes ordinary memory; the transport copes.
        let lease = if registered { self.pool.take(len.max(1)) } else { None };
        let Some(mut lease) = lease else { return pattern(len).into() };
        lease[..len].copy_from_slice(&pattern(len));
        lease.freeze(0, len)
    }

    /// Answer what was held.
    pub fn release(&mut self) {
        for ticket in std::mem::take(&mut self.held) {
            // The xid does not matter to the transport.
            self.side.reply(ticket, reply::success(XID).finish());
        }
        self.side.flush();
    }

    pub fn connect(&mut self) -> Client {
        self.connect_as("10.77.0.2:777", ConnectOptions::default(), linux())
    }

    pub fn connect_as(
        &mut self,
        peer: &str,
        options: ConnectOptions,
        private_data: PrivateData,
    ) -> Client {
        let mut client = self.knock(peer, options, &private_data.encode());
        self.run();
        client.poll();
        assert!(client.private_data.is_some(), "not accepted: {:?}", client.end);
        client
    }

    pub fn knock(&mut self, peer: &str, options: ConnectOptions, private_data: &[u8]) -> Client {
        let peer: SocketAddr = peer.parse().unwrap();
        let endpoint = self.fabric.connect(peer, private_data, options).unwrap();
        Client::new(endpoint)
    }

    /// Every buffer is back, nobody is connected, and the fabric saw nothing wrong.
    pub fn assert_clean(&mut self) {
        self.run();
        assert_eq!(self.side.connections(), 0);
        assert_eq!(self.pool.stats().free, self.idle.free, "buffers leaked");
        self.assert_correct();
    }

    pub fn assert_correct(&self) {
        assert_eq!(self.fabric.violations(), Violations::default());
        assert_eq!(self.side.stats().counters.receiver_not_ready, 0);
    }
}

/// What a Linux client says when it connects.
pub fn linux() -> PrivateData {
    PrivateData { invalidate: true, send_bytes: 4096, receive_bytes: 4096 }
}

/// A client that writes its own headers.
pub struct Client {
    pub endpoint: SoftEndpoint,
    pub private_data: Option<PrivateData>,
    pub received: Vec<(Bytes, Option<u32>)>,
    pub end: Option<EndpointEvent>,
    next_xid: u32,
}

/// A reply, taken apart.
pub struct Answer {
    pub header: Header,
    pub body: Bytes,
    pub invalidated: Option<u32>,
    pub bytes: usize,
}

impl Client {
    fn new(endpoint: SoftEndpoint) -> Self {
        let received = Vec::new();
        Self { endpoint, private_data: None, received, end: None, next_xid: XID }
    }

    pub fn poll(&mut self) {
        let mut events = Vec::new();
        self.endpoint.poll(&mut events);
        for event in events {
            match event {
                EndpointEvent::Connected { private_data } => {
                    self.private_data = PrivateData::find(&private_data);
                }
                EndpointEvent::Received { message, invalidated } => {
                    self.received.push((message, invalidated));
                }
                EndpointEvent::Sent => {}
                end => self.end = Some(end),
            }
        }
    }

    pub fn xid(&mut self) -> u32 {
        self.next_xid = self.next_xid.wrapping_add(1);
        self.next_xid
    }

    /// Send raw words, with a Receive for the answer.
    pub fn send(&mut self, message: &[u8]) {
        let _ = self.endpoint.post_receive();
        let _ = self.endpoint.send(message);
    }

    /// Send and take what comes back.
    pub fn exchange(&mut self, rig: &mut Rig, message: &[u8]) -> Vec<Bytes> {
        self.send(message);
        rig.run();
        self.poll();
        std::mem::take(&mut self.received).into_iter().map(|(message, _)| message).collect()
    }

    /// One inline call that must be answered.
    pub fn call(&mut self, rig: &mut Rig, lists: ChunkLists, message: &[u8]) -> Answer {
        let xid = u32::from_be_bytes(message[..4].try_into().unwrap());
        self.send(&inline(xid, lists, message));
        self.answer(rig)
    }

    /// The one answer that is expected now.
    pub fn answer(&mut self, rig: &mut Rig) -> Answer {
        rig.run();
        self.poll();
        assert_eq!(self.received.len(), 1, "one answer; end: {:?}", self.end);
        let (message, invalidated) = self.received.remove(0);
        let (header, at) = decode_reply(&Rope::inline(message.clone())).unwrap();
        let ReplyHeader::Message(header) = header else { panic!("an error: {header:?}") };
        let bytes = message.len();
        Answer { header, body: message.slice(at..), invalidated, bytes }
    }

    pub fn ping(&mut self, rig: &mut Rig) {
        let xid = self.xid();
        let answer = self.call(rig, ChunkLists::default(), &call(xid, NULL, |_| {}));
        assert_eq!((answer.header.xid, answer.body.len()), (xid, reply::ACCEPTED_BYTES));
    }

    pub fn source(&mut self, data: &[u8]) -> SoftRegion {
        let mut region = self.endpoint.register(data.len(), Access::RemoteRead).unwrap();
        region.write(0, data);
        region
    }

    pub fn target(&mut self, len: usize) -> SoftRegion {
        self.endpoint.register(len, Access::RemoteWrite).unwrap()
    }

    pub fn alive(&mut self) -> bool {
        self.poll();
        self.end.is_none()
    }
}

impl Answer {
    /// Reader behind the RPC header, which must say success.
    pub fn results(&self) -> Rope {
        results(&self.body)
    }

    pub fn procedure(&self) -> Procedure {
        self.header.procedure
    }
}

/// Results of a successful RPC reply.
pub fn results(message: &Bytes) -> Rope {
    assert_eq!(message[4..24], words(&[1, 0, 0, 0, 0])[..], "not a success");
    Rope::inline(message.slice(24..))
}

/// The status of an accepted RPC reply.
pub fn status(message: &Bytes) -> u32 {
    u32::from_be_bytes(message[20..24].try_into().unwrap())
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An RPC call with AUTH_NONE.
pub fn call(xid: u32, procedure: u32, args: impl FnOnce(&mut Writer)) -> Vec<u8> {
    call_rope(xid, procedure, args).flatten()
}

pub fn call_rope(xid: u32, procedure: u32, args: impl FnOnce(&mut Writer)) -> Rope {
    let mut out = Writer::default();
    for word in [xid, 0, 2, 400_100, 3, procedure, 0, 0, 0, 0] {
        out.u32(word);
    }
    args(&mut out);
    out.finish()
}

/// An RDMA_MSG.
pub fn inline(xid: u32, lists: ChunkLists, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Header { xid, credits: 128, procedure: Procedure::Message, lists }.encode(&mut out);
    out.extend_from_slice(message);
    out
}

/// An RDMA_NOMSG.
pub fn nomsg(xid: u32, lists: ChunkLists) -> Vec<u8> {
    let mut out = Vec::new();
    Header { xid, credits: 128, procedure: Procedure::NoMessage, lists }.encode(&mut out);
    out
}

/// `len` bytes of a region from `at`, as a segment.
pub fn segment(region: &SoftRegion, at: usize, len: usize) -> Segment {
    Segment { handle: region.rkey(), length: len as u32, offset: region.address() + at as u64 }
}

/// A whole region in segments of at most `each` bytes.
pub fn segments(region: &SoftRegion, each: usize) -> Vec<Segment> {
    let starts = (0..region.len()).step_by(each);
    starts.map(|at| segment(region, at, each.min(region.len() - at))).collect()
}

pub fn read_list(position: usize, segments: Vec<Segment>) -> Vec<ReadSegment> {
    let position = position as u32;
    segments.into_iter().map(|segment| ReadSegment { position, segment }).collect()
}

pub fn write_list(segments: Vec<Segment>) -> ChunkLists {
    ChunkLists { write: vec![WriteChunk { segments }], ..ChunkLists::default() }
}

pub fn reply_chunk(segments: Vec<Segment>) -> ChunkLists {
    ChunkLists { reply: Some(WriteChunk { segments }), ..ChunkLists::default() }
}

pub fn contents(region: &SoftRegion, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    region.read(0, &mut bytes);
    bytes
}

/// ERR_CHUNK for a call.
pub fn err_chunk(xid: u32, credits: u32) -> Vec<u8> {
    words(&[xid, 1, credits, 4, 2])
}
