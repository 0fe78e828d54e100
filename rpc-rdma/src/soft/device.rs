//! The device: lanes with their completion queues, queue pairs, connection requests.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use super::{
    fabric::FabricSettings,
    fault::{FaultPlan, Violations},
    queue::{Client, Phase, Posted, QueuePair},
    wake::Wake,
};
use crate::{
    endpoint::EndpointEvent,
    wire::{Alarm, ConnectRequest, QpId, WireError, WireEvent, WireFault, Work, WorkCompletion},
};

/// An entry of a completion queue, with what its polling gives back to the queue pair.
#[derive(Debug)]
pub(super) struct Entry {
    pub qp: u64,
    pub completion: WorkCompletion,
    send_requests: usize,
    reads: usize,
}

/// One provider's share: a completion queue and an event queue.
#[derive(Debug)]
pub(super) struct Lane {
    pub alive: bool,
    pub completions: VecDeque<Entry>,
    held: VecDeque<Entry>,
    pub events: VecDeque<WireEvent>,
    pub completion_wake: Wake,
    /// Which completions it is for.
    pub alarm: Alarm,
    pub event_wake: Wake,
    /// Queue pairs with work to carry out.
    pub active: Vec<u64>,
}

impl Lane {
    pub(super) fn tell(&mut self, event: WireEvent) {
        self.events.push_back(event);
        self.event_wake.signal();
    }

    fn deliver(&mut self, entry: Entry) {
        let arrived = matches!(
            entry.completion,
            WorkCompletion::Received { .. } | WorkCompletion::ReceiveFailed { .. }
        );
        self.completions.push_back(entry);
        if arrived || self.alarm == Alarm::Everything {
            self.completion_wake.happened();
        }
    }
}

/// A connection request that nobody has answered.
#[derive(Debug)]
pub(super) struct Request {
    pub lane: usize,
    pub client: u64,
}

#[derive(Debug)]
pub(super) struct Device {
    pub settings: FabricSettings,
    pub plan: FaultPlan,
    pub violations: Violations,
    pub present: bool,
    pub lanes: Vec<Lane>,
    pub queue_pairs: BTreeMap<u64, QueuePair>,
    pub clients: BTreeMap<u64, Client>,
    pub requests: BTreeMap<u64, Request>,
    last_id: u64,
    next_lane: usize,
}

pub(super) fn refused(operation: &'static str, errno: i32) -> WireError {
    WireError::System { operation, source: io::Error::from_raw_os_error(errno) }
}

impl Device {
    pub(super) fn new(settings: FabricSettings) -> Self {
        Self {
            settings,
            plan: FaultPlan::default(),
            violations: Violations::default(),
            present: true,
            lanes: Vec::new(),
            queue_pairs: BTreeMap::new(),
            clients: BTreeMap::new(),
            requests: BTreeMap::new(),
            last_id: 0,
            next_lane: 0,
        }
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Open a lane.
    pub(super) fn open_lane(&mut self) -> Result<usize, WireError> {
        if !self.present {
            return Err(refused("open device", libc::ENODEV));
        }
        let wake =
            || Wake::new().map_err(|source| WireError::System { operation: "eventfd", source });
        self.lanes.push(Lane {
            alive: true,
            completions: VecDeque::new(),
            held: VecDeque::new(),
            events: VecDeque::new(),
            completion_wake: wake()?,
            alarm: Alarm::Everything,
            event_wake: wake()?,
            active: Vec::new(),
        });
        Ok(self.lanes.len() - 1)
    }

    /// The lane that the next connection request goes to: each in turn.
    fn listening_lane(&mut self) -> Option<usize> {
        let count = self.lanes.len();
        let lane = (0..count)
            .map(|step| (self.next_lane + step) % count)
            .find(|&lane| self.lanes[lane].alive)?;
        self.next_lane = lane + 1;
        Some(lane)
    }

    /// A client knocks.
    pub(super) fn request(
        &mut self,
        client: Client,
        request: impl FnOnce(u64, &FabricSettings) -> ConnectRequest,
    ) -> Result<u64, WireError> {
        let lane = self.listening_lane().ok_or(refused("rdma_connect", libc::ECONNREFUSED))?;
        let (client_id, request_id) = (self.new_id(), self.new_id());
        self.clients.insert(client_id, client);
        self.requests.insert(request_id, Request { lane, client: client_id });
        let request = request(request_id, &self.settings);
        self.lanes[lane].tell(WireEvent::ConnectRequest(request));
        Ok(client_id)
    }

    /// The queue pair, if this lane owns it.
    pub(super) fn owned(&mut self, lane: usize, qp: QpId) -> Result<&mut QueuePair, WireError> {
        self.queue_pairs.get_mut(&qp.0).filter(|q| q.lane == lane).ok_or(WireError::Unknown)
    }

    fn complete(&mut self, lane: usize, entry: Entry) {
        let lane = &mut self.lanes[lane];
        if self.plan.hold_completions {
            lane.held.push_back(entry);
        } else {
            lane.deliver(entry);
        }
    }

    /// Let held completions through.
    pub(super) fn release_completions(&mut self) {
        for lane in &mut self.lanes {
            std::mem::take(&mut lane.held).into_iter().for_each(|entry| lane.deliver(entry));
        }
    }

    /// Give send-queue work back to its poster.
    pub(super) fn complete_work(
        &mut self,
        lane: usize,
        qp: u64,
        posted: Posted,
        result: Result<(), WireFault>,
    ) {
        let send_requests = posted.work.requests();
        let id = posted.id;
        let (completion, reads) = match posted.work {
            Work::Reply { .. } => (WorkCompletion::Replied { qp: QpId(qp), id, result }, 0),
            Work::Fetch { sink, reads } => {
                (WorkCompletion::Fetched { qp: QpId(qp), id, sink, result }, reads.len())
            }
        };
        self.complete(lane, Entry { qp, completion, send_requests, reads });
    }

    /// Give a Receive back to its poster.
    pub(super) fn complete_receive(&mut self, lane: usize, qp: u64, completion: WorkCompletion) {
        self.complete(lane, Entry { qp, completion, send_requests: 0, reads: 0 });
    }

    /// Take a finished piece of work off the lane's queue.
    pub(super) fn take_completion(&mut self, lane: usize) -> Option<WorkCompletion> {
        let entry = self.lanes[lane].completions.pop_front()?;
        if let Some(qp) = self.queue_pairs.get_mut(&entry.qp) {
            qp.send_requests_held -= entry.send_requests;
            qp.reads_held -= entry.reads;
            if entry.send_requests == 0 {
                qp.receives_held -= 1;
            }
        }
        Some(entry.completion)
    }

    /// Error state: everything posted comes back in order. Harmless twice.
    pub(super) fn flush_queue_pair(&mut self, id: u64, fault: WireFault) {
        let Some(qp) = self.queue_pairs.get_mut(&id) else { return };
        qp.phase = Phase::Error;
        qp.submitted = 0;
        let lane = qp.lane;
        let sends = std::mem::take(&mut qp.sends);
        let receives = std::mem::take(&mut qp.receives);
        for posted in sends {
            self.complete_work(lane, id, posted, Err(fault));
        }
        for buffer in receives {
            let failed = WorkCompletion::ReceiveFailed { qp: QpId(id), buffer, fault };
            self.complete_receive(lane, id, failed);
        }
    }

    /// The connection manager's event, once for a queue pair.
    pub(super) fn tell_disconnected(&mut self, id: u64) {
        let Some(qp) = self.queue_pairs.get_mut(&id) else { return };
        if qp.phase != Phase::Prepared && !std::mem::replace(&mut qp.disconnect_told, true) {
            self.lanes[qp.lane].tell(WireEvent::Disconnected(QpId(id)));
        }
    }

    /// The server hangs up.
    pub(super) fn disconnect(&mut self, id: u64) {
        let Some(qp) = self.queue_pairs.get(&id) else { return };
        let client = qp.client;
        let refused = qp.phase == Phase::Prepared;
        if !refused {
            self.tell_disconnected(id);
        }
        self.flush_queue_pair(id, WireFault::Flushed);
        if let Some(client) = self.clients.get_mut(&client) {
            client.end(match refused {
                true => EndpointEvent::Rejected { private_data: bytes::Bytes::new() },
                false => EndpointEvent::Disconnected,
            });
        }
    }

    /// The server gives a queue pair up.
    pub(super) fn destroy(&mut self, id: u64) {
        let Some(qp) = self.queue_pairs.get(&id) else { return };
        let (lane, held) = (qp.lane, qp.work_held());
        if held > 0 && self.lanes[lane].alive {
            self.violations.destroyed_with_work += 1;
        }
        self.disconnect(id);
        self.queue_pairs.remove(&id);
        self.lanes[lane].completions.retain(|entry| entry.qp != id);
        self.lanes[lane].held.retain(|entry| entry.qp != id);
    }

    /// A lane, or the device below it, is gone: nothing of it works any more.
    pub(super) fn fail_lane(&mut self, lane: usize, silent: bool) {
        if !std::mem::replace(&mut self.lanes[lane].alive, false) {
            return;
        }
        self.requests.retain(|_, request| request.lane != lane);
        let queue_pairs: Vec<(u64, u64)> = self
            .queue_pairs
            .iter()
            .filter(|(_, qp)| qp.lane == lane)
            .map(|(&id, qp)| (id, qp.client))
            .collect();
        for (id, client) in queue_pairs {
            self.flush_queue_pair(id, WireFault::DeviceGone);
            if let Some(client) = self.clients.get_mut(&client) {
                client.end(EndpointEvent::Disconnected);
            }
        }
        let lane = &mut self.lanes[lane];
        if silent {
            lane.completions.clear();
            lane.held.clear();
        }
        lane.tell(WireEvent::DeviceGone);
    }

    /// The provider of a lane was dropped.
    pub(super) fn close_lane(&mut self, lane: usize) {
        self.fail_lane(lane, true);
        self.queue_pairs.retain(|_, qp| qp.lane != lane);
        self.lanes[lane].events.clear();
    }
}
