//! A device that takes work only at the end of the turn, and then not all of it.

mod rdma_rig;

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use buffers::Lease;
use rdma_rig::*;
use rpc_rdma::{
    chunk::ChunkLists,
    client::Region,
    conn::State,
    soft::{Fabric, FabricSettings, SoftProvider},
    wire::{
        Alarm, Provider, QpDepths, QpId, WireError, WireEvent, WireFault, WireLimits, Work,
        WorkCompletion, WorkId,
    },
};

/// Takes `takes` more pieces of work.
#[derive(Debug)]
struct Late {
    device: SoftProvider,
    takes: Arc<AtomicUsize>,
    waiting: Vec<(QpId, WorkId, Work)>,
    back: Vec<WorkCompletion>,
}

impl Late {
    fn takes_one(&self) -> bool {
        self.takes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
    }
}

impl Provider for Late {
    fn name(&self) -> &str {
        "late"
    }
    fn limits(&self) -> WireLimits {
        self.device.limits()
    }
    fn prepare(&mut self, request: u64, depths: QpDepths) -> Result<(QpId, QpDepths), WireError> {
        self.device.prepare(request, depths)
    }
    fn accept(&mut self, qp: QpId, private_data: &[u8], reads: u8) -> Result<(), WireError> {
        self.device.accept(qp, private_data, reads)
    }
    fn reject(&mut self, request: u64, private_data: &[u8]) {
        self.device.reject(request, private_data);
    }
    fn post_receive(&mut self, qp: QpId, buffer: Lease) -> Result<(), WireError> {
        self.device.post_receive(qp, buffer)
    }
    fn post(&mut self, qp: QpId, id: WorkId, work: Work) -> Result<(), WireError> {
        self.waiting.push((qp, id, work));
        Ok(())
    }
    fn flush(&mut self) -> usize {
        for (qp, id, work) in std::mem::take(&mut self.waiting) {
            if self.takes_one() {
                self.device.post(qp, id, work).unwrap();
                continue;
            }
            let result = Err(WireFault::Refused);
            self.back.push(match work {
                Work::Reply { .. } => WorkCompletion::Replied { qp, id, result },
                Work::Fetch { sink, .. } => WorkCompletion::Fetched { qp, id, sink, result },
            });
        }
        self.device.flush() + self.back.len()
    }
    fn poll(&mut self, out: &mut Vec<WorkCompletion>, max: usize) {
        out.append(&mut self.back);
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
        self.flush();
        self.device.disconnect(qp);
    }
    fn destroy(&mut self, qp: QpId) {
        self.waiting.retain(|(of, ..)| *of != qp);
        self.device.destroy(qp);
    }
}

/// A lane on such a device, which takes everything at first.
fn late() -> (Rig, Arc<AtomicUsize>) {
    let mut rig = Rig::default();
    let other = Fabric::new(FabricSettings::default());
    let takes = Arc::new(AtomicUsize::new(usize::MAX));
    rig.side.add_provider(Box::new(Late {
        device: other.provider(rig.pool.arena().clone()).unwrap(),
        takes: takes.clone(),
        waiting: Vec::new(),
        back: Vec::new(),
    }));
    rig.fabric = other;
    (rig, takes)
}

#[test]
fn answers_that_the_device_did_not_take_close_their_connection_and_leave_nothing() {
    let (mut rig, takes) = late();
    let mut other = rig.connect();
    let mut client = rig.connect();
    for _ in 0..8 {
        let xid = client.xid();
        client.send(&inline(xid, ChunkLists::default(), &call(xid, HOLD, |_| {})));
    }
    rig.run();
    assert_eq!(rig.held.len(), 8);
    takes.store(5, Ordering::SeqCst);
    for ticket in std::mem::take(&mut rig.held) {
        rig.side.reply(ticket, rpc_rdma::rpc::reply::success(1).finish());
    }
    assert_eq!(rig.side.flush(), 3, "the lane must turn before it sleeps");
    takes.store(usize::MAX, Ordering::SeqCst);
    rig.run();
    assert!(!client.alive(), "it has to send the three again");
    assert_eq!(client.received.len(), 5, "those that were taken were sent");
    assert!(rig.side.connection_stats().iter().all(|stats| stats.state == State::Ready));
    assert_eq!(rig.side.connections(), 1);
    other.ping(&mut rig);
    let mut again = rig.connect();
    again.ping(&mut rig);
    drop((other, client, again));
    rig.assert_clean();
}

#[test]
fn reads_that_the_device_did_not_take_give_their_buffer_back() {
    let (mut rig, takes) = late();
    let mut client = rig.connect();
    let source = client.source(&pattern(100_000));
    let xid = client.xid();
    let mut message = call(xid, WRITE, |w| w.u32(100_000));
    let read = read_list(message.len(), segments(&source, 40_000));
    message.extend(words(&[1]));
    takes.store(0, Ordering::SeqCst);
    client.send(&inline(xid, ChunkLists { read, ..ChunkLists::default() }, &message));
    rig.run();
    assert!(!client.alive());
    assert_eq!(source.len(), 100_000);
    assert!(rig.calls.is_empty(), "nothing was executed");
    rig.assert_clean();
}
