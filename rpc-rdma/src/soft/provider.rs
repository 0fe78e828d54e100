//! The server's side: the provider of one lane.

use std::{os::fd::OwnedFd, sync::Arc};

use buffers::{Arena, Lease};

use super::{
    Fabric,
    device::refused,
    fabric::padded,
    queue::{ClientPhase, Phase, QueuePair},
};
use crate::{
    endpoint::EndpointEvent,
    wire::{
        Alarm, PRIVATE_DATA_BYTES_MAX, Provider, QpDepths, QpId, WireError, WireEvent, WireLimits,
        Work, WorkCompletion, WorkId,
    },
};

/// One lane's view of the fabric's device.
#[derive(Debug)]
pub struct SoftProvider {
    fabric: Arc<Fabric>,
    arena: Arc<Arena>,
    lane: usize,
    name: String,
    limits: WireLimits,
    wake_fds: [Arc<OwnedFd>; 2],
}

impl SoftProvider {
    pub(super) fn open(fabric: Arc<Fabric>, arena: Arc<Arena>) -> Result<Self, WireError> {
        let mut device = fabric.lock();
        let lane = device.open_lane()?;
        let name = format!("soft0/1 {} lane {lane}", device.settings.address);
        let limits = device.settings.limits;
        let queues = &device.lanes[lane];
        let wake_fds = [queues.completion_wake.shared_fd(), queues.event_wake.shared_fd()];
        drop(device);
        Ok(Self { fabric, arena, lane, name, limits, wake_fds })
    }

    /// Whether a lease lies in the arena that this provider has registered.
    fn is_registered(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(lease.pool().arena(), &self.arena)
    }
}

impl Drop for SoftProvider {
    fn drop(&mut self) {
        self.fabric.lock().close_lane(self.lane);
    }
}

impl Provider for SoftProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> WireLimits {
        self.limits
    }

    fn prepare(&mut self, request: u64, depths: QpDepths) -> Result<(QpId, QpDepths), WireError> {
        let limits = self.limits;
        let mut device = self.fabric.lock();
        let known = device.requests.get(&request).filter(|r| r.lane == self.lane);
        let client_id = known.ok_or(WireError::Unknown)?.client;
        let too_deep = depths.send_requests > limits.send_requests_max
            || depths.receives > limits.receives_max
            || depths.send_requests == 0
            || depths.receives == 0;
        if too_deep {
            return Err(refused("rdma_create_qp", libc::ENOMEM));
        }
        let depths = QpDepths {
            send_requests: depths.send_requests.next_power_of_two().min(limits.send_requests_max),
            receives: depths.receives.next_power_of_two().min(limits.receives_max),
        };
        device.requests.remove(&request);
        let id = device.new_id();
        let options = device.clients.get_mut(&client_id).map(|client| {
            client.queue_pair = Some(id);
            client.options
        });
        let options = options.unwrap_or_default();
        let queue_pair = QueuePair {
            lane: self.lane,
            client: client_id,
            phase: Phase::Prepared,
            depths,
            reads_offered: options.reads_outstanding,
            reads_max: 0,
            rnr_retry: options.rnr_retry,
            rnr_left: options.rnr_retry,
            sends: Default::default(),
            submitted: 0,
            receives: Default::default(),
            send_requests_held: 0,
            reads_held: 0,
            receives_held: 0,
            disconnect_told: false,
        };
        device.queue_pairs.insert(id, queue_pair);
        Ok((QpId(id), depths))
    }

    fn accept(
        &mut self,
        qp: QpId,
        private_data: &[u8],
        reads_outstanding: u8,
    ) -> Result<(), WireError> {
        let reads_limit = self.limits.reads_outstanding_max;
        let mut device = self.fabric.lock();
        let rnr_retry = device.settings.server_rnr_retry;
        let queue_pair = device.owned(self.lane, qp)?;
        let offered = usize::from(queue_pair.reads_offered).min(reads_limit);
        if usize::from(reads_outstanding) > offered {
            device.violations.reads_over_limit += 1;
            return Err(refused("rdma_accept", libc::EINVAL));
        }
        if private_data.len() > PRIVATE_DATA_BYTES_MAX || queue_pair.phase != Phase::Prepared {
            return Err(refused("rdma_accept", libc::EINVAL));
        }
        let client = queue_pair.client;
        let client = device.clients.get_mut(&client);
        let Some(client) = client.filter(|c| c.phase == ClientPhase::Connecting) else {
            return Err(refused("rdma_accept", libc::ECONNRESET));
        };
        client.phase = ClientPhase::Connected;
        client.rnr_left = rnr_retry;
        let private_data = padded(private_data, PRIVATE_DATA_BYTES_MAX);
        client.tell(EndpointEvent::Connected { private_data });
        let queue_pair = device.owned(self.lane, qp)?;
        queue_pair.phase = Phase::Connected;
        queue_pair.reads_max = usize::from(reads_outstanding);
        device.lanes[self.lane].tell(WireEvent::Established(qp));
        Ok(())
    }

    fn reject(&mut self, request: u64, private_data: &[u8]) {
        let mut device = self.fabric.lock();
        if device.requests.get(&request).is_none_or(|r| r.lane != self.lane) {
            return;
        }
        let Some(request) = device.requests.remove(&request) else { return };
        if let Some(client) = device.clients.get_mut(&request.client) {
            let private_data = padded(private_data, PRIVATE_DATA_BYTES_MAX);
            client.end(EndpointEvent::Rejected { private_data });
        }
    }

    fn post_receive(&mut self, qp: QpId, buffer: Lease) -> Result<(), WireError> {
        let registered = self.is_registered(&buffer);
        let mut device = self.fabric.lock();
        if !registered {
            device.violations.unregistered += 1;
            return Err(WireError::NotRegistered);
        }
        device.post_receive(self.lane, qp, buffer)
    }

    fn post(&mut self, qp: QpId, id: WorkId, work: Work) -> Result<(), WireError> {
        let registered = match &work {
            Work::Reply { writes, send, .. } => {
                self.arena.locate(send).is_some()
                    && writes.iter().all(|w| self.arena.locate(&w.local).is_some())
            }
            Work::Fetch { sink, .. } => self.is_registered(sink),
        };
        let mut device = self.fabric.lock();
        if !registered {
            device.violations.unregistered += 1;
            return Err(WireError::NotRegistered);
        }
        device.post(self.lane, qp, id, work)
    }

    fn flush(&mut self) -> usize {
        self.fabric.lock().submit(self.lane);
        // Whatever comes back announces itself.
        0
    }

    fn poll(&mut self, out: &mut Vec<WorkCompletion>, max: usize) {
        let mut device = self.fabric.lock();
        device.progress(self.lane);
        out.extend((0..max).map_while(|_| device.take_completion(self.lane)));
    }

    fn events(&mut self, out: &mut Vec<WireEvent>) {
        let mut device = self.fabric.lock();
        let lane = &mut device.lanes[self.lane];
        lane.event_wake.clear();
        out.extend(lane.events.drain(..));
    }

    fn arm(&mut self, alarm: Alarm) {
        let mut device = self.fabric.lock();
        let lane = &mut device.lanes[self.lane];
        lane.alarm = alarm;
        lane.completion_wake.arm();
    }

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.wake_fds.to_vec()
    }

    fn disconnect(&mut self, qp: QpId) {
        let mut device = self.fabric.lock();
        if device.owned(self.lane, qp).is_ok() {
            device.disconnect(qp.0);
        }
    }

    fn destroy(&mut self, qp: QpId) {
        let mut device = self.fabric.lock();
        if device.owned(self.lane, qp).is_ok() {
            device.destroy(qp.0);
        }
    }
}
