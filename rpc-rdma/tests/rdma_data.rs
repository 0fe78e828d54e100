//! Payload on its ways: Read chunks, Write chunks, Reply chunks, inline; every small size and a megabyte.

mod rdma_rig;

use std::time::Duration;

use buffers::copies::{self, Why};
use rdma_rig::*;
use rpc_rdma::{
    chunk::{ChunkLists, WriteChunk},
    client::{Endpoint, Region},
    driver::rdma::RdmaSettings,
    header::{PrivateData, Procedure},
    rpc::reply,
    soft::{ConnectOptions, FabricSettings},
    wire::WireLimits,
    xdr::{Reader, pad_bytes},
};

/// READ `count` into a Write chunk of `room` bytes in segments of `each`; returns what arrived.
fn read(client: &mut Client, rig: &mut Rig, count: usize, room: usize, each: usize) -> Vec<u8> {
    let xid = client.xid();
    let target = client.target(room);
    let lists = write_list(segments(&target, each));
    let answer = client.call(rig, lists.clone(), &call(xid, READ, |w| w.u32(count as u32)));
    let results = answer.results();
    let mut reader = Reader::new(&results);
    let len = reader.u32("length").unwrap() as usize;
    assert_eq!((reader.u32("tail"), reader.remaining()), (Ok(0x7a11), 0));
    let used: u64 = answer.header.lists.write[0].capacity();
    assert_eq!(used, len as u64, "returned lengths are the exact length");
    for (returned, offered) in
        answer.header.lists.write[0].segments.iter().zip(&lists.write[0].segments)
    {
        assert_eq!((returned.handle, returned.offset), (offered.handle, offered.offset));
    }
    let got = contents(&target, room);
    assert!(got[len..].iter().all(|&b| b == 0), "nothing behind the data, padding least of all");
    client.endpoint.deregister(target);
    got[..len].to_vec()
}

#[test]
fn read_results_of_every_small_size_and_of_a_megabyte() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let mut sizes: Vec<usize> = (0..=80).chain((81..5000).step_by(37)).collect();
    sizes.extend([4095, 4096, 4097, 5000, 1 << 20, (1 << 20) - 1]);
    let before = copies::copied(Why::Register);
    for len in sizes {
        let room = len.next_multiple_of(4).max(4);
        assert_eq!(read(&mut client, &mut rig, len, room, 128 << 10), pattern(len), "{len}");
        let got = read(&mut client, &mut rig, len, room, room.div_ceil(9).max(1));
        assert_eq!(got, pattern(len), "{len}");
    }
    assert_eq!(copies::copied(Why::Register), before, "registered payload is never copied");
    drop(client);
    rig.assert_clean();
}

#[test]
fn read_is_cut_short_to_the_write_chunk() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    assert_eq!(read(&mut client, &mut rig, 9000, 5001, 4096), pattern(5001));
    rig.assert_correct();
}

#[test]
fn bug_a_read_with_two_write_chunks_was_refused_when_both_together_had_room() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let (first, second) = (client.target(4096), client.target(4096));
    let xid = client.xid();
    let chunks = [&first, &second].map(|region| WriteChunk { segments: segments(region, 1500) });
    let lists = ChunkLists { write: chunks.to_vec(), ..ChunkLists::default() };
    let answer = client.call(&mut rig, lists, &call(xid, READ, |w| w.u32(8192)));
    let results = answer.results();
    assert_eq!(Reader::new(&results).u32("length"), Ok(4096), "as much as the chunk of its result");
    let used: Vec<_> = answer.header.lists.write.iter().map(WriteChunk::capacity).collect();
    assert_eq!(used, [4096, 0]);
    assert_eq!(contents(&first, 4096), pattern(4096));
    assert_eq!(contents(&second, 4096), [0; 4096]);
    rig.assert_correct();
}

#[test]
fn read_inline_and_in_the_reply_chunk() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for len in (0..40).chain([3000, 4007, 4008]) {
        let xid = client.xid();
        let lists = ChunkLists::default();
        let answer = client.call(&mut rig, lists, &call(xid, READ, |w| w.u32(len)));
        let results = answer.results();
        let mut reader = Reader::new(&results);
        assert_eq!(reader.opaque(5000, "data").unwrap(), pattern(len as usize));
        assert_eq!(reader.u32("tail"), Ok(0x7a11));
        assert!(answer.bytes <= 4096);
    }
    for len in [0, 100, 3900, 4100, 5003, 60_000] {
        let xid = client.xid();
        let target = client.target(64 << 10);
        let mut lists = reply_chunk(segments(&target, 24_001));
        let offered = lists.reply.clone().unwrap();
        let message = call(xid, LIST, |w| w.u32(len));
        let answer = client.call(&mut rig, std::mem::take(&mut lists), &message);
        let returned = answer.header.lists.reply.as_ref().unwrap();
        let total = reply::ACCEPTED_BYTES + 4 + len as usize + pad_bytes(len as usize);
        let body = match answer.procedure() {
            Procedure::Message => {
                assert_eq!(*returned, offered.unused());
                answer.body.to_vec()
            }
            Procedure::NoMessage => {
                assert!(total > 3900 && answer.body.is_empty());
                assert_eq!(returned.capacity(), total as u64);
                contents(&target, total)
            }
        };
        let results = results(&body.into());
        let mut reader = Reader::new(&results);
        assert_eq!(reader.opaque(1 << 20, "data").unwrap(), pattern(len as usize));
    }
    drop(client);
    rig.assert_clean();
}

/// WRITE by a Read chunk in segments of `each`, with or without padding in the chunk.
fn write_by_chunk(client: &mut Client, rig: &mut Rig, len: usize, each: usize, padded: bool) {
    let data = pattern(len);
    let xid = client.xid();
    let mut memory = data.clone();
    if padded {
        memory.resize(len + pad_bytes(len), 0);
    }
    let source = client.source(&memory);
    let head = call(xid, WRITE, |w| w.u32(len as u32));
    let mut message = head.clone();
    message.extend(words(&[0xfeed]));
    let read = read_list(head.len(), segments(&source, each));
    let lists = ChunkLists { read, ..ChunkLists::default() };
    let answer = client.call(rig, lists, &message);
    assert_eq!(
        answer.results().head,
        words(&[len as u32, sum(&data), 0xfeed]),
        "{len} bytes in segments of {each}"
    );
    client.endpoint.deregister(source);
}

#[test]
fn bug_9_and_10_writes_of_every_small_size_arrive_whole() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for len in (1..=64).chain((65..5000).step_by(41)).chain([4096, 4097, 1 << 20]) {
        write_by_chunk(&mut client, &mut rig, len, 128 << 10, false);
        write_by_chunk(&mut client, &mut rig, len, len.div_ceil(5), true);
        if len <= 3900 {
            let data = pattern(len);
            let xid = client.xid();
            let message = call(xid, WRITE, |w| {
                w.opaque(&data);
                w.u32(0xfeed);
            });
            let answer = client.call(&mut rig, ChunkLists::default(), &message);
            assert_eq!(answer.results().head, words(&[len as u32, sum(&data), 0xfeed]));
        }
    }
    drop(client);
    rig.assert_clean();
}

#[test]
fn whole_call_in_a_position_zero_chunk() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for len in [1, 5000, 70_001, 1 << 20] {
        let data = pattern(len);
        let xid = client.xid();
        let message = call(xid, WRITE, |w| {
            w.opaque(&data);
            w.u32(0xbeef);
        });
        let source = client.source(&message);
        let read = read_list(0, segments(&source, 120 << 10));
        client.send(&nomsg(xid, ChunkLists { read, ..ChunkLists::default() }));
        let answer = client.answer(&mut rig);
        assert_eq!(answer.results().head, words(&[len as u32, sum(&data), 0xbeef]));
        // With one key in the whole header that key is invalidated.
        assert_eq!(answer.invalidated, Some(source.rkey()));
    }
    drop(client);
    rig.assert_clean();
}

#[test]
fn bug_17_position_zero_chunk_plus_a_normal_one() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let data = pattern(6001);
    let xid = client.xid();
    let head = call(xid, WRITE, |w| w.u32(6001));
    let position = head.len();
    let mut reduced = head;
    reduced.extend(words(&[0xabcd]));
    let (zero, normal) = (client.source(&reduced), client.source(&data));
    let mut read = read_list(position, segments(&normal, 4096));
    read.extend(read_list(0, segments(&zero, 17)));
    client.send(&nomsg(xid, ChunkLists { read, ..ChunkLists::default() }));
    let answer = client.answer(&mut rig);
    assert_eq!(answer.results().head, words(&[6001, sum(&data), 0xabcd]));
    assert_eq!(answer.invalidated, None, "two keys: neither is invalidated");
    rig.assert_correct();
}

#[test]
fn bug_7_a_depth_one_peer_never_sees_two_reads() {
    let mut rig = Rig::default();
    let options = ConnectOptions { reads_outstanding: 1, ..ConnectOptions::default() };
    let mut client = rig.connect_as("10.77.0.3:1", options, linux());
    let mut expected = Vec::new();
    for i in 0..8_usize {
        let data = pattern(20_000 + i);
        let xid = client.xid();
        let source = client.source(&data);
        let mut message = call(xid, WRITE, |w| w.u32(data.len() as u32));
        let read = read_list(message.len(), segments(&source, 1500));
        message.extend(words(&[i as u32]));
        client.send(&inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message));
        expected.push((xid, words(&[data.len() as u32, sum(&data), i as u32])));
    }
    rig.run();
    client.poll();
    assert_eq!(client.received.len(), 8);
    for (message, _) in std::mem::take(&mut client.received) {
        let xid = u32::from_be_bytes(message[..4].try_into().unwrap());
        let want = expected.iter().find(|(x, _)| *x == xid).unwrap();
        assert_eq!(message[28 + 24..], want.1);
    }
    drop(client);
    rig.assert_clean();
}

#[test]
fn bug_20_a_device_with_32_work_requests_serves_full_load() {
    let limits = WireLimits {
        send_requests_max: 32,
        receives_max: 32,
        reads_outstanding_max: 4,
        send_with_invalidate: true,
    };
    let fabric = FabricSettings { limits, ..FabricSettings::default() };
    let mut rig = Rig::new(fabric, RdmaSettings { credits: 128, ..RdmaSettings::default() });
    let mut client = rig.connect();
    client.ping(&mut rig);
    let targets: Vec<_> = (0..24).map(|_| client.target(100_000)).collect();
    for target in &targets {
        let xid = client.xid();
        let message = call(xid, READ, |w| w.u32(100_000));
        client.send(&inline(xid, write_list(segments(target, 12_000)), &message));
    }
    rig.run();
    client.poll();
    assert_eq!(client.received.len(), 24);
    for (message, _) in std::mem::take(&mut client.received) {
        assert_eq!(message[8..12], words(&[24])[..], "the grant is what the device can hold");
    }
    for target in &targets {
        assert_eq!(contents(target, 100_000), pattern(100_000));
    }
    // More segments than the send queue holds: a short read, not a failure.
    let got = read(&mut client, &mut rig, 6400, 6400, 100);
    assert_eq!(got, pattern(3100));
    drop((client, targets));
    rig.assert_clean();
}

#[test]
fn bug_32_a_peer_with_a_1024_byte_threshold() {
    let mut rig = Rig::default();
    let options = ConnectOptions { receive_bytes: 1024, ..ConnectOptions::default() };
    let mut client = rig.knock("10.77.0.4:1", options, &[]);
    rig.run();
    client.poll();
    for len in (0..1200).step_by(13) {
        let xid = client.xid();
        let message = call(xid, READ, |w| w.u32(len));
        let answer = client.call(&mut rig, ChunkLists::default(), &message);
        assert!(answer.bytes <= 1024);
        let results = answer.results();
        let data = Reader::new(&results).opaque(1200, "data").unwrap().to_vec();
        assert_eq!(data, pattern((len as usize).min(1024 - 28 - 24 - 8)));
        assert_eq!(answer.invalidated, None, "it did not say that it can");
    }
    assert_eq!(read(&mut client, &mut rig, 9000, 9000, 4096), pattern(9000));
    drop(client);
    rig.assert_clean();
}

#[test]
fn several_write_chunks_and_an_empty_one() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let xid = client.xid();
    let target = client.target(100);
    let chunk = WriteChunk { segments: vec![segment(&target, 0, 100)] };
    let write = vec![WriteChunk::default(), chunk];
    let lists = ChunkLists { write, ..ChunkLists::default() };
    let answer = client.call(&mut rig, lists, &call(xid, READ, |w| w.u32(50)));
    // The first chunk is empty, so the first result comes inline.
    let results = answer.results();
    assert_eq!(Reader::new(&results).opaque(100, "data").unwrap(), pattern(50));
    assert_eq!(answer.header.lists.write[1].capacity(), 0);
    rig.assert_correct();
}

#[test]
fn buffers_run_out_and_calls_wait_their_turn() {
    // Two buffers of a megabyte for sixteen writers.
    let settings = RdmaSettings { credits: 32, ..RdmaSettings::default() };
    let mut rig = Rig::with_memory(FabricSettings::default(), settings, 4 << 20);
    assert!(rig.pool.stats().total[3] <= 3);
    let mut client = rig.connect();
    let data = pattern(700_000);
    let source = client.source(&data);
    for _ in 0..16 {
        let xid = client.xid();
        let mut message = call(xid, WRITE, |w| w.u32(data.len() as u32));
        let read = read_list(message.len(), segments(&source, 128 << 10));
        message.extend(words(&[1]));
        client.send(&inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message));
    }
    rig.run();
    client.poll();
    // The first reply invalidates the key that all calls share, so the fabric fails the others: what counts
    // here is that nothing leaks and nobody waits for ever.
    drop(client);
    rig.pass(Duration::from_secs(1));
    rig.assert_clean();

    let private_data = PrivateData { invalidate: false, ..linux() };
    let mut client = rig.connect_as("10.77.0.9:1", ConnectOptions::default(), private_data);
    let source = client.source(&data);
    for _ in 0..16 {
        let xid = client.xid();
        let mut message = call(xid, WRITE, |w| w.u32(data.len() as u32));
        let read = read_list(message.len(), segments(&source, 128 << 10));
        message.extend(words(&[1]));
        client.send(&inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message));
    }
    rig.run();
    client.poll();
    assert_eq!(client.received.len(), 16);
    assert!(rig.pool.stats().refused > 0, "they did have to wait");
    drop(client);
    rig.assert_clean();
}
