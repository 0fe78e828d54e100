//! From the work of a lane to the device, in one call for each queue pair and turn; and back, when the device
//! does not take it.

#![allow(unsafe_code)]

use std::mem;

use buffers::Lease;

use super::{
    batch::{Refusal, Taken},
    chain::Place,
    completions::Completion,
    lane::{LaneProvider, leak},
    queue::QueuePair,
    slots::{Owner, Posted},
};
use crate::{
    log_rate::LogRate,
    wire::{QpId, WireError, WireFault, WorkCompletion, WorkId},
};

impl LaneProvider {
    fn queue_pair(&mut self, qp: QpId) -> Option<&mut QueuePair> {
        self.connections.get_mut(&qp)?.qp.as_mut()
    }

    /// See to it that so many more may wait.
    fn make_room(&mut self, qp: QpId, sends: usize, receives: usize) -> Result<(), WireError> {
        let connection = self.connections.get(&qp).ok_or(WireError::Unknown)?;
        let queue = connection.qp.as_ref().ok_or(WireError::Unknown)?;
        let depths = &connection.depths;
        if connection.sends_posted + sends > depths.send_requests
            || connection.receives_posted + receives > depths.receives
        {
            return Err(WireError::QueueFull);
        }
        if !queue.has_room(sends, receives) {
            self.submit(qp);
        }
        Ok(())
    }

    /// Note that something waits for [`Self::submit_all`].
    fn list(&mut self, qp: QpId) {
        if let Some(connection) = self.connections.get_mut(&qp)
            && !mem::replace(&mut connection.waits, true)
        {
            self.waiting.push(qp);
        }
    }

    /// Let `chain` wait for the end of the turn. What it works on is `owner`'s.
    pub(super) fn queue_chain(
        &mut self,
        qp: QpId,
        id: WorkId,
        owner: Owner,
    ) -> Result<(), WireError> {
        let requests = self.chain.len();
        self.make_room(qp, requests, 0)?;
        let connection = self.connections.get_mut(&qp).ok_or(WireError::Unknown)?;
        let queue = connection.qp.as_mut().ok_or(WireError::Unknown)?;
        let posted = Posted::Chain { qp, id, requests, owner, fault: None };
        let slot = self.slots.insert(posted).ok_or(WireError::QueueFull)?;
        for request in &mut self.chain {
            request.wr_id = slot.wr_id(request.signaled);
        }
        queue.queue_chain(&self.chain);
        connection.sends_posted += requests;
        self.list(qp);
        Ok(())
    }

    /// Let a Receive wait for the end of the turn.
    pub(super) fn queue_receive(
        &mut self,
        qp: QpId,
        buffer: Lease,
        place: Place,
    ) -> Result<(), WireError> {
        self.make_room(qp, 0, 1)?;
        let connection = self.connections.get_mut(&qp).ok_or(WireError::Unknown)?;
        let queue = connection.qp.as_mut().ok_or(WireError::Unknown)?;
        let slot = self.slots.insert(Posted::Receive { qp, buffer }).ok_or(WireError::QueueFull)?;
        queue.queue_receive(slot.wr_id(true), place.address, place.len, place.lkey);
        connection.receives_posted += 1;
        self.list(qp);
        Ok(())
    }

    /// Hand everything that waits to the device.
    pub(super) fn submit_all(&mut self) {
        let mut waiting = mem::take(&mut self.waiting);
        for qp in waiting.drain(..) {
            if let Some(connection) = self.connections.get_mut(&qp) {
                connection.waits = false;
            }
            self.submit(qp);
        }
        self.waiting = waiting;
    }

    /// Hand everything that waits for one queue pair to the device. What it does not take is reported as
    /// failed.
    pub(super) fn submit(&mut self, qp: QpId) {
        let mut invalidate = self.send_with_invalidate;
        let Some(queue) = self.queue_pair(qp) else { return };
        // Receives first: with a reply goes the credit for the next call, which needs one.
        //
        // SAFETY: the memory belongs to the owners in the slots, which stay there until the last request of
        // the chain has completed or the queue pair is destroyed; a lease is the only access to its memory.
        let receives = unsafe { queue.post_receives() };
        let lost = matches!(&receives, Err(Refusal { taken: Taken::Unknown, .. }));
        let sends = match lost {
            true => Ok(()),
            // SAFETY: as above.
            false => unsafe { queue.post_sends(&mut invalidate) },
        };
        if invalidate != self.send_with_invalidate {
            tracing::info!(device = self.name, "Send with Invalidate refused; using plain Send");
            self.send_with_invalidate = invalidate;
        }
        for refusal in [receives, sends].into_iter().filter_map(Result::err) {
            self.refused(qp, &refusal);
        }
    }

    /// The device did not take all.
    fn refused(&mut self, qp: QpId, Refusal { taken, error }: &Refusal) {
        static RATE: LogRate = LogRate::per_second();
        if let Some(left_out) = RATE.next() {
            let device = &self.name;
            tracing::warn!(device, ?taken, left_out, "cannot post to a queue pair: {error}");
        }
        if let Some(connection) = self.connections.get_mut(&qp) {
            connection.refused = true;
        }
        match taken {
            // The connection closes when it hears of it; what the device has comes back by itself.
            Taken::Chains => self.give_back(qp, WireFault::Refused),
            // The device works on something whose end nothing will ever report. Only the end of the queue pair
            // makes the memory ours again.
            Taken::Torn | Taken::Unknown => self.condemn(qp, WireFault::Refused),
        }
    }

    /// Report everything that waits as failed: the device has nothing of it.
    fn give_back(&mut self, qp: QpId, fault: WireFault) {
        let numbers = self.queue_pair(qp).map(QueuePair::discard).unwrap_or_default();
        for wr_id in numbers {
            let done = self.finish(Completion { wr_id, result: Err(fault) });
            self.ready.extend(done);
        }
    }

    /// Destroy the queue pair now and report everything that it had as failed.
    pub(super) fn condemn(&mut self, id: QpId, fault: WireFault) {
        self.give_back(id, fault);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(qp) = connection.qp.take() else { return };
        connection.handle.disconnect();
        connection.disconnected = true;
        connection.sends_posted = 0;
        connection.receives_posted = 0;
        self.sent.linger(connection.depths.send_requests);
        self.arrived.linger(connection.depths.receives);
        let posted = self.slots.take_all_of(id);
        match qp.destroy() {
            Ok(()) => self.ready.extend(posted.into_iter().map(|p| p.complete(Err(fault)))),
            Err(error) => leak(&self.name, posted, &error),
        }
    }

    /// A work request has ended. Returns the piece of work that is complete with it.
    pub(super) fn finish(&mut self, completion: Completion) -> Option<WorkCompletion> {
        let found = self.slots.completed(completion.wr_id, completion.result);
        let (posted, result) = found?;
        match &posted {
            Posted::Receive { qp, .. } => {
                if let Some(connection) = self.connections.get_mut(qp) {
                    connection.receives_posted = connection.receives_posted.saturating_sub(1);
                }
            }
            Posted::Chain { qp, requests, .. } => {
                if let Some(connection) = self.connections.get_mut(qp) {
                    connection.sends_posted = connection.sends_posted.saturating_sub(*requests);
                }
            }
        }
        Some(posted.complete(result))
    }
}
