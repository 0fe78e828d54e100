//! The clients against a scripted responder.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::Duration,
};

use buffers::Pool;
use bytes::Bytes;

use super::*;
use crate::{
    chunk::{ReadSegment, WriteChunk},
    header::{self, Header, PrivateData, Procedure as HeaderProcedure, encode_chunk_error},
    rpc::{Credential, call, reply},
    soft::{ConnectOptions, Fabric, FabricSettings, SoftEndpoint, SoftProvider, Violations},
    wire::{
        Provider, QpDepths, QpId, RdmaRead, RdmaWrite, RemoteMemory, WireEvent, Work,
        WorkCompletion,
    },
    xdr::{Piece, Rope, Writer},
};

const ECHO: Procedure = Procedure { program: 400_001, version: 1, procedure: 7 };
const SERVER: PrivateData = PrivateData { invalidate: true, send_bytes: 4096, receive_bytes: 4096 };

/// A call as the responder sees it.
struct Seen {
    header: Header,
    send_bytes: usize,
    message: Rope,
}

impl Seen {
    /// The bulk argument.
    fn data(&self) -> Bytes {
        call::decode(self.message.clone()).unwrap().args().payload(1 << 20, "data").unwrap()
    }
}

/// One connection with a client on one end and a script on the other.
struct Rig {
    fabric: Arc<Fabric>,
    pool: Arc<Pool>,
    server: SoftProvider,
    qp: QpId,
    client: RdmaClient<SoftEndpoint>,
}

impl Rig {
    fn new(settings: RdmaClientSettings) -> Self {
        Self::with(settings, FabricSettings::default(), ConnectOptions::default(), 32)
    }

    fn with(
        settings: RdmaClientSettings,
        fabric: FabricSettings,
        options: ConnectOptions,
        receives: usize,
    ) -> Self {
        let fabric = Fabric::new(fabric);
        let pool = Pool::standalone(16 << 20);
        let mut server = fabric.provider(pool.arena().clone()).unwrap();
        let private_data = settings.private_data(true);
        let peer = "10.77.0.2:0".parse().unwrap();
        let endpoint = fabric.connect(peer, &private_data, options).unwrap();
        let mut events = Vec::new();
        server.events(&mut events);
        let [WireEvent::ConnectRequest(request)] = &events[..] else { panic!("{events:?}") };
        let data = PrivateData::find(&request.private_data).unwrap();
        assert_eq!(data.receive_bytes, settings.receive_bytes);
        let depths = QpDepths { send_requests: 64, receives: 32 };
        let (qp, _) = server.prepare(request.id, depths).unwrap();
        for _ in 0..receives {
            server.post_receive(qp, pool.take(4096).unwrap()).unwrap();
        }
        server.accept(qp, &SERVER.encode(), 16).unwrap();
        Self { fabric, pool, server, qp, client: RdmaClient::new(endpoint, settings) }
    }

    fn call(&mut self, data: usize, reply: ReplyOptions) -> u32 {
        let mut args = Writer::default();
        args.payload(pattern(data));
        self.client.call(ECHO, &Credential::None, args.finish(), reply).unwrap()
    }

    fn completions(&mut self) -> Vec<WorkCompletion> {
        let mut done = Vec::new();
        self.server.poll(&mut done, 64);
        done
    }

    /// The calls that have come, with their Read chunks pulled.
    fn calls(&mut self) -> Vec<Seen> {
        let mut calls = Vec::new();
        for done in self.completions() {
            match done {
                WorkCompletion::Received { buffer, len, .. } => {
                    let send = buffer.freeze(0, len);
                    let (header, at) = header::decode(&Rope::inline(send.clone())).unwrap();
                    let body = send.slice(at..);
                    self.server.post_receive(self.qp, self.pool.take(4096).unwrap()).unwrap();
                    let message = self.assemble(&header, body);
                    calls.push(Seen { header, send_bytes: send.len(), message });
                }
                WorkCompletion::Replied { result, .. } => result.unwrap(),
                other => panic!("{other:?}"),
            }
        }
        calls
    }

    fn assemble(&mut self, header: &Header, body: Bytes) -> Rope {
        let Some(first) = header.lists.read.first() else { return Rope::inline(body) };
        assert!(header.lists.read.iter().all(|r| r.position == first.position));
        let data = self.pull(&header.lists.read);
        match header.procedure {
            HeaderProcedure::NoMessage => {
                assert_eq!((first.position, body.len()), (0, 0));
                Rope::inline(data)
            }
            HeaderProcedure::Message => Rope {
                head: body,
                pieces: vec![Piece { at: first.position as usize, data: data.into() }],
            },
        }
    }

    fn pull(&mut self, segments: &[ReadSegment]) -> Bytes {
        let mut at = 0;
        let mut reads = Vec::new();
        for ReadSegment { segment, .. } in segments {
            let remote = RemoteMemory { rkey: segment.handle, address: segment.offset };
            let len = segment.length as usize;
            reads.push(RdmaRead { sink_offset: at, len, remote });
            at += len;
        }
        let sink = self.pool.take(at).unwrap();
        self.server.post(self.qp, 1, Work::Fetch { sink, reads }).unwrap();
        self.server.flush();
        let done = self.completions().pop().unwrap();
        let WorkCompletion::Fetched { sink, result: Ok(()), .. } = done else { panic!("{done:?}") };
        sink.freeze(0, at)
    }

    fn registered(&self, data: &[u8]) -> Bytes {
        let mut lease = self.pool.take(data.len()).unwrap();
        lease[..data.len()].copy_from_slice(data);
        lease.freeze(0, data.len())
    }

    /// RDMA Writes of `data` into a chunk, and the chunk as it is echoed.
    fn fill(&self, chunk: &WriteChunk, data: &[u8]) -> (Vec<RdmaWrite>, WriteChunk) {
        let mut echoed = chunk.unused();
        let mut writes = Vec::new();
        let mut rest = data;
        for (segment, echoed) in chunk.segments.iter().zip(&mut echoed.segments) {
            let (now, after) = rest.split_at(rest.len().min(segment.length as usize));
            if !now.is_empty() {
                let remote = RemoteMemory { rkey: segment.handle, address: segment.offset };
                writes.push(RdmaWrite { local: self.registered(now), remote });
            }
            echoed.length = now.len() as u32;
            rest = after;
        }
        assert!(rest.is_empty(), "the chunk is too small");
        (writes, echoed)
    }

    fn send(&mut self, writes: Vec<RdmaWrite>, message: &[u8], invalidate: Option<u32>) {
        let send = self.registered(message);
        self.server.post(self.qp, 2, Work::Reply { writes, send, invalidate }).unwrap();
        self.server.flush();
    }

    /// Answer with `data` as bulk result, by whatever the client has offered.
    fn answer(&mut self, call: &Seen, data: &[u8], invalidate: Option<u32>) {
        let mut message = reply::success(call.header.xid);
        message.payload(Bytes::copy_from_slice(data));
        let message = message.finish();
        let mut header = call.header.clone();
        header.lists.read.clear();
        header.credits = 32;
        header.procedure = HeaderProcedure::Message;
        let mut writes = Vec::new();
        let mut body = message.flatten();
        if let Some(chunk) = header.lists.write.first().cloned() {
            let (w, echoed) = self.fill(&chunk, data);
            (writes, header.lists.write[0]) = (w, echoed);
            body = message.head.to_vec();
        } else if let Some(chunk) = header.lists.reply.clone() {
            let (w, echoed) = self.fill(&chunk, &body);
            (writes, header.lists.reply) = (w, Some(echoed));
            header.procedure = HeaderProcedure::NoMessage;
            body.clear();
        }
        let mut out = Vec::new();
        header.encode(&mut out);
        out.extend(body);
        self.send(writes, &out, invalidate);
    }

    fn replies(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        self.client.poll(&mut replies).unwrap();
        replies
    }

    /// The bulk data of the one reply.
    fn reply_data(&mut self, xid: u32) -> Bytes {
        let reply = self.replies().pop().unwrap();
        assert_eq!(reply.xid, xid);
        let rope = reply.result.unwrap();
        let mut results = results(&rope).unwrap();
        let data = results.payload(1 << 20, "data").unwrap();
        results.finish().unwrap();
        data
    }
}

fn pattern(len: usize) -> Bytes {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<_>>().into()
}

fn up(settings: RdmaClientSettings) -> Rig {
    let mut rig = Rig::new(settings);
    assert!(rig.replies().is_empty() && rig.client.is_up());
    rig
}

/// A whole exchange; returns the call as the responder saw it.
fn exchange(rig: &mut Rig, call_bytes: usize, reply: ReplyOptions, reply_bytes: usize) -> Seen {
    let xid = rig.call(call_bytes, reply);
    let seen = rig.calls().pop().unwrap();
    assert_eq!(seen.header.xid, xid);
    assert_eq!(seen.data(), pattern(call_bytes));
    let data = pattern(reply_bytes);
    rig.answer(&seen, &data, None);
    assert_eq!(rig.reply_data(xid), data);
    rig.completions();
    seen
}

#[test]
fn small_calls_and_replies_go_inline() {
    let mut rig = up(RdmaClientSettings::default());
    let seen = exchange(&mut rig, 100, ReplyOptions::message(200), 50);
    assert_eq!(seen.header.lists, Default::default());
    assert_eq!(seen.header.credits, 128);
    assert_eq!(seen.send_bytes, 28 + 40 + 4 + 100);
}

#[test]
fn a_long_argument_goes_by_a_read_chunk_without_padding() {
    let mut rig = up(RdmaClientSettings::default());
    let seen = exchange(&mut rig, 300_001, ReplyOptions::message(200), 50);
    let lengths: Vec<_> = seen.header.lists.read.iter().map(|r| r.segment.length).collect();
    assert_eq!(lengths, [131_072, 131_072, 37_857]);
    assert!(seen.header.lists.read.iter().all(|r| r.position == 44));
    let shape = Shape { read_padding: true, ..Shape::default() };
    rig.client.set_shape(shape);
    let seen = exchange(&mut rig, 5001, ReplyOptions::message(200), 50);
    assert_eq!(seen.header.lists.read[0].segment.length, 5004);
}

#[test]
fn a_long_result_comes_by_a_write_chunk_with_its_pad_segment() {
    let mut rig = up(RdmaClientSettings::default());
    for (offered, returned) in [(300_001, 300_001), (300_001, 140_000), (300_001, 0)] {
        let seen = exchange(&mut rig, 4, ReplyOptions::bulk(128, offered), returned);
        let [chunk] = &seen.header.lists.write[..] else { panic!() };
        let lengths: Vec<_> = chunk.segments.iter().map(|s| s.length).collect();
        assert_eq!(lengths, [131_072, 131_072, 37_857, 4]);
        assert!(seen.header.lists.reply.is_none());
    }
    let seen = exchange(&mut rig, 4, ReplyOptions::bulk(128, 8192), 8192);
    assert_eq!(seen.header.lists.write[0].segments.len(), 1);
}

#[test]
fn a_long_reply_comes_by_a_reply_chunk() {
    let mut rig = up(RdmaClientSettings::default());
    let seen = exchange(&mut rig, 4, ReplyOptions::message(10_000), 9_000);
    assert_eq!(seen.header.lists.reply.unwrap().capacity(), 10_000);
    assert!(seen.header.lists.write.is_empty());
}

#[test]
fn any_shape_can_be_asked_for() {
    let mut rig = up(RdmaClientSettings::default());
    for call in [CallForm::Inline, CallForm::ReadChunk, CallForm::PositionZero] {
        for reply in [ReplyForm::Inline, ReplyForm::WriteChunk, ReplyForm::ReplyChunk] {
            let shape = Shape {
                call: Some(call),
                reply: Some(reply),
                segment_bytes_max: 100,
                ..Shape::default()
            };
            rig.client.set_shape(shape);
            let seen = exchange(&mut rig, 301, ReplyOptions::bulk(64, 301), 299);
            let lists = seen.header.lists;
            let segments = match call {
                CallForm::Inline => 0,
                CallForm::ReadChunk => 4,
                CallForm::PositionZero => 4,
            };
            assert_eq!(lists.read.len(), segments, "{call:?}");
            assert_eq!(lists.write.len(), usize::from(reply == ReplyForm::WriteChunk));
            assert_eq!(lists.reply.is_some(), reply == ReplyForm::ReplyChunk);
        }
    }
}

#[test]
fn credits_limit_what_is_sent() {
    let mut rig = up(RdmaClientSettings { credits: 3, ..RdmaClientSettings::default() });
    let xids: Vec<_> = (0..5).map(|_| rig.call(4, ReplyOptions::message(100))).collect();
    let first = rig.calls();
    assert_eq!(first.len(), 1, "one credit before the first reply");
    rig.answer(&first[0], b"", None);
    assert_eq!(rig.reply_data(xids[0]), Bytes::new());
    assert_eq!(rig.client.granted(), 3);
    let next = rig.calls();
    assert_eq!(next.len(), 3);
    rig.answer(&next[1], b"", None);
    assert_eq!(rig.reply_data(xids[2]), Bytes::new());
    assert_eq!(rig.calls().len(), 1);
    assert_eq!(rig.client.outstanding(), 3);
}

#[test]
fn a_client_may_ignore_its_credits() {
    let settings = RdmaClientSettings { heed_credits: false, ..RdmaClientSettings::default() };
    let mut rig = up(settings);
    for _ in 0..20 {
        rig.call(4, ReplyOptions::message(100));
    }
    assert_eq!(rig.calls().len(), 20);
}

#[test]
fn a_full_send_queue_holds_calls_back_and_loses_none() {
    let settings = RdmaClientSettings { heed_credits: false, ..RdmaClientSettings::default() };
    let fabric = FabricSettings { server_rnr_retry: 7, ..FabricSettings::default() };
    let options = ConnectOptions { sends_max: 1, ..ConnectOptions::default() };
    let mut rig = Rig::with(settings, fabric, options, 0);
    rig.replies();
    let xids: Vec<_> = (0..4).map(|_| rig.call(4, ReplyOptions::message(100))).collect();
    let mut seen = Vec::new();
    for _ in 0..4 {
        assert_eq!(rig.client.outstanding(), 4);
        rig.server.post_receive(rig.qp, rig.pool.take(4096).unwrap()).unwrap();
        for done in rig.completions() {
            let WorkCompletion::Received { buffer, len, .. } = done else { panic!("{done:?}") };
            let message = Rope::inline(buffer.freeze(0, len));
            seen.push(header::decode(&message).unwrap().0.xid);
        }
        assert!(rig.replies().is_empty());
    }
    assert_eq!(seen, xids);
}

#[test]
fn keys_change_with_every_use_and_survive_invalidation() {
    for new_keys in [true, false] {
        let mut rig = up(RdmaClientSettings { new_keys, ..RdmaClientSettings::default() });
        let mut keys = Vec::new();
        for _ in 0..3 {
            let xid = rig.call(4, ReplyOptions::bulk(128, 8192));
            let seen = rig.calls().pop().unwrap();
            let key = seen.header.lists.sole_handle().unwrap();
            keys.push(key);
            rig.answer(&seen, &pattern(8192), Some(key));
            assert_eq!(rig.reply_data(xid), pattern(8192));
            rig.calls();
        }
        keys.dedup();
        assert_eq!(keys.len(), 3, "an invalidated key is never used again");
    }
    let mut rig = up(RdmaClientSettings { new_keys: false, ..RdmaClientSettings::default() });
    let first = exchange(&mut rig, 4, ReplyOptions::bulk(128, 8192), 8192);
    let second = exchange(&mut rig, 4, ReplyOptions::bulk(128, 8192), 8192);
    assert_eq!(first.header.lists, second.header.lists);
}

#[test]
fn errors_of_the_transport_end_the_call_only() {
    let mut rig = up(RdmaClientSettings::default());
    let xid = rig.call(4, ReplyOptions::message(100));
    rig.calls();
    let mut out = Vec::new();
    encode_chunk_error(&mut out, xid, 32);
    rig.send(Vec::new(), &out, None);
    assert_eq!(rig.replies(), [Reply { xid, result: Err(CallFault::Chunk) }]);
    rig.completions();
    exchange(&mut rig, 4, ReplyOptions::message(100), 4);
    let xid = rig.call(4, ReplyOptions::message(100));
    rig.calls();
    out.clear();
    header::encode_version_error(&mut out, xid, 1, 32);
    rig.send(Vec::new(), &out, None);
    let result = Err(CallFault::Version { low: 1, high: 1 });
    assert_eq!(rig.replies(), [Reply { xid, result }]);
}

#[test]
fn breaches_of_the_protocol_are_told() {
    /// Changes a correct reply header.
    type Spoil = fn(&mut Header);
    let spoils: [Spoil; 6] = [
        |h| h.lists.write[0].segments[0].handle += 1,
        |h| h.lists.write[0].segments[0].length += 1,
        |h| drop(h.lists.write.pop()),
        |h| h.lists.write[0].segments.truncate(1),
        |h| h.lists.write[0].segments[1].length = 1,
        |h| h.credits = 0,
    ];
    for (i, spoil) in spoils.into_iter().enumerate() {
        let mut rig = up(RdmaClientSettings::default());
        let xid = rig.call(4, ReplyOptions::bulk(128, 8191));
        let call = rig.calls().pop().unwrap();
        let mut header = call.header.clone();
        header.credits = 1;
        header.lists.write[0].segments[0].length = 8191;
        header.lists.write[0].segments[1].length = 0;
        if i == 4 {
            header.lists.write[0].segments[0].length = 5;
        }
        spoil(&mut header);
        let mut out = Vec::new();
        header.encode(&mut out);
        out.extend(reply::success(xid).finish().head);
        rig.send(Vec::new(), &out, None);
        let got = rig.replies().pop().unwrap().result;
        assert!(matches!(got, Err(CallFault::Protocol(_))), "spoil {i}: {got:?}");
    }
}

#[test]
fn a_disconnect_ends_every_call_once() {
    let mut rig = up(RdmaClientSettings::default());
    let xids: Vec<_> = (0..3).map(|_| rig.call(4, ReplyOptions::message(100))).collect();
    rig.server.disconnect(rig.qp);
    let replies = rig.replies();
    assert_eq!(replies.iter().map(|r| r.xid).collect::<Vec<_>>(), xids);
    assert!(replies.iter().all(|r| r.result == Err(CallFault::Disconnected)));
    let mut out = Vec::new();
    assert!(matches!(rig.client.poll(&mut out), Err(ClientError::Disconnected)));
    let args = Rope::default();
    let call = rig.client.call(ECHO, &Credential::None, args, ReplyOptions::message(100));
    assert!(matches!(call, Err(ClientError::Disconnected)));
}

#[test]
fn raw_messages_and_their_answers_pass_through() {
    let mut rig = up(RdmaClientSettings::default());
    rig.client.send_raw(b"nonsense").unwrap();
    let done = rig.completions();
    assert!(matches!(done[..], [WorkCompletion::Received { len: 8, .. }]));
    rig.send(Vec::new(), b"answer", None);
    assert!(rig.replies().is_empty());
    assert_eq!(rig.client.take_unmatched(), [Bytes::from_static(b"answer")]);
    assert_eq!(rig.fabric.violations(), Violations::default());
}

fn tcp_pair(settings: TcpClientSettings) -> (TcpClient, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpClient::connect(listener.local_addr().unwrap(), settings).unwrap();
    (client, listener.accept().unwrap().0)
}

/// One record of whole fragments; returns it and how many there were.
fn read_record(stream: &mut TcpStream) -> (Vec<u8>, usize) {
    let mut record = Vec::new();
    for fragments in 1.. {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mark = u32::from_be_bytes(mark);
        let at = record.len();
        record.resize(at + (mark & !(1 << 31)) as usize, 0);
        stream.read_exact(&mut record[at..]).unwrap();
        if mark >> 31 == 1 {
            return (record, fragments);
        }
    }
    unreachable!()
}

fn tcp_call(client: &mut TcpClient, data: usize) -> u32 {
    let mut args = Writer::default();
    args.payload(pattern(data));
    let reply = ReplyOptions::message(100);
    client.call(ECHO, &Credential::None, args.finish(), reply).unwrap()
}

#[test]
fn tcp_calls_are_pipelined_and_replies_may_come_out_of_order_in_fragments() {
    let (mut client, mut server) = tcp_pair(TcpClientSettings::default());
    let xids = [tcp_call(&mut client, 5), tcp_call(&mut client, 6)];
    let mut replies = Vec::new();
    client.poll(&mut replies).unwrap();
    for (xid, len) in xids.into_iter().zip([5, 6]) {
        let (record, fragments) = read_record(&mut server);
        let call = call::decode(Rope::inline(record)).unwrap();
        assert_eq!((call.header.xid, fragments), (xid, 1));
        assert_eq!(call.args().payload(10, "data").unwrap(), pattern(len));
    }
    let mut wire = Vec::new();
    for xid in [xids[1], xids[0]] {
        let reply = reply::success(xid).finish().flatten();
        wire.extend(10_u32.to_be_bytes());
        wire.extend(&reply[..10]);
        wire.extend((14 | 1_u32 << 31).to_be_bytes());
        wire.extend(&reply[10..]);
    }
    wire.extend((4 | 1_u32 << 31).to_be_bytes());
    wire.extend(b"what");
    for byte in wire {
        server.write_all(&[byte]).unwrap();
        client.wait(Duration::from_secs(1));
        client.poll(&mut replies).unwrap();
    }
    assert_eq!(replies.iter().map(|r| r.xid).collect::<Vec<_>>(), [xids[1], xids[0]]);
    assert!(replies.iter().all(|r| results(r.result.as_ref().unwrap()).is_ok()));
    assert_eq!(client.take_unmatched(), [Bytes::from_static(b"what")]);
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn tcp_calls_can_be_cut_into_fragments() {
    let settings = TcpClientSettings { fragments_seed: Some(3), ..TcpClientSettings::default() };
    let (mut client, mut server) = tcp_pair(settings);
    let mut most = 0;
    for _ in 0..10 {
        tcp_call(&mut client, 3001);
        client.poll(&mut Vec::new()).unwrap();
        let (record, fragments) = read_record(&mut server);
        let call = call::decode(Rope::inline(record)).unwrap();
        assert_eq!(call.args().payload(4000, "data").unwrap(), pattern(3001));
        most = most.max(fragments);
    }
    assert!(most > 2);
}

#[test]
fn tcp_call_and_wait_takes_a_long_reply() {
    let (mut client, mut server) = tcp_pair(TcpClientSettings::default());
    let server = std::thread::spawn(move || {
        let (record, _) = read_record(&mut server);
        let xid = call::decode(Rope::inline(record)).unwrap().header.xid;
        let mut message = reply::success(xid);
        message.opaque(&pattern(1 << 20));
        let message = message.finish().flatten();
        server.write_all(&(message.len() as u32 | 1 << 31).to_be_bytes()).unwrap();
        server.write_all(&message).unwrap();
    });
    let reply = ReplyOptions::bulk(100, 1 << 20);
    let args = Rope::default();
    let timeout = Duration::from_secs(10);
    let rope = client.call_and_wait(ECHO, &Credential::None, args, reply, timeout).unwrap();
    let mut results = results(&rope).unwrap();
    assert_eq!(results.payload(1 << 20, "data").unwrap(), pattern(1 << 20));
    server.join().unwrap();
}

#[test]
fn tcp_keeps_no_more_of_a_reply_than_it_was_told() {
    for keep in [60, 0] {
        keep_at_most(keep);
    }
}

fn keep_at_most(keep: usize) {
    let (mut client, mut server) = tcp_pair(TcpClientSettings::default());
    assert!(client.keep_at_most(keep));
    let lens = [1 << 20, 4, 3 << 20, 36, 37, 0];
    let xids = lens.map(|_| tcp_call(&mut client, 4));
    let server = std::thread::spawn(move || {
        for len in lens {
            let (record, _) = read_record(&mut server);
            let mut message =
                reply::success(call::decode(Rope::inline(record)).unwrap().header.xid);
            message.fixed(&pattern(len));
            let message = message.finish().flatten();
            server.write_all(&(message.len() as u32 | 1 << 31).to_be_bytes()).unwrap();
            server.write_all(&message).unwrap();
        }
    });
    let mut replies = Vec::new();
    while replies.len() < lens.len() {
        client.poll(&mut replies).unwrap();
        client.wait(Duration::from_secs(1));
    }
    server.join().unwrap();
    assert_eq!(replies.iter().map(|reply| reply.xid).collect::<Vec<_>>(), xids);
    for (reply, len) in replies.into_iter().zip(lens) {
        let message = reply.result.unwrap().flatten();
        let kept = keep.max(4).saturating_sub(24);
        assert_eq!(message.get(24..).unwrap_or(&[]), &pattern(len)[..len.min(kept)]);
    }
}

#[test]
fn tcp_end_of_stream_ends_every_call_and_silence_times_out() {
    let (mut client, server) = tcp_pair(TcpClientSettings::default());
    let xid = tcp_call(&mut client, 4);
    let waited = client.call_and_wait(
        ECHO,
        &Credential::None,
        Rope::default(),
        ReplyOptions::message(8),
        Duration::from_millis(20),
    );
    assert!(matches!(waited, Err(ClientError::TimedOut(_))));
    drop(server);
    let mut replies = Vec::new();
    while replies.is_empty() {
        client.wait(Duration::from_secs(1));
        client.poll(&mut replies).unwrap();
    }
    assert_eq!(replies[0], Reply { xid, result: Err(CallFault::Disconnected) });
    assert!(matches!(client.poll(&mut replies), Err(ClientError::Disconnected)));
}

#[test]
fn tcp_records_above_the_limit_are_refused() {
    let settings = TcpClientSettings { record_bytes_max: 1000, ..TcpClientSettings::default() };
    let (mut client, mut server) = tcp_pair(settings);
    server.write_all(&(1001 | 1_u32 << 31).to_be_bytes()).unwrap();
    client.wait(Duration::from_secs(1));
    let error = client.poll(&mut Vec::new()).unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_)));
}
