//! Carrying out send-queue work, and the client's Sends.

use buffers::Lease;
use bytes::Bytes;

use super::{
    device::{Device, refused},
    queue::{Client, ClientPhase, Phase, Posted, RNR_RETRY_FOREVER},
};
use crate::{
    endpoint::EndpointEvent,
    wire::{QpId, RdmaRead, WireError, WireFault, Work, WorkCompletion, WorkId},
};

/// How far a piece of work came.
enum Outcome {
    Done,
    /// It waits for the peer.
    Stalled,
    Failed(WireFault),
}

impl Device {
    /// Put work on a send queue. It waits there for [`Self::submit`].
    pub(super) fn post(
        &mut self,
        lane: usize,
        qp: QpId,
        id: WorkId,
        work: Work,
    ) -> Result<(), WireError> {
        if !self.lanes[lane].alive {
            return Err(refused("ibv_post_send", libc::ENODEV));
        }
        self.check_work(&work)?;
        let requests = work.requests();
        let reads = match &work {
            Work::Fetch { reads, .. } => reads.len(),
            Work::Reply { .. } => 0,
        };
        let qp_id = qp.0;
        let qp = self.queue_pairs.get_mut(&qp_id).filter(|q| q.lane == lane);
        let qp = qp.ok_or(WireError::Unknown)?;
        if qp.phase == Phase::Prepared {
            self.violations.not_connected += 1;
            return Err(refused("ibv_post_send", libc::EINVAL));
        }
        if qp.send_requests_held + requests > qp.depths.send_requests {
            self.violations.send_queue_full += 1;
            return Err(WireError::QueueFull);
        }
        qp.send_requests_held += requests;
        qp.reads_held += reads;
        let over_limit = qp.reads_held > qp.reads_max;
        if over_limit && reads > 0 {
            self.violations.reads_over_limit += 1;
        }
        let posted = Posted { id, work, over_limit: over_limit && reads > 0, begun: false };
        if qp.phase == Phase::Error {
            self.complete_work(lane, qp_id, posted, Err(WireFault::Flushed));
            return Ok(());
        }
        qp.sends.push_back(posted);
        if !self.lanes[lane].active.contains(&qp_id) {
            self.lanes[lane].active.push(qp_id);
        }
        Ok(())
    }

    /// What no device would take, whatever the state of the connection.
    fn check_work(&mut self, work: &Work) -> Result<(), WireError> {
        let lengths_fit = match work {
            Work::Reply { writes, send, .. } => {
                !send.is_empty() && writes.iter().all(|w| !w.local.is_empty())
            }
            Work::Fetch { sink, reads } => {
                let fits = |r: &RdmaRead| {
                    r.len > 0
                        && r.sink_offset.checked_add(r.len).is_some_and(|e| e <= sink.capacity())
                };
                !reads.is_empty() && reads.iter().all(fits)
            }
        };
        if !lengths_fit {
            self.violations.bad_length += 1;
            return Err(refused("ibv_post_send", libc::EINVAL));
        }
        let invalidates = matches!(work, Work::Reply { invalidate: Some(_), .. });
        if invalidates && !self.settings.limits.send_with_invalidate {
            self.violations.invalidate_unsupported += 1;
            return Err(refused("ibv_post_send", libc::EINVAL));
        }
        Ok(())
    }

    /// Post a Receive on the server's end.
    pub(super) fn post_receive(
        &mut self,
        lane: usize,
        qp: QpId,
        buffer: Lease,
    ) -> Result<(), WireError> {
        if !self.lanes[lane].alive {
            return Err(refused("ibv_post_recv", libc::ENODEV));
        }
        let id = qp.0;
        let qp = self.queue_pairs.get_mut(&id).filter(|q| q.lane == lane);
        let qp = qp.ok_or(WireError::Unknown)?;
        if qp.receives_held >= qp.depths.receives {
            self.violations.receive_queue_full += 1;
            return Err(WireError::QueueFull);
        }
        qp.receives_held += 1;
        if qp.phase == Phase::Error {
            let fault = WireFault::Flushed;
            let failed = WorkCompletion::ReceiveFailed { qp: QpId(id), buffer, fault };
            self.complete_receive(lane, id, failed);
            return Ok(());
        }
        qp.receives.push_back(buffer);
        let client = qp.client;
        self.deliver_outgoing(client);
        Ok(())
    }

    /// Hand everything posted on a lane to the device, and carry it out.
    pub(super) fn submit(&mut self, lane: usize) {
        for i in 0..self.lanes[lane].active.len() {
            if let Some(qp) = self.queue_pairs.get_mut(&self.lanes[lane].active[i]) {
                qp.submitted = qp.sends.len();
            }
        }
        self.progress(lane);
    }

    /// Carry out what the device has of a lane.
    pub(super) fn progress(&mut self, lane: usize) {
        let mut active = std::mem::take(&mut self.lanes[lane].active);
        self.plan.order(&mut active);
        active.retain(|&qp| {
            self.progress_queue_pair(qp);
            self.queue_pairs.get(&qp).is_some_and(|qp| !qp.sends.is_empty())
        });
        self.lanes[lane].active = active;
    }

    /// Carry out what the device has of one queue pair, in order.
    pub(super) fn progress_queue_pair(&mut self, id: u64) {
        loop {
            let Some(qp) = self.queue_pairs.get_mut(&id) else { return };
            let Some(mut posted) = qp.take_submitted() else { return };
            let (lane, client) = (qp.lane, qp.client);
            match self.carry_out(id, client, &mut posted) {
                Outcome::Done => self.complete_work(lane, id, posted, Ok(())),
                Outcome::Stalled => {
                    if let Some(qp) = self.queue_pairs.get_mut(&id) {
                        qp.put_back(posted);
                    }
                    return;
                }
                Outcome::Failed(fault) => {
                    self.complete_work(lane, id, posted, Err(fault));
                    self.flush_queue_pair(id, WireFault::Flushed);
                    if let Some(client) = self.clients.get_mut(&client) {
                        client.end(EndpointEvent::Disconnected);
                    }
                    self.tell_disconnected(id);
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, qp: u64, client: u64, posted: &mut Posted) -> Outcome {
        if !posted.begun
            && let Some(fault) = self.plan.next_work()
        {
            return Outcome::Failed(fault);
        }
        let client = self.clients.get_mut(&client).filter(|c| c.phase == ClientPhase::Connected);
        let Some(client) = client else {
            posted.begun = true;
            return match self.plan.retry_exceeded {
                true => Outcome::Failed(WireFault::RetryExceeded),
                false => Outcome::Stalled,
            };
        };
        let begun = std::mem::replace(&mut posted.begun, true);
        if posted.over_limit {
            client.fail(WireFault::RemoteOperation);
            return Outcome::Failed(WireFault::RemoteOperation);
        }
        let result = match &mut posted.work {
            Work::Fetch { sink, reads } => fetch(client, sink, reads),
            Work::Reply { writes, send, invalidate } => {
                let written = match begun {
                    true => Ok(()),
                    false => writes.iter().try_for_each(|w| client.keys.write(w.remote, &w.local)),
                };
                match written {
                    Ok(()) if client.receives == 0 => return self.not_ready(qp),
                    Ok(()) => deliver(client, send, *invalidate),
                    Err(fault) => Err(fault),
                }
            }
        };
        match result {
            Ok(()) => Outcome::Done,
            Err(fault) => {
                client.fail(fault);
                Outcome::Failed(fault)
            }
        }
    }

    /// The client has no Receive for a message of ours.
    fn not_ready(&mut self, qp: u64) -> Outcome {
        self.violations.receiver_not_ready += 1;
        let Some(qp) = self.queue_pairs.get_mut(&qp) else { return Outcome::Stalled };
        match (qp.rnr_retry, qp.rnr_left) {
            (RNR_RETRY_FOREVER, _) => Outcome::Stalled,
            (_, 0) => {
                if let Some(client) = self.clients.get_mut(&qp.client) {
                    client.fail(WireFault::ReceiverNotReady);
                }
                Outcome::Failed(WireFault::ReceiverNotReady)
            }
            _ => {
                qp.rnr_left -= 1;
                Outcome::Stalled
            }
        }
    }

    /// Deliver the client's waiting Sends for which the server has Receives.
    pub(super) fn deliver_outgoing(&mut self, client: u64) {
        while let Some(c) = self.clients.get_mut(&client)
            && let Some(message) = c.outgoing.pop_front()
        {
            if !self.deliver_to_server(client, &message) {
                if let Some(c) = self.clients.get_mut(&client)
                    && c.phase == ClientPhase::Connected
                {
                    c.outgoing.push_front(message);
                }
                return;
            }
        }
    }

    /// Deliver one Send of a client. False when it has to wait or the connection ended over it.
    pub(super) fn deliver_to_server(&mut self, client: u64, message: &[u8]) -> bool {
        let Some(c) = self.clients.get_mut(&client) else { return false };
        let Some(id) = c.queue_pair else { return false };
        let qp = self.queue_pairs.get_mut(&id).filter(|qp| qp.phase == Phase::Connected);
        let Some(qp) = qp else { return false };
        let lane = qp.lane;
        let Some(mut buffer) = qp.receives.pop_front() else {
            match c.rnr_left {
                RNR_RETRY_FOREVER => {}
                0 => {
                    c.fail(WireFault::ReceiverNotReady);
                    self.tell_disconnected(id);
                }
                _ => c.rnr_left -= 1,
            }
            return false;
        };
        let qp = QpId(id);
        let Some(target) = buffer.get_mut(..message.len()) else {
            c.fail(WireFault::RemoteOperation);
            let fault = WireFault::LocalLength;
            let failed = WorkCompletion::ReceiveFailed { qp, buffer, fault };
            self.complete_receive(lane, id, failed);
            self.flush_queue_pair(id, WireFault::Flushed);
            self.tell_disconnected(id);
            return false;
        };
        target.copy_from_slice(message);
        c.tell(EndpointEvent::Sent);
        let received = WorkCompletion::Received { qp, buffer, len: message.len() };
        self.complete_receive(lane, id, received);
        true
    }
}

/// RDMA Reads into a sink.
fn fetch(client: &Client, sink: &mut Lease, reads: &[RdmaRead]) -> Result<(), WireFault> {
    reads.iter().try_for_each(|read| {
        let part = sink.get_mut(read.sink_offset..read.sink_offset + read.len);
        client.keys.read(read.remote, part.ok_or(WireFault::Local)?)
    })
}

/// A message of the server, for which the client has a Receive.
fn deliver(client: &mut Client, send: &Bytes, invalidate: Option<u32>) -> Result<(), WireFault> {
    if send.len() > client.options.receive_bytes {
        client.fail(WireFault::LocalLength);
        return Err(WireFault::RemoteOperation);
    }
    if let Some(rkey) = invalidate
        && !client.keys.invalidate(rkey)
    {
        return Err(WireFault::RemoteOperation);
    }
    client.receives -= 1;
    client.tell(EndpointEvent::Received {
        message: Bytes::copy_from_slice(send),
        invalidated: invalidate,
    });
    Ok(())
}
