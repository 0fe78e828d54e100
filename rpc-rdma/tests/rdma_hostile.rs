//! What clients may not do, and what they get for it: one message back, silence, or the end of the connection,
//! and never a byte of memory that stays.

mod rdma_rig;

use std::time::Duration;

use rdma_rig::*;
use rpc_rdma::{
    chunk::{ChunkLists, Segment, WriteChunk},
    client::Region,
    conn,
    driver::{ConnectionLimits, rdma::RdmaSettings},
    header::PrivateData,
    rpc::reply,
    service::Transport,
    soft::{ConnectOptions, FabricSettings},
};

/// A side that never tires of protocol errors.
fn patient() -> Rig {
    let connection = conn::Settings { faults_per_minute_max: u32::MAX, ..Default::default() };
    let settings = RdmaSettings { credits: 32, connection, ..RdmaSettings::default() };
    Rig::new(FabricSettings::default(), settings)
}

/// The message gets exactly ERR_CHUNK, and the connection goes on.
#[track_caller]
fn assert_err_chunk(rig: &mut Rig, client: &mut Client, xid: u32, message: &[u8]) {
    assert_eq!(client.exchange(rig, message), [err_chunk(xid, 32)]);
    client.ping(rig);
}

fn raw(words_after: &[u32], body: &[u8]) -> Vec<u8> {
    let mut message = words(&[XID, 1, 128]);
    message.extend(words(words_after));
    message.extend_from_slice(body);
    message
}

#[test]
fn version_other_than_one_gets_err_vers() {
    let mut rig = patient();
    let mut client = rig.connect();
    for version in [0, 2, u32::MAX] {
        let got = client.exchange(&mut rig, &words(&[XID, version, 9, 0, 0, 0, 0]));
        assert_eq!(got, [words(&[XID, version, 32, 4, 1, 1, 1])]);
    }
    client.ping(&mut rig);
    rig.assert_correct();
}

#[test]
fn unknown_procedures_get_err_chunk_and_dead_ones_nothing() {
    let mut rig = patient();
    let mut client = rig.connect();
    for procedure in [2, 5, u32::MAX] {
        let message = raw(&[procedure, 0, 0, 0], &call(XID, NULL, |_| {}));
        assert_err_chunk(&mut rig, &mut client, XID, &message);
    }
    for procedure in [3, 4] {
        let message = raw(&[procedure, 0, 0, 0], &call(XID, NULL, |_| {}));
        assert!(client.exchange(&mut rig, &message).is_empty());
    }
    client.ping(&mut rig);
    assert_eq!(rig.side.stats().counters.dropped, 2);
}

#[test]
fn short_messages_are_dropped_and_too_many_close() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for len in 1..=16 {
        assert!(client.exchange(&mut rig, &vec![0; len]).is_empty());
    }
    client.ping(&mut rig);
    assert!(client.exchange(&mut rig, &[0; 27]).is_empty());
    assert!(!client.alive());
    rig.assert_clean();
}

#[test]
fn seventeen_errors_in_a_minute_close_and_sixteen_do_not() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let bad = raw(&[7, 0, 0, 0], &[]);
    for _ in 0..3 {
        for _ in 0..16 {
            assert_eq!(client.exchange(&mut rig, &bad), [err_chunk(XID, 32)]);
        }
        rig.pass(Duration::from_secs(61));
    }
    for _ in 0..16 {
        assert_eq!(client.exchange(&mut rig, &bad).len(), 1);
    }
    assert!(client.exchange(&mut rig, &bad).is_empty());
    assert!(!client.alive());
    rig.assert_clean();
}

#[test]
fn malformed_lists_get_err_chunk() {
    let mut rig = patient();
    let mut client = rig.connect();
    let body = call(XID, NULL, |_| {});
    let segments = |n: u32| (0..n).flat_map(|i| [i, 8, 0, 0]);
    let mut lists: Vec<Vec<u32>> = vec![
        vec![0, 2, 0, 0], // discriminators
        vec![0, 0, 2, 0],
        vec![0, 0, 0, 2],
        vec![0, 1, 6, 7, 8, 0, 0, 0, 0, 0], // position not a multiple of 4
        vec![0, 1, 40, 7, 0, 0, 0, 0, 0, 0], // a chunk of nothing
        vec![0, 1, 40, 7, u32::MAX, 0, 0, 0, 0, 0], // too long
        vec![0, 1, 44, 7, 8, 0, 0, 0, 0, 0], // beyond the inline message
        vec![0, 1, 8, 7, 8, 0, 0, 1, 12, 7, 8, 0, 0, 0, 0, 0], // inside the chunk before
        vec![0, 0, 1, 65],                  // too many segments
        vec![0, 0, 1, 0x1000_0001],
        vec![0, 0, 1, u32::MAX],
        vec![0, 0, 0, 1, u32::MAX],
        vec![1, 0, 0, 0], // NOMSG without a Position-Zero chunk
        vec![1, 1, 4, 7, 8, 0, 0, 0, 0, 0],
        vec![1, 1, 0, 7, 4, 0, 0, 0, 0, 2],
    ];
    // The sum of the lengths wraps 32 bits to something small.
    let wraps = [1, 40, 7, 0x8000_0000, 0, 0, 1, 40, 7, 0x8000_0000, 0, 0, 1, 40, 7, 8, 0, 0];
    lists.push([vec![0], wraps.to_vec(), vec![0, 0, 0]].concat());
    lists.push([vec![0], [1, 40, 7, 8, 0, 0].repeat(65), vec![0, 0, 0]].concat());
    lists.push([vec![0, 0], [1, 1, 7, 8, 0, 0].repeat(5), vec![0, 0]].concat());
    lists.push([vec![0, 0, 0, 1, 65], segments(65).collect()].concat());
    // Read segments just above what a call may hold.
    let megabyte = [1, 40, 7, 1 << 20, 0, 0, 1, 40, 7, (8 << 10) + 1, 0, 0];
    lists.push([vec![0], megabyte.to_vec(), vec![0, 0, 0]].concat());
    for list in lists {
        let got = client.exchange(&mut rig, &raw(&list, &body));
        assert_eq!(got, [err_chunk(XID, 32)], "{list:?}");
        client.ping(&mut rig);
    }
    // Lists that run past the end of the message.
    for list in [&[0, 1, 40, 7][..], &[0, 0, 1, 2, 7, 8, 0, 0], &[0, 0, 0, 1, 1, 7]] {
        let got = client.exchange(&mut rig, &raw(list, &[]));
        assert_eq!(got, [err_chunk(XID, 32)], "{list:?}");
    }
    drop(client);
    rig.assert_clean();
}

#[test]
fn nothing_of_a_refused_call_is_executed_or_fetched() {
    let mut rig = patient();
    let mut client = rig.connect();
    let before = rig.pool.stats();
    let message = raw(&[0, 1, 44, 7, 1 << 20, 0, 0, 0, 0, 0], &call(XID, NULL, |_| {}));
    assert_err_chunk(&mut rig, &mut client, XID, &message);
    assert_eq!(rig.calls.len(), 1, "only the ping");
    assert_eq!(rig.pool.stats().free[3], before.free[3]);
}

#[test]
fn rdma_xid_other_than_the_rpc_xid() {
    let mut rig = patient();
    let mut client = rig.connect();
    let message = inline(XID, ChunkLists::default(), &call(XID + 1, NULL, |_| {}));
    assert_err_chunk(&mut rig, &mut client, XID, &message);
    // Also when the message comes by a Position-Zero chunk.
    let source = client.source(&call(XID + 1, NULL, |_| {}));
    let read = read_list(0, segments(&source, 1000));
    let message = nomsg(XID, ChunkLists { read, ..ChunkLists::default() });
    assert_err_chunk(&mut rig, &mut client, XID, &message);
    // Too short for an RPC message, or neither call nor reply.
    assert_err_chunk(&mut rig, &mut client, XID, &raw(&[0, 0, 0, 0], &[]));
    assert_err_chunk(&mut rig, &mut client, XID, &raw(&[0, 0, 0, 0], &words(&[XID, 2])));
    drop((client, source));
    rig.assert_clean();
}

#[test]
fn bug_6_reply_to_nobody_is_dropped() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for _ in 0..100 {
        let reply = reply::success(77).finish().flatten();
        assert!(client.exchange(&mut rig, &inline(77, ChunkLists::default(), &reply)).is_empty());
    }
    client.ping(&mut rig);
    rig.assert_correct();
}

#[test]
fn message_that_is_no_rpc_call_gets_err_chunk() {
    let mut rig = patient();
    let mut client = rig.connect();
    let message = inline(XID, ChunkLists::default(), &words(&[XID, 0, 2, 100_003]));
    assert_err_chunk(&mut rig, &mut client, XID, &message);
    // Another RPC version has an RPC answer.
    let other = inline(XID, ChunkLists::default(), &words(&[XID, 0, 3, 100_003, 3, 0, 0, 0, 0, 0]));
    assert_eq!(client.exchange(&mut rig, &other)[0][28..], words(&[XID, 1, 1, 0, 2, 2])[..]);
}

#[test]
fn chunk_where_no_bulk_data_belongs_is_garbage() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let source = client.source(&pattern(100));
    for position in [40, 44] {
        let xid = client.xid();
        let mut message = call(xid, READ, |w| w.u32(5));
        message.extend(words(&[0]));
        let read = read_list(position, segments(&source, 100));
        // Keeps the key alive: more than one key in the header.
        let keep = WriteChunk { segments: vec![Segment { handle: 1, length: 0, offset: 0 }] };
        let lists = ChunkLists { read, reply: Some(keep), ..ChunkLists::default() };
        let answer = client.call(&mut rig, lists, &message);
        let expected = if position == 40 { 4 } else { 0 };
        assert_eq!(status(&answer.body), expected, "position {position}");
    }
    let xid = client.xid();
    let message = call(xid, WRITE, |w| w.u32(99));
    let read = read_list(message.len(), segments(&source, 100));
    let answer = client.call(&mut rig, ChunkLists { read, ..ChunkLists::default() }, &message);
    assert_eq!(status(&answer.body), 4, "length word and chunk disagree");
    drop((client, source));
    rig.assert_clean();
}

#[test]
fn bug_19_chunk_smaller_than_the_result() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let target = client.target(4000);
    let xid = client.xid();
    let message = call(xid, READ_BLINDLY, |w| w.u32(4001));
    let answer = client.call(&mut rig, write_list(segments(&target, 4000)), &message);
    assert_eq!(status(&answer.body), 5, "SYSTEM_ERR");
    assert_eq!(answer.header.lists.write[0].capacity(), 0);
    assert_eq!(contents(&target, 4000), vec![0; 4000]);

    let target = client.target(4000);
    for lists in [reply_chunk(segments(&target, 4000)), ChunkLists::default()] {
        let xid = client.xid();
        let message = inline(xid, lists, &call(xid, LIST, |w| w.u32(5000)));
        assert_err_chunk(&mut rig, &mut client, xid, &message);
        let counters = rig.side.stats().counters;
        assert!(counters.misfits > 0);
    }
    drop((client, target));
    rig.assert_clean();
}

#[test]
fn empty_segments_are_left_out() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let (source, target) = (client.source(&pattern(50)), client.target(50));
    let nothing = Segment { handle: 99, length: 0, offset: 1 };
    let xid = client.xid();
    let mut message = call(xid, WRITE, |w| w.u32(50));
    let parts = vec![nothing, segment(&source, 0, 20), nothing, segment(&source, 20, 30)];
    let read = read_list(message.len(), parts);
    message.extend(words(&[3]));
    let answer = client.call(&mut rig, ChunkLists { read, ..ChunkLists::default() }, &message);
    assert_eq!(answer.results().head, words(&[50, sum(&pattern(50)), 3]));
    let xid = client.xid();
    let parts = vec![nothing, segment(&target, 0, 20), nothing, segment(&target, 20, 30)];
    client.call(&mut rig, write_list(parts), &call(xid, READ, |w| w.u32(50)));
    assert_eq!(contents(&target, 50), pattern(50));
    rig.assert_correct();
}

#[test]
fn bug_24_bad_key_closes_and_the_call_is_refused_on_the_next_connection() {
    let mut rig = Rig::default();
    for read in [true, false] {
        let mut client = rig.connect();
        let mut neighbour = rig.connect_as("10.77.0.8:1", ConnectOptions::default(), linux());
        let xid = client.xid();
        let message = poisonous(&mut client, xid, read);
        assert!(client.exchange(&mut rig, &message).is_empty());
        assert!(!client.alive());
        neighbour.ping(&mut rig);

        let mut again = rig.connect();
        assert_eq!(again.exchange(&mut rig, &message), [err_chunk(xid, 32)]);
        again.ping(&mut rig);
        drop((client, again, neighbour));
        rig.assert_clean();
        rig.pass(Duration::from_secs(121));
    }
}

fn poisonous(client: &mut Client, xid: u32, read: bool) -> Vec<u8> {
    let good = client.source(&pattern(5000));
    let bad = Segment { handle: 0xbad, length: 5000, offset: good.address() };
    if read {
        // Half of the chunk arrives (bug 25).
        let mut message = call(xid, WRITE, |w| w.u32(10_000));
        let read = read_list(message.len(), vec![segment(&good, 0, 5000), bad]);
        message.extend(words(&[3]));
        inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message)
    } else {
        inline(xid, write_list(vec![bad]), &call(xid, READ, |w| w.u32(5000)))
    }
}

#[test]
fn more_calls_than_credits_close() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for _ in 0..32 {
        let xid = client.xid();
        client.send(&inline(xid, ChunkLists::default(), &call(xid, HOLD, |_| {})));
    }
    rig.run();
    assert_eq!(rig.held.len(), 32);
    assert!(client.alive());
    let xid = client.xid();
    client.send(&inline(xid, ChunkLists::default(), &call(xid, HOLD, |_| {})));
    rig.run();
    assert!(!client.alive());
    assert_eq!(rig.side.stats().counters.overruns, 1);
    assert_eq!(rig.held.len(), 32);
    rig.release();
    rig.assert_clean();
}

#[test]
fn a_flood_of_connections_is_turned_down() {
    let settings = RdmaSettings { credits: 4, ..RdmaSettings::default() };
    let limits = ConnectionLimits::new(9, 5, 2);
    let mut rig =
        Rig::with_limits(FabricSettings::default(), settings.clone(), 64 << 20, limits.clone());
    let options = ConnectOptions::default();
    let mut clients = vec![rig.connect(), rig.connect()];
    let mut third = rig.knock("10.77.0.2:9", options, &linux().encode());
    rig.run();
    assert!(!third.alive());
    for i in 3..6 {
        clients.push(rig.connect_as(&format!("10.77.1.{i}:1"), options, linux()));
    }
    let mut sixth = rig.knock("10.77.2.1:9", options, &linux().encode());
    rig.run();
    assert!(!sixth.alive());
    assert_eq!(rig.side.stats().rejected, 2);
    clients.pop();
    rig.run();
    clients.push(rig.connect_as("10.77.2.1:9", options, linux()));
    assert_eq!(limits.total(), 5);
    clients.iter_mut().for_each(|client| client.ping(&mut rig));
    drop((clients, third, sixth));
    rig.assert_clean();
    assert_eq!(limits.total(), 0);
}

#[test]
fn bug_each_lane_counted_rdma_connections_for_itself() {
    let settings = || RdmaSettings { credits: 4, ..RdmaSettings::default() };
    let limits = ConnectionLimits::new(9, 3, 2);
    let mut lanes = [(); 2].map(|()| {
        Rig::with_limits(FabricSettings::default(), settings(), 64 << 20, limits.clone())
    });
    let options = ConnectOptions::default();
    let tcp = limits.admit(Transport::Tcp, "10.77.0.2".parse().unwrap()).unwrap();
    let first = lanes[0].connect_as("10.77.0.2:1", options, linux());
    let refused = |lane: &mut Rig, peer: &str| {
        let mut client = lane.knock(peer, options, &linux().encode());
        lane.run();
        !client.alive()
    };
    assert!(refused(&mut lanes[1], "10.77.0.2:2"), "two of this address, one of them over TCP");
    let others = [0, 1]
        .map(|lane: usize| lanes[lane].connect_as(&format!("10.77.1.{lane}:1"), options, linux()));
    assert!(refused(&mut lanes[1], "10.77.2.1:1"), "three in total");
    drop((first, tcp));
    lanes[0].run();
    assert!(!refused(&mut lanes[1], "10.77.0.2:2"));
    drop(others);
    lanes.iter_mut().for_each(Rig::assert_clean);
}

#[test]
fn a_peer_without_rdma_reads_is_turned_down() {
    let mut rig = Rig::default();
    let options = ConnectOptions { reads_outstanding: 0, ..ConnectOptions::default() };
    let mut client = rig.knock("10.77.0.2:9", options, &linux().encode());
    rig.run();
    assert!(!client.alive());
    rig.assert_clean();
}

#[test]
fn connections_beyond_the_memory_are_turned_down_and_the_others_work() {
    let settings = RdmaSettings { credits: 32, ..RdmaSettings::default() };
    let mut rig = Rig::with_memory(FabricSettings::default(), settings, 8 << 20);
    let mut clients = Vec::new();
    loop {
        let options = ConnectOptions::default();
        let mut client = rig.knock("10.77.0.2:9", options, &linux().encode());
        rig.run();
        if !client.alive() {
            break;
        }
        clients.push(client);
        assert!(clients.len() < 20);
    }
    assert!(clients.len() > 2);
    clients.iter_mut().for_each(|client| client.ping(&mut rig));
    drop(clients);
    rig.assert_clean();
}

#[test]
fn unreadable_private_data_means_defaults() {
    let mut rig = Rig::default();
    for junk in [&[][..], &[0xff; 56], &[0xf6, 0xab, 0x0e, 0x18, 9, 1, 3, 3]] {
        let mut client = rig.knock("10.77.0.2:9", ConnectOptions::default(), junk);
        rig.run();
        client.poll();
        assert_eq!(client.private_data, Some(linux()), "ours is always the same");
        let xid = client.xid();
        let message = inline(xid, ChunkLists::default(), &call(xid, LIST, |w| w.u32(1000)));
        assert_eq!(client.exchange(&mut rig, &message), [err_chunk(xid, 32)]);
        client.ping(&mut rig);
    }
    rig.assert_clean();
}

#[test]
fn bug_25_a_hundred_thousand_malformed_messages_with_flat_memory() {
    let mut rig = patient();
    // Without invalidation one registration serves all messages that turn out well.
    let private_data = PrivateData { invalidate: false, ..linux() };
    let mut client = rig.connect_as("10.77.0.2:1", ConnectOptions::default(), private_data);
    client.ping(&mut rig);
    let before = rig.pool.stats();
    let target = client.target(64 << 10);
    let xid = client.xid();
    let mut models = vec![
        inline(xid, ChunkLists::default(), &call(xid, READ, |w| w.u32(100))),
        inline(xid, write_list(segments(&target, 9000)), &call(xid, READ, |w| w.u32(100))),
        inline(xid, reply_chunk(segments(&target, 9000)), &call(xid, LIST, |w| w.u32(10))),
    ];
    models.push(nomsg(xid, ChunkLists::default()));
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for round in 0..100_000 {
        let mut message = models[random(models.len())].clone();
        // Spoil the header or cut it; never so that it could name foreign memory.
        match random(4) {
            0 => message.truncate(1 + random(message.len() - 1)),
            1 => message[16 + random(4)] = 2 + random(250) as u8,
            2 => message[12 + random(4)] = 5 + random(250) as u8,
            _ => message[4 + random(4)] = 2 + random(250) as u8,
        }
        client.send(&message);
        if round % 16 == 15 {
            rig.run();
            client.poll();
            client.received.clear();
            assert!(client.alive(), "round {round}: {:?}", client.end);
        }
    }
    rig.run();
    assert_eq!(rig.pool.stats().free, before.free);
    assert_eq!(rig.side.stats().calls_under_way, 0);
    client.poll();
    client.received.clear();
    client.ping(&mut rig);
    drop((client, target));
    rig.assert_clean();
}
