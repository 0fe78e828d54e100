//! Bugs that other implementations had, each as a test: connections that end at a bad moment, credits, send
//! queues, devices that go away.

mod rdma_rig;

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex},
    time::Duration,
};

use buffers::{
    Lease,
    copies::{self, Why},
};
use rdma_rig::*;
use rpc_rdma::{
    chunk::ChunkLists,
    client::{Endpoint, Region},
    conn,
    driver::rdma::RdmaSettings,
    soft::{ConnectOptions, Fabric, FabricSettings, FaultPlan, SoftProvider},
    wire::{
        Alarm, Provider, QpDepths, QpId, WireError, WireEvent, WireFault, WireLimits, Work,
        WorkCompletion, WorkId,
    },
};

/// Send a HOLD call.
fn hold(client: &mut Client) {
    let xid = client.xid();
    client.send(&inline(xid, ChunkLists::default(), &call(xid, HOLD, |_| {})));
}

/// Send a READ of `len` bytes with a Write chunk of nine segments.
fn send_read(client: &mut Client, len: usize) {
    let xid = client.xid();
    let target = client.target(len);
    let lists = write_list(segments(&target, len.div_ceil(9)));
    client.send(&inline(xid, lists, &call(xid, READ, |w| w.u32(len as u32))));
}

/// Send a WRITE of `len` bytes with a Read chunk of three segments.
fn send_write(client: &mut Client, len: usize) {
    let xid = client.xid();
    let source = client.source(&pattern(len));
    let mut message = call(xid, WRITE, |w| w.u32(len as u32));
    let read = read_list(message.len(), segments(&source, len.div_ceil(3)));
    message.extend(words(&[1]));
    client.send(&inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message));
}

#[test]
fn bug_2_and_3_credit_granted_is_what_is_posted_whatever_the_client_asks() {
    for (configured, granted) in [(64, 64), (1, 1), (0, 1), (100_000, 4088)] {
        let settings = RdmaSettings { credits: configured, ..RdmaSettings::default() };
        let mut rig = Rig::with_memory(FabricSettings::default(), settings, 256 << 20);
        let mut client = rig.connect();
        for asked in [0, 1, 128, 16384, u32::MAX] {
            let mut message = inline(XID, ChunkLists::default(), &call(XID, NULL, |_| {}));
            message[8..12].copy_from_slice(&u32::to_be_bytes(asked));
            let got = client.exchange(&mut rig, &message);
            assert_eq!(got[0][8..12], words(&[granted])[..]);
        }
        drop(client);
        rig.assert_clean();
    }
}

#[test]
fn a_full_load_of_credits_never_meets_an_empty_receive_queue() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    client.ping(&mut rig);
    for _ in 0..50 {
        for _ in 0..32 {
            hold(&mut client);
        }
        while rig.held.len() < 32 {
            rig.turn();
        }
        rig.release();
        // The client uses its credits again as soon as it sees the replies, before our completions.
        client.poll();
        client.received.clear();
    }
    rig.run();
    assert!(client.alive());
    assert_eq!(rig.side.stats().counters.overruns, 0);
    drop(client);
    rig.assert_clean();
}

#[test]
fn bug_5_disconnect_of_our_own() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    client.ping(&mut rig);
    rig.side.drain();
    rig.run();
    assert!(!client.alive());
    rig.assert_clean();
    // Nobody else gets in.
    let mut late = rig.knock("10.77.0.2:1", ConnectOptions::default(), &[]);
    rig.run();
    assert!(!late.alive());
}

#[test]
fn bug_8_unused_chunks_leak_nothing() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let before = rig.pool.stats();
    // Two keys, so that none is invalidated.
    let (target, other) = (client.target(64 << 10), client.target(64 << 10));
    for i in 0..200 {
        let xid = client.xid();
        let mut lists = write_list(segments(&target, 5000));
        lists.reply = reply_chunk(segments(&other, 9000)).reply;
        let (procedure, count) = if i % 2 == 0 { (NULL, 0) } else { (READ, 0) };
        let message = call(xid, procedure, |w| w.u32(count));
        let answer = client.call(&mut rig, lists, &message);
        assert_eq!(answer.header.lists.write[0].capacity(), 0);
        assert_eq!(answer.header.lists.reply.as_ref().unwrap().capacity(), 0);
        assert_eq!(answer.header.lists.reply.unwrap().segments.len(), 8);
    }
    rig.run();
    assert_eq!(rig.pool.stats().free, before.free);
    drop(client);
    rig.assert_clean();
}

#[test]
fn bug_12_disconnect_with_requests_in_flight() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    for i in 0..24 {
        match i % 3 {
            0 => hold(&mut client),
            1 => send_read(&mut client, 50_000),
            _ => send_write(&mut client, 50_000),
        }
    }
    for _ in 0..2 {
        rig.turn();
    }
    client.endpoint.disconnect();
    rig.run();
    assert_eq!(rig.side.connections(), 0);
    let held = rig.held.clone();
    assert_eq!(held.len(), 8);
    // Late answers find nobody, also when the slot has a new tenant.
    let mut next = rig.connect();
    rig.release();
    rig.held = held;
    next.ping(&mut rig);
    rig.release();
    rig.run();
    next.poll();
    assert!(next.received.is_empty() && next.alive());
    drop((client, next));
    rig.assert_clean();
}

#[test]
fn bug_21_close_with_a_full_send_queue() {
    let limits = WireLimits {
        send_requests_max: 32,
        receives_max: 64,
        reads_outstanding_max: 2,
        send_with_invalidate: true,
    };
    let fabric = FabricSettings { limits, ..FabricSettings::default() };
    let mut rig = Rig::new(fabric, RdmaSettings { credits: 48, ..RdmaSettings::default() });
    let mut client = rig.connect();
    client.ping(&mut rig);
    for _ in 0..8 {
        send_read(&mut client, 20_000);
        send_write(&mut client, 20_000);
    }
    // Everything is done but we do not see it, so the queue stays full and the rest waits.
    for _ in 0..5 {
        rig.turn();
        rig.fabric.inject(FaultPlan { hold_completions: true, ..FaultPlan::default() });
    }
    assert!(rig.side.stats().calls_under_way > 3);
    client.endpoint.disconnect();
    rig.run();
    assert_eq!(rig.side.connections(), 1, "posted work has not come back yet");
    rig.fabric.release_completions();
    rig.run();
    assert_eq!(rig.side.stats().calls_under_way, 0);
    drop(client);
    rig.assert_clean();
}

#[test]
fn bug_22_client_gives_up_during_the_handshake() {
    let mut rig = Rig::default();
    for turns in 0..3 {
        let client = rig.knock("10.77.0.2:1", ConnectOptions::default(), &linux().encode());
        for _ in 0..turns {
            rig.turn();
        }
        drop(client);
        rig.run();
    }
    rig.assert_clean();
}

#[test]
fn bug_23_a_connection_that_the_device_refuses_half_way_leaves_nothing() {
    for what in [Refused::Prepare, Refused::Receive(0), Refused::Receive(7), Refused::Accept] {
        let (mut rig, refused) = Reluctant::rig(what);
        for turned_down in 1..4 {
            let options = ConnectOptions::default();
            let mut client = rig.knock("10.77.0.2:1", options, &linux().encode());
            rig.run();
            assert_eq!(rig.side.stats().rejected, turned_down, "{what:?}");
            assert_eq!(rig.side.connections(), 0, "{what:?}");
            client.poll();
            assert!(client.private_data.is_none(), "{what:?}: it was never accepted");
        }
        *refused.lock().unwrap() = None;
        let mut client = rig.connect();
        client.ping(&mut rig);
        drop(client);
        rig.assert_clean();
    }
}

#[test]
fn bug_34_teardown_ends_by_its_deadline_when_work_never_comes_back() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    client.ping(&mut rig);
    rig.fabric.inject(FaultPlan { hold_completions: true, ..FaultPlan::default() });
    client.endpoint.disconnect();
    rig.pass(Duration::from_secs(9));
    assert_eq!(rig.side.connections(), 1);
    rig.pass(Duration::from_secs(2));
    assert_eq!(rig.side.connections(), 0);
    assert_eq!(rig.fabric.violations().destroyed_with_work, 1, "by force");
}

#[test]
fn bug_34_drain_under_load() {
    let mut rig = Rig::default();
    let mut clients: Vec<_> = (0..4).map(|_| rig.connect()).collect();
    for client in &mut clients {
        (0..4).for_each(|_| hold(client));
        send_read(client, 100_000);
    }
    rig.run();
    rig.side.drain();
    // A call that comes now is left to the next connection.
    hold(&mut clients[0]);
    rig.run();
    assert_eq!((rig.side.connections(), rig.held.len()), (4, 16));
    rig.release();
    rig.run();
    for client in &mut clients {
        assert!(!client.alive());
        assert_eq!(client.received.len(), 5, "what was executed was answered");
    }
    drop(clients);
    rig.assert_clean();
}

#[test]
fn bug_35_both_sides_disconnect() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    client.ping(&mut rig);
    client.endpoint.disconnect();
    rig.side.drain();
    client.endpoint.disconnect();
    rig.run();
    rig.assert_clean();
}

#[test]
fn receiver_not_ready_is_an_alarm_and_ends_the_connection() {
    let mut rig = Rig::default();
    let options = ConnectOptions { receives_posted: 0, ..ConnectOptions::default() };
    let mut client = rig.connect_as("10.77.0.2:1", options, linux());
    let message = inline(XID, ChunkLists::default(), &call(XID, NULL, |_| {}));
    client.endpoint.send(&message).unwrap();
    rig.run();
    assert!(!client.alive());
    assert_eq!(rig.side.stats().counters.receiver_not_ready, 1);
    assert_eq!(rig.side.connections(), 0);
}

#[test]
fn asynchronous_failure_of_a_queue_pair_closes() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    hold(&mut client);
    rig.run();
    // Ids of the fabric are small numbers; failing one that is no queue pair does nothing.
    (0..20).for_each(|id| rig.fabric.fail_queue_pair(QpId(id)));
    rig.run();
    assert!(!client.alive());
    rig.release();
    rig.assert_clean();
}

#[test]
fn device_removal_under_load_spares_the_other_device() {
    for silent in [false, true] {
        let mut rig = Rig::default();
        let other = Fabric::new(FabricSettings::default());
        rig.side.add_provider(Box::new(other.provider(rig.pool.arena().clone()).unwrap()));
        let first = rig.fabric.clone();
        let mut lost: Vec<_> = (0..3).map(|_| rig.connect()).collect();
        rig.fabric = other.clone();
        let mut kept = rig.connect();
        for client in lost.iter_mut().chain([&mut kept]) {
            hold(client);
            send_read(client, 60_000);
            send_write(client, 60_000);
        }
        rig.turn();
        first.remove_device(silent);
        rig.run();
        assert_eq!(rig.side.connections(), 1);
        assert_eq!(rig.side.stats().devices_lost, 1);
        assert!(lost.iter_mut().all(|client| !client.alive()));
        rig.release();
        rig.run();
        kept.poll();
        assert_eq!(kept.received.len(), 3);
        kept.received.clear();
        kept.ping(&mut rig);

        // It comes back and takes connections again.
        first.restore_device();
        rig.side.add_provider(Box::new(first.provider(rig.pool.arena().clone()).unwrap()));
        rig.fabric = first;
        let mut again = rig.connect();
        again.ping(&mut rig);
        drop((lost, kept, again));
        rig.assert_clean();
    }
}

#[test]
fn unregistered_payload_is_copied_once_and_counted() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let target = client.target(9000);
    let xid = client.xid();
    let before = copies::copied(Why::Register);
    let message = call(xid, READ_UNREGISTERED, |w| w.u32(9000));
    client.call(&mut rig, write_list(segments(&target, 4096)), &message);
    assert_eq!(contents(&target, 9000), pattern(9000));
    assert_eq!(copies::copied(Why::Register), before + 9000);
    drop((client, target));
    rig.assert_clean();
}

#[test]
fn the_share_of_one_connection_bounds_what_it_gathers() {
    let connection = conn::Settings { gather_bytes_max: 100_000, ..Default::default() };
    let settings = RdmaSettings { credits: 32, connection, ..RdmaSettings::default() };
    let mut rig = Rig::new(FabricSettings::default(), settings);
    let mut client = rig.connect();
    for len in [60_000, 300_000, 50_000, 40_000, 30_000] {
        send_write(&mut client, len);
    }
    rig.run();
    client.poll();
    assert_eq!(client.received.len(), 5);
    drop(client);
    rig.assert_clean();
}

/// What a device refuses although it said that it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Invalidate,
    Prepare,
    /// The Receive after so many.
    Receive(usize),
    Accept,
}

/// A device that refuses something; without a `Refused` it does what it is asked.
#[derive(Debug)]
struct Reluctant {
    device: SoftProvider,
    refused: Arc<Mutex<Option<Refused>>>,
    receives: usize,
}

impl Reluctant {
    fn refuses(&self, what: Refused) -> Result<(), WireError> {
        if *self.refused.lock().unwrap() != Some(what) {
            return Ok(());
        }
        let source = std::io::Error::from_raw_os_error(22);
        Err(WireError::System { operation: "ibv_any", source })
    }

    /// A lane on such a device alone.
    fn rig(refused: Refused) -> (Rig, Arc<Mutex<Option<Refused>>>) {
        let mut rig = Rig::default();
        let other = Fabric::new(FabricSettings::default());
        let refused = Arc::new(Mutex::new(Some(refused)));
        let device = other.provider(rig.pool.arena().clone()).unwrap();
        let reluctant = Self { device, refused: refused.clone(), receives: 0 };
        rig.side.add_provider(Box::new(reluctant));
        rig.fabric = other;
        (rig, refused)
    }
}

impl Provider for Reluctant {
    fn name(&self) -> &str {
        "reluctant"
    }
    fn limits(&self) -> WireLimits {
        self.device.limits()
    }
    fn prepare(&mut self, request: u64, depths: QpDepths) -> Result<(QpId, QpDepths), WireError> {
        self.refuses(Refused::Prepare)?;
        self.receives = 0;
        self.device.prepare(request, depths)
    }
    fn accept(&mut self, qp: QpId, private_data: &[u8], reads: u8) -> Result<(), WireError> {
        self.refuses(Refused::Accept)?;
        self.device.accept(qp, private_data, reads)
    }
    fn reject(&mut self, request: u64, private_data: &[u8]) {
        self.device.reject(request, private_data);
    }
    fn post_receive(&mut self, qp: QpId, buffer: Lease) -> Result<(), WireError> {
        self.refuses(Refused::Receive(self.receives))?;
        self.receives += 1;
        self.device.post_receive(qp, buffer)
    }
    fn post(&mut self, qp: QpId, id: WorkId, work: Work) -> Result<(), WireError> {
        if matches!(work, Work::Reply { invalidate: Some(_), .. }) {
            self.refuses(Refused::Invalidate)?;
        }
        self.device.post(qp, id, work)
    }
    fn flush(&mut self) -> usize {
        self.device.flush()
    }
    fn poll(&mut self, out: &mut Vec<WorkCompletion>, max: usize) {
        self.device.poll(out, max);
    }
    fn events(&mut self, out: &mut Vec<WireEvent>) {
        self.device.events(out);
    }
    fn arm(&mut self, alarm: Alarm) {
        self.device.arm(alarm);
    }
    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.device.wake_fds()
    }
    fn disconnect(&mut self, qp: QpId) {
        self.device.disconnect(qp);
    }
    fn destroy(&mut self, qp: QpId) {
        self.device.destroy(qp);
    }
}

#[test]
fn a_device_that_refuses_invalidation_serves_without() {
    let (mut rig, _) = Reluctant::rig(Refused::Invalidate);
    for _ in 0..2 {
        let mut client = rig.connect();
        for _ in 0..3 {
            let target = client.target(5000);
            let xid = client.xid();
            let message = call(xid, READ, |w| w.u32(5000));
            let answer = client.call(&mut rig, write_list(segments(&target, 5000)), &message);
            assert_eq!(answer.invalidated, None);
            assert_eq!(contents(&target, 5000), pattern(5000));
        }
    }
    rig.assert_clean();
}

#[test]
fn invalidation_takes_the_sole_key() {
    let mut rig = Rig::default();
    let mut client = rig.connect();
    let target = client.target(5000);
    let xid = client.xid();
    let message = call(xid, READ, |w| w.u32(5000));
    let answer = client.call(&mut rig, write_list(segments(&target, 1000)), &message);
    assert_eq!(answer.invalidated, Some(target.rkey()));
    assert_eq!(rig.side.stats().counters.invalidations, 1);
    drop(client);
    rig.assert_clean();
}

/// Everything at once, in an order drawn from a seed: connects, calls of all kinds, faults, hang-ups. At the
/// end every buffer is back and the device has seen nothing wrong.
#[test]
fn random_load_with_faults_leaves_nothing_behind() {
    for seed in 1..=25_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let limits = WireLimits {
            send_requests_max: 12 + random(100) as usize,
            receives_max: 8 + random(100) as usize,
            reads_outstanding_max: 1 + random(8) as usize,
            send_with_invalidate: random(2) == 0,
        };
        let fabric = FabricSettings { limits, ..FabricSettings::default() };
        let settings = RdmaSettings { credits: 16, ..RdmaSettings::default() };
        let mut rig = Rig::with_memory(fabric, settings, 16 << 20);
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..150 {
            step(&mut rig, &mut clients, &mut random);
        }
        rig.fabric.inject(FaultPlan::default());
        rig.release();
        rig.run();
        drop(clients);
        rig.release();
        rig.run();
        println!("seed {seed} was the last to come this far");
        rig.assert_clean();
    }
}

fn step(rig: &mut Rig, clients: &mut Vec<Client>, random: &mut impl FnMut(u64) -> u64) {
    clients.retain_mut(Client::alive);
    match random(20) {
        0 | 1 if clients.len() < 6 => {
            let options =
                ConnectOptions { reads_outstanding: 1 + random(16) as u8, ..Default::default() };
            let client = rig.knock("10.77.0.2:1", options, &linux().encode());
            clients.push(client);
            rig.run();
        }
        2 if !clients.is_empty() => {
            let index = random(clients.len() as u64) as usize;
            clients.swap_remove(index);
        }
        3 => {
            let fault = WireFault::RetryExceeded;
            let plan = FaultPlan { fail_work: Some((random(20), fault)), ..FaultPlan::default() };
            rig.fabric.inject(plan);
        }
        4 => {
            let plan = FaultPlan { reorder_seed: Some(random(99) + 1), ..FaultPlan::default() };
            rig.fabric.inject(plan);
        }
        5 => rig.release(),
        6..=9 => {
            rig.turn();
        }
        _ if !clients.is_empty() => {
            let index = random(clients.len() as u64) as usize;
            let len = 1 + random(200_000) as usize;
            match random(5) {
                0 => hold(&mut clients[index]),
                1 => send_read(&mut clients[index], len),
                2 => send_write(&mut clients[index], len),
                3 => clients[index].send(&words(&[XID, 1, 1, 9, 0, 0, 0])),
                _ => {
                    let client = &mut clients[index];
                    let xid = client.xid();
                    let target = client.target(200_000);
                    let lists = reply_chunk(segments(&target, 60_000));
                    let message = call(xid, LIST, |w| w.u32(len as u32));
                    client.send(&inline(xid, lists, &message));
                }
            }
        }
        _ => {}
    }
}

#[test]
fn bug_4_a_kept_reply_goes_out_again_with_the_chunks_of_the_new_connection() {
    let mut rig = Rig::default();
    let kept = {
        let mut out = rpc_rdma::rpc::reply::success(XID);
        out.payload(pattern(7001));
        out.finish()
    };
    // First inline into a Reply chunk, then, on another connection, into a Write chunk.
    for direct in [false, true] {
        let mut client = rig.connect();
        let target = client.target(9000);
        let offered = segments(&target, 4000);
        let lists = if direct { write_list(offered) } else { reply_chunk(offered) };
        client.send(&inline(XID, lists, &call(XID, HOLD, |_| {})));
        rig.run();
        for ticket in std::mem::take(&mut rig.held) {
            rig.side.reply(ticket, kept.clone());
        }
        rig.side.flush();
        let answer = client.answer(&mut rig);
        if direct {
            assert_eq!(contents(&target, 7001), pattern(7001));
            assert_eq!(answer.body.len(), kept.head.len());
        } else {
            assert_eq!(contents(&target, kept.len()), kept.flatten());
            assert!(answer.body.is_empty());
        }
        assert_eq!(answer.invalidated, Some(target.rkey()));
    }
    rig.assert_clean();
}

/// Send a call with two Read chunks, each too large for the second largest buffers.
fn send_two_chunks(client: &mut Client, len: usize) -> u32 {
    let xid = client.xid();
    let source = client.source(&pattern(len));
    let mut message = call(xid, WRITE_TWO, |w| w.u32(len as u32));
    let mut read = read_list(message.len(), vec![segment(&source, 0, len)]);
    read.extend(read_list(message.len() + len + 4, vec![segment(&source, 0, len)]));
    message.extend(words(&[len as u32]));
    client.send(&inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message));
    xid
}

#[test]
fn bug_calls_with_two_large_chunks_waited_for_each_other_for_ever() {
    let settings = RdmaSettings { credits: 8, ..RdmaSettings::default() };
    let mut rig = Rig::with_memory(FabricSettings::default(), settings, 4 << 20);
    assert_eq!(rig.pool.stats().total[3], 2, "one for each of the two");
    let mut clients = [rig.connect(), rig.connect()];
    for _ in 0..3 {
        let xids: Vec<_> =
            clients.iter_mut().map(|client| send_two_chunks(client, 400_000)).collect();
        for (client, xid) in clients.iter_mut().zip(xids) {
            let answer = client.answer(&mut rig);
            assert_eq!(answer.header.xid, xid);
            let each = [400_000, sum(&pattern(400_000))];
            assert_eq!(answer.body[24..], words(&each).repeat(2)[..]);
        }
    }
    drop(clients);
    rig.assert_clean();
}

#[test]
fn bug_waiting_calls_held_the_buffers_that_replies_needed() {
    let settings = RdmaSettings { credits: 32, ..RdmaSettings::default() };
    let mut rig = Rig::with_memory(FabricSettings::default(), settings, 6 << 20);
    let mut clients: Vec<_> = (0..3).map(|_| rig.connect()).collect();
    // Others have all payload memory, as reads whose replies wait for a buffer for the message.
    let pool = rig.pool.clone();
    let payload: Vec<_> = std::iter::from_fn(|| pool.take(1 << 20)).collect();
    for client in &mut clients {
        (0..31).for_each(|_| send_write(client, 400_000));
        hold(client);
    }
    rig.run();
    assert_eq!(rig.held.len(), 3);
    assert!(rig.pool.stats().free[0] > 0, "replies can still go out");
    rig.release();
    rig.run();
    clients.iter_mut().for_each(Client::poll);
    assert!(clients.iter().all(|client| client.received.len() == 1));
    drop(payload);
    rig.run();
    clients.iter_mut().for_each(Client::poll);
    assert!(clients.iter().all(|client| client.received.len() == 32));
    drop(clients);
    rig.assert_clean();
}
