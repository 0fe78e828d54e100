//! One test for each rule of the fabric.

use std::{net::SocketAddr, sync::Arc};

use buffers::{Arena, Lease, Pool};
use bytes::Bytes;

use super::*;
use crate::{
    endpoint::{Access, Endpoint, EndpointEvent, Region},
    wire::{
        Alarm, Provider, QpDepths, QpId, RdmaRead, RdmaWrite, RemoteMemory, WireError, WireEvent,
        WireFault, Work, WorkCompletion,
    },
};

const DEPTHS: QpDepths = QpDepths { send_requests: 16, receives: 8 };

struct Rig {
    fabric: Arc<Fabric>,
    pool: Arc<Pool>,
    server: SoftProvider,
}

/// A connected pair of ends.
struct Pair {
    client: SoftEndpoint,
    qp: QpId,
}

fn peer() -> SocketAddr {
    "10.77.0.2:700".parse().unwrap()
}

impl Rig {
    fn new() -> Self {
        Self::with(FabricSettings::default())
    }

    fn with(settings: FabricSettings) -> Self {
        let fabric = Fabric::new(settings);
        let pool = Pool::standalone(8 << 20);
        let server = fabric.provider(pool.arena().clone()).unwrap();
        Self { fabric, pool, server }
    }

    fn connect(&mut self, receives: usize, options: ConnectOptions) -> Pair {
        let client = self.fabric.connect(peer(), b"hello", options).unwrap();
        let request = self.request();
        let (qp, depths) = self.server.prepare(request, DEPTHS).unwrap();
        assert!(depths.send_requests >= DEPTHS.send_requests);
        for _ in 0..receives {
            self.server.post_receive(qp, self.pool.take(64).unwrap()).unwrap();
        }
        self.server.accept(qp, b"welcome", 4).unwrap();
        let mut pair = Pair { client, qp };
        assert!(matches!(self.events()[..], [WireEvent::Established(q)] if q == qp));
        let [EndpointEvent::Connected { private_data }] = &pair.events()[..] else {
            panic!("not connected")
        };
        assert_eq!(private_data.len(), crate::wire::PRIVATE_DATA_BYTES_MAX);
        assert!(private_data.starts_with(b"welcome\0"));
        pair
    }

    fn pair(&mut self) -> Pair {
        self.connect(4, ConnectOptions::default())
    }

    fn request(&mut self) -> u64 {
        match &self.events()[..] {
            [WireEvent::ConnectRequest(request)] => {
                assert_eq!(request.peer, peer());
                assert!(request.private_data.starts_with(b"hello\0"));
                request.id
            }
            other => panic!("{other:?}"),
        }
    }

    fn events(&mut self) -> Vec<WireEvent> {
        let mut out = Vec::new();
        self.server.events(&mut out);
        out
    }

    fn poll(&mut self) -> Vec<WorkCompletion> {
        let mut out = Vec::new();
        self.server.poll(&mut out, 64);
        out
    }

    fn bytes(&self, data: &[u8]) -> Bytes {
        let mut lease = self.pool.take(data.len()).unwrap();
        lease[..data.len()].copy_from_slice(data);
        lease.freeze(0, data.len())
    }

    fn reply(&self, writes: &[(RemoteMemory, &[u8])], invalidate: Option<u32>) -> Work {
        let writes =
            writes.iter().map(|&(remote, data)| RdmaWrite { local: self.bytes(data), remote });
        Work::Reply { writes: writes.collect(), send: self.bytes(b"reply"), invalidate }
    }

    fn fetch(&self, remote: RemoteMemory, len: usize, count: usize) -> Work {
        let reads = (0..count).map(|_| RdmaRead { sink_offset: 0, len, remote }).collect();
        Work::Fetch { sink: self.pool.take(4096).unwrap(), reads }
    }

    /// Post, flush, and see what came of it.
    fn run(&mut self, qp: QpId, work: Work) -> Vec<WorkCompletion> {
        self.server.post(qp, 7, work).unwrap();
        self.server.flush();
        self.poll()
    }

    /// Run work that fails, and check that everything else of the queue pair is flushed behind it.
    fn run_into(&mut self, qp: QpId, work: Work, expected: WireFault) {
        self.server.post(qp, 7, work).unwrap();
        let reply = self.reply(&[], None);
        self.server.post(qp, 8, reply).unwrap();
        self.server.flush();
        let done = self.poll();
        let fault = |c: &WorkCompletion| match c {
            WorkCompletion::Replied { id, result, .. } => (*id, result.unwrap_err()),
            WorkCompletion::Fetched { id, result, .. } => (*id, result.unwrap_err()),
            WorkCompletion::ReceiveFailed { fault, .. } => (0, *fault),
            other => panic!("{other:?}"),
        };
        let faults: Vec<_> = done.iter().map(fault).collect();
        assert_eq!(faults[..2], [(7, expected), (8, WireFault::Flushed)]);
        assert_eq!(faults[2..], [(0, WireFault::Flushed); 4]);
        assert!(matches!(self.events()[..], [WireEvent::Disconnected(q)] if q == qp));
    }
}

impl Pair {
    fn events(&mut self) -> Vec<EndpointEvent> {
        let mut out = Vec::new();
        self.client.poll(&mut out);
        out
    }

    fn region(&mut self, len: usize, access: Access) -> (SoftRegion, RemoteMemory) {
        let region = self.client.register(len, access).unwrap();
        let remote = RemoteMemory { rkey: region.rkey(), address: region.address() };
        (region, remote)
    }
}

#[test]
fn a_message_goes_each_way() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    pair.client.send(b"call").unwrap();
    let done = rig.poll();
    let [WorkCompletion::Received { buffer, len: 4, .. }] = &done[..] else { panic!("{done:?}") };
    assert_eq!(&buffer[..4], b"call");
    let work = rig.reply(&[], None);
    let done = rig.run(pair.qp, work);
    assert!(matches!(done[..], [WorkCompletion::Replied { id: 7, result: Ok(()), .. }]));
    let message = Bytes::from_static(b"reply");
    let expected = [EndpointEvent::Sent, EndpointEvent::Received { message, invalidated: None }];
    assert_eq!(pair.events(), expected);
    assert_eq!(pair.client.receives_posted(), 7);
    assert_eq!(rig.fabric.violations(), Violations::default());
}

#[test]
fn rdma_write_and_read_move_the_bytes() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let (mut source, from) = pair.region(100, Access::RemoteRead);
    source.write(10, b"data");
    let remote = RemoteMemory { address: from.address + 10, ..from };
    let work = rig.fetch(remote, 4, 2);
    let done = rig.run(pair.qp, work);
    let [WorkCompletion::Fetched { sink, result: Ok(()), .. }] = &done[..] else {
        panic!("{done:?}")
    };
    assert_eq!(&sink[..4], b"data");
    let (target, to) = pair.region(6, Access::RemoteWrite);
    let work =
        rig.reply(&[(to, b"abc"), (RemoteMemory { address: to.address + 3, ..to }, b"def")], None);
    rig.run(pair.qp, work);
    let mut seen = [0; 6];
    target.read(0, &mut seen);
    assert_eq!(&seen, b"abcdef");
}

#[test]
fn nothing_happens_before_flush() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let work = rig.reply(&[], None);
    rig.server.post(pair.qp, 1, work).unwrap();
    assert!(rig.poll().is_empty());
    assert!(pair.events().is_empty());
    rig.server.flush();
    assert_eq!(rig.poll().len(), 1);
}

#[test]
fn breaches_of_remote_memory_fail_both_ends() {
    for breach in 0..4 {
        let mut rig = Rig::new();
        let mut pair = rig.pair();
        let (_region, remote) = pair.region(8, Access::RemoteWrite);
        let work = match breach {
            0 => rig.reply(&[(RemoteMemory { rkey: remote.rkey ^ 1, ..remote }, b"x")], None),
            1 => rig.reply(&[(remote, b"123456789")], None),
            2 => rig.fetch(remote, 4, 1),
            _ => rig.reply(&[(RemoteMemory { address: remote.address - 1, ..remote }, b"x")], None),
        };
        rig.run_into(pair.qp, work, WireFault::RemoteAccess);
        assert_eq!(pair.events(), [EndpointEvent::Failed(WireFault::RemoteAccess)]);
    }
}

#[test]
fn send_with_invalidate_takes_the_key_away() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let (mut region, remote) = pair.region(8, Access::RemoteWrite);
    let work = rig.reply(&[(remote, b"x")], Some(remote.rkey));
    rig.run(pair.qp, work);
    let invalidated = Some(remote.rkey);
    let message = Bytes::from_static(b"reply");
    assert_eq!(pair.events(), [EndpointEvent::Received { message, invalidated }]);
    pair.client.refresh(&mut region).unwrap();
    assert_ne!(region.rkey(), remote.rkey);
    let work = rig.reply(&[(remote, b"x")], None);
    rig.run_into(pair.qp, work, WireFault::RemoteAccess);
}

#[test]
fn invalidating_a_wrong_key_is_fatal() {
    let mut rig = Rig::new();
    let pair = rig.pair();
    let work = rig.reply(&[], Some(0xbad));
    rig.run_into(pair.qp, work, WireFault::RemoteOperation);
}

#[test]
fn invalidate_can_be_missing_on_a_device() {
    let mut settings = FabricSettings::default();
    settings.limits.send_with_invalidate = false;
    let mut rig = Rig::with(settings);
    let pair = rig.pair();
    let work = rig.reply(&[], Some(1));
    assert!(matches!(rig.server.post(pair.qp, 1, work), Err(WireError::System { .. })));
    assert_eq!(rig.fabric.violations().invalidate_unsupported, 1);
    let work = rig.reply(&[], None);
    assert_eq!(rig.run(pair.qp, work).len(), 1);
}

#[test]
fn a_client_without_a_receive_is_fatal() {
    let mut rig = Rig::new();
    let options = ConnectOptions { receives_posted: 0, ..ConnectOptions::default() };
    let mut pair = rig.connect(4, options);
    let work = rig.reply(&[], None);
    rig.run_into(pair.qp, work, WireFault::ReceiverNotReady);
    assert_eq!(pair.events(), [EndpointEvent::Failed(WireFault::ReceiverNotReady)]);
    assert_eq!(rig.fabric.violations().receiver_not_ready, 1);
}

#[test]
fn with_retries_a_send_waits_for_the_receive() {
    let mut rig = Rig::new();
    let options = ConnectOptions { receives_posted: 0, rnr_retry: 7, ..ConnectOptions::default() };
    let mut pair = rig.connect(4, options);
    let work = rig.reply(&[], None);
    assert!(rig.run(pair.qp, work).is_empty());
    rig.server.arm(Alarm::Everything);
    pair.client.post_receive().unwrap();
    assert_eq!(rig.poll().len(), 1);
    assert_eq!(pair.events().len(), 1);
}

#[test]
fn a_server_without_a_receive_is_fatal_to_the_client() {
    let mut rig = Rig::new();
    let mut pair = rig.connect(1, ConnectOptions::default());
    pair.client.send(b"one").unwrap();
    pair.client.send(b"two").unwrap();
    let expected = [EndpointEvent::Sent, EndpointEvent::Failed(WireFault::ReceiverNotReady)];
    assert_eq!(pair.events(), expected);
    assert!(matches!(rig.events()[..], [WireEvent::Disconnected(_)]));
}

#[test]
fn with_server_retries_the_client_waits() {
    let mut rig = Rig::with(FabricSettings { server_rnr_retry: 7, ..FabricSettings::default() });
    let mut pair = rig.connect(0, ConnectOptions::default());
    pair.client.send(b"one").unwrap();
    pair.client.send(b"two").unwrap();
    assert!(rig.poll().is_empty());
    for expected in [b"one", b"two"] {
        rig.server.post_receive(pair.qp, rig.pool.take(64).unwrap()).unwrap();
        let done = rig.poll();
        let [WorkCompletion::Received { buffer, .. }] = &done[..] else { panic!("{done:?}") };
        assert_eq!(&buffer[..3], expected);
    }
}

#[test]
fn a_message_longer_than_the_servers_receive_fails_the_connection() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    pair.client.send(&[1; 5000]).unwrap();
    let done = rig.poll();
    assert_eq!(done.len(), 4);
    assert!(matches!(done[0], WorkCompletion::ReceiveFailed { fault: WireFault::LocalLength, .. }));
    assert_eq!(pair.events(), [EndpointEvent::Failed(WireFault::RemoteOperation)]);
}

#[test]
fn a_message_longer_than_the_clients_receive_fails_the_connection() {
    let mut rig = Rig::new();
    let options = ConnectOptions { receive_bytes: 4, ..ConnectOptions::default() };
    let mut pair = rig.connect(4, options);
    let work = rig.reply(&[], None);
    rig.run_into(pair.qp, work, WireFault::RemoteOperation);
    assert_eq!(pair.events(), [EndpointEvent::Failed(WireFault::LocalLength)]);
}

#[test]
fn zero_lengths_are_refused() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let (_region, remote) = pair.region(8, Access::RemoteRead);
    let empty = rig.bytes(b"x").slice(..0);
    let send = Work::Reply { writes: Vec::new(), send: empty, invalidate: None };
    for work in [send, rig.fetch(remote, 0, 1), rig.fetch(remote, 5000, 1), rig.fetch(remote, 1, 0)]
    {
        assert!(rig.server.post(pair.qp, 1, work).is_err());
    }
    assert_eq!(rig.fabric.violations().bad_length, 4);
    assert!(pair.client.send(b"").is_err());
}

#[test]
fn memory_outside_the_arena_is_refused() {
    let mut rig = Rig::new();
    let pair = rig.pair();
    let send = Bytes::from_static(b"not registered");
    let work = Work::Reply { writes: Vec::new(), send, invalidate: None };
    assert!(matches!(rig.server.post(pair.qp, 1, work), Err(WireError::NotRegistered)));
    let foreign: Lease = Pool::standalone(1 << 20).take(64).unwrap();
    assert!(matches!(rig.server.post_receive(pair.qp, foreign), Err(WireError::NotRegistered)));
    assert_eq!(rig.fabric.violations().unregistered, 2);
}

#[test]
fn queues_have_an_end_until_completions_are_polled() {
    let mut rig = Rig::new();
    let options = ConnectOptions { receives_posted: 64, ..ConnectOptions::default() };
    let pair = rig.connect(8, options);
    let extra = rig.pool.take(64).unwrap();
    assert!(matches!(rig.server.post_receive(pair.qp, extra), Err(WireError::QueueFull)));
    for id in 0..16 {
        let work = rig.reply(&[], None);
        rig.server.post(pair.qp, id, work).unwrap();
    }
    rig.server.flush();
    let work = rig.reply(&[], None);
    assert!(matches!(rig.server.post(pair.qp, 16, work), Err(WireError::QueueFull)));
    assert_eq!(rig.poll().len(), 16);
    let work = rig.reply(&[], None);
    rig.server.post(pair.qp, 17, work).unwrap();
    let violations = rig.fabric.violations();
    assert_eq!((violations.send_queue_full, violations.receive_queue_full), (1, 1));
}

#[test]
fn more_reads_than_agreed_fail_the_connection() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let (_region, remote) = pair.region(8, Access::RemoteRead);
    let work = rig.fetch(remote, 4, 4);
    assert_eq!(rig.run(pair.qp, work).len(), 1);
    let work = rig.fetch(remote, 4, 5);
    rig.run_into(pair.qp, work, WireFault::RemoteOperation);
    assert_eq!(rig.fabric.violations().reads_over_limit, 1);
}

#[test]
fn accepting_more_reads_than_offered_is_refused() {
    let mut rig = Rig::new();
    let options = ConnectOptions { reads_outstanding: 2, ..ConnectOptions::default() };
    let _client = rig.fabric.connect(peer(), b"hello", options).unwrap();
    let request = rig.request();
    let (qp, _) = rig.server.prepare(request, DEPTHS).unwrap();
    assert!(rig.server.accept(qp, b"", 3).is_err());
    assert_eq!(rig.fabric.violations().reads_over_limit, 1);
    rig.server.accept(qp, b"", 2).unwrap();
}

#[test]
fn hanging_up_flushes_only_after_our_own_disconnect() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    pair.client.disconnect();
    assert!(matches!(rig.events()[..], [WireEvent::Disconnected(_)]));
    let work = rig.reply(&[], None);
    assert!(rig.run(pair.qp, work).is_empty());
    rig.server.disconnect(pair.qp);
    let done = rig.poll();
    assert!(matches!(
        done[0],
        WorkCompletion::Replied { id: 7, result: Err(WireFault::Flushed), .. }
    ));
    assert_eq!(done.len(), 5);
    rig.server.disconnect(pair.qp);
    assert!(rig.poll().is_empty() && rig.events().is_empty());
    rig.server.destroy(pair.qp);
    assert_eq!(rig.fabric.violations(), Violations::default());
}

#[test]
fn an_unanswering_peer_can_run_out_of_retries() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    rig.fabric.inject(FaultPlan { retry_exceeded: true, ..FaultPlan::default() });
    pair.client.disconnect();
    rig.events();
    let work = rig.reply(&[], None);
    let done = rig.run(pair.qp, work);
    let retry_exceeded = Err(WireFault::RetryExceeded);
    assert!(
        matches!(&done[0], WorkCompletion::Replied { result, .. } if *result == retry_exceeded)
    );
}

#[test]
fn destroying_with_work_outstanding_is_counted() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    rig.server.destroy(pair.qp);
    assert_eq!(rig.fabric.violations().destroyed_with_work, 1);
    assert!(rig.poll().is_empty());
    assert_eq!(pair.events(), [EndpointEvent::Disconnected]);
    assert!(matches!(
        rig.server.post_receive(pair.qp, rig.pool.take(1).unwrap()),
        Err(WireError::Unknown)
    ));
}

#[test]
fn work_on_a_failed_queue_pair_comes_back_flushed() {
    let mut rig = Rig::new();
    let pair = rig.pair();
    rig.server.disconnect(pair.qp);
    rig.poll();
    rig.server.post_receive(pair.qp, rig.pool.take(64).unwrap()).unwrap();
    let work = rig.reply(&[], None);
    assert_eq!(rig.run(pair.qp, work).len(), 2);
}

#[test]
fn rejection_and_early_hang_up() {
    let mut rig = Rig::new();
    let mut client = rig.fabric.connect(peer(), b"hello", ConnectOptions::default()).unwrap();
    let request = rig.request();
    assert!(client.send(b"too early").is_err());
    rig.server.reject(request, b"no");
    let mut events = Vec::new();
    client.poll(&mut events);
    assert!(
        matches!(&events[..], [EndpointEvent::Rejected { private_data }] if private_data.starts_with(b"no"))
    );
    assert!(matches!(rig.server.prepare(request, DEPTHS), Err(WireError::Unknown)));

    let client = rig.fabric.connect(peer(), b"hello", ConnectOptions::default()).unwrap();
    let request = rig.request();
    drop(client);
    let (qp, _) = rig.server.prepare(request, DEPTHS).unwrap();
    assert!(rig.server.accept(qp, b"", 1).is_err());
    rig.server.destroy(qp);
}

#[test]
fn a_refused_depth_leaves_the_request_to_be_rejected() {
    let mut rig = Rig::new();
    let mut client = rig.fabric.connect(peer(), b"hello", ConnectOptions::default()).unwrap();
    let request = rig.request();
    let depths = QpDepths { send_requests: 1 << 20, receives: 1 };
    assert!(matches!(rig.server.prepare(request, depths), Err(WireError::System { .. })));
    rig.server.reject(request, b"");
    let mut events = Vec::new();
    client.poll(&mut events);
    assert_eq!(events.len(), 1);
}

#[test]
fn a_completion_queue_that_is_not_armed_wakes_nobody() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let lane_signaled = |rig: &Rig| rig.fabric.lock().lanes[0].completion_wake.is_signaled();
    pair.client.send(b"call").unwrap();
    assert!(!lane_signaled(&rig));
    rig.server.arm(Alarm::Everything);
    assert!(!lane_signaled(&rig), "what had completed before arming is found by polling");
    pair.client.send(b"call").unwrap();
    assert!(lane_signaled(&rig));
    assert_eq!(rig.poll().len(), 2);
    rig.server.arm(Alarm::Everything);
    assert!(!lane_signaled(&rig));
}

#[test]
fn who_asked_for_arrivals_is_not_woken_by_the_end_of_a_send() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    let lane_signaled = |rig: &Rig| rig.fabric.lock().lanes[0].completion_wake.is_signaled();
    for (alarm, woken) in [(Alarm::Arrivals, false), (Alarm::Everything, true)] {
        let work = rig.reply(&[], None);
        rig.server.arm(alarm);
        rig.server.post(pair.qp, 1, work).unwrap();
        rig.server.flush();
        assert_eq!(lane_signaled(&rig), woken);
        assert_eq!(rig.poll().len(), 1, "it is found by polling in any case");
    }
    rig.server.arm(Alarm::Arrivals);
    pair.client.send(b"call").unwrap();
    assert!(lane_signaled(&rig));
}

#[test]
fn removal_takes_everything_and_restoration_starts_anew() {
    for silent in [false, true] {
        let mut rig = Rig::new();
        let mut pair = rig.pair();
        let free = rig.pool.stats().free;
        rig.fabric.remove_device(silent);
        assert!(matches!(rig.events()[..], [WireEvent::DeviceGone]));
        let done = rig.poll();
        assert_eq!(done.len(), if silent { 0 } else { 4 });
        assert!(done.iter().all(|c| matches!(
            c,
            WorkCompletion::ReceiveFailed { fault: WireFault::DeviceGone, .. }
        )));
        drop(done);
        assert_eq!(pair.events(), [EndpointEvent::Disconnected]);
        let arena: Arc<Arena> = rig.pool.arena().clone();
        assert!(rig.fabric.provider(arena.clone()).is_err());
        assert!(rig.fabric.connect(peer(), b"", ConnectOptions::default()).is_err());
        rig.server.destroy(pair.qp);
        rig.fabric.restore_device();
        rig.server = rig.fabric.provider(arena).unwrap();
        assert!(rig.pool.stats().free[0] >= free[0] + 4, "every posted buffer came back");
        let pair = rig.pair();
        let work = rig.reply(&[], None);
        assert_eq!(rig.run(pair.qp, work).len(), 1);
        assert_eq!(rig.fabric.violations(), Violations::default());
    }
}

#[test]
fn the_nth_work_fails_on_order() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    rig.fabric.inject(FaultPlan { fail_work: Some((1, WireFault::Local)), ..FaultPlan::default() });
    let work = rig.reply(&[], None);
    assert_eq!(rig.run(pair.qp, work).len(), 1);
    let work = rig.reply(&[], None);
    rig.run_into(pair.qp, work, WireFault::Local);
    assert_eq!(pair.events().last(), Some(&EndpointEvent::Disconnected));
}

#[test]
fn held_completions_come_when_released() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    rig.fabric.inject(FaultPlan { hold_completions: true, ..FaultPlan::default() });
    pair.client.send(b"call").unwrap();
    assert!(rig.poll().is_empty());
    rig.server.arm(Alarm::Everything);
    rig.fabric.release_completions();
    assert!(rig.fabric.lock().lanes[0].completion_wake.is_signaled());
    assert_eq!(rig.poll().len(), 1);
}

#[test]
fn independent_queue_pairs_may_be_reordered_but_each_keeps_its_order() {
    let order = |seed: Option<u64>| {
        let mut rig = Rig::new();
        let pairs: Vec<Pair> = (0..6).map(|_| rig.pair()).collect();
        rig.fabric.inject(FaultPlan { reorder_seed: seed, ..FaultPlan::default() });
        for id in 0..2 {
            for pair in &pairs {
                let work = rig.reply(&[], None);
                rig.server.post(pair.qp, id, work).unwrap();
            }
        }
        rig.server.flush();
        let done = rig.poll();
        let order: Vec<_> = done
            .iter()
            .map(|c| match c {
                WorkCompletion::Replied { qp, id, .. } => (*qp, *id),
                other => panic!("{other:?}"),
            })
            .collect();
        for pair in &pairs {
            let own: Vec<u64> = order.iter().filter(|o| o.0 == pair.qp).map(|o| o.1).collect();
            assert_eq!(own, [0, 1]);
        }
        order
    };
    assert_eq!(order(Some(5)), order(Some(5)), "the same seed gives the same order");
    assert_ne!(order(Some(5)), order(None));
}

#[test]
fn other_failures_on_order() {
    let mut rig = Rig::new();
    let mut pair = rig.pair();
    rig.fabric.drop_connection(pair.qp);
    assert!(matches!(rig.events()[..], [WireEvent::Disconnected(_)]));
    assert_eq!(pair.events(), [EndpointEvent::Disconnected]);
    assert!(rig.poll().is_empty());

    let pair = rig.pair();
    rig.fabric.fail_queue_pair(pair.qp);
    assert!(matches!(rig.events()[..], [WireEvent::Failed(q)] if q == pair.qp));

    rig.fabric.fail_completion_queue(pair.qp);
    assert!(matches!(rig.events()[..], [WireEvent::DeviceGone]));
    assert!(rig.poll().is_empty());
    rig.server = rig.fabric.provider(rig.pool.arena().clone()).unwrap();
    rig.pair();
}

#[test]
fn requests_go_to_the_lanes_in_turn() {
    let mut rig = Rig::new();
    let mut second = rig.fabric.provider(rig.pool.arena().clone()).unwrap();
    let _clients: Vec<_> = (0..4)
        .map(|_| rig.fabric.connect(peer(), b"hello", ConnectOptions::default()).unwrap())
        .collect();
    let first = rig.events();
    let mut events = Vec::new();
    second.events(&mut events);
    assert_eq!((first.len(), events.len()), (2, 2));
    let WireEvent::ConnectRequest(request) = &events[0] else { panic!() };
    assert!(matches!(rig.server.prepare(request.id, DEPTHS), Err(WireError::Unknown)));
}

#[test]
fn ends_on_two_threads() {
    let mut rig = Rig::new();
    let options = ConnectOptions { receives_posted: 64, ..ConnectOptions::default() };
    let mut pair = rig.connect(4, options);
    let qp = pair.qp;
    let client = std::thread::spawn(move || {
        let mut seen = 0;
        pair.client.send(b"call").unwrap();
        while seen < 100 {
            let received = pair
                .events()
                .iter()
                .filter(|e| matches!(e, EndpointEvent::Received { .. }))
                .count();
            for _ in 0..received {
                pair.client.post_receive().unwrap();
                pair.client.send(b"call").unwrap();
            }
            seen += received;
            std::thread::yield_now();
        }
    });
    let mut replies = 0;
    while replies < 100 {
        for done in rig.poll() {
            if let WorkCompletion::Received { buffer, .. } = done {
                rig.server.post_receive(qp, buffer).unwrap();
                let work = rig.reply(&[], None);
                rig.server.post(qp, replies, work).unwrap();
                replies += 1;
            }
        }
        rig.server.flush();
        std::thread::yield_now();
    }
    client.join().unwrap();
}
