//! From a reply to a completed Send, and everything that goes through the send queue.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Instant;

use super::{
    action::Action,
    connection::Connection,
    draft::{Draft, Misfit, Offer},
    state::State,
    table::{CallId, Stage},
};
use crate::{
    header,
    rpc::{AcceptError, reply},
    wire::{WireFault, Work},
    xdr::Rope,
};

impl Connection {
    /// The program's answer to a call. Late ones are ignored.
    pub fn reply(&mut self, id: CallId, message: Rope) {
        let Some(call) = self.calls.get(id) else { return };
        if !matches!(call.stage, Stage::Executing) {
            return;
        }
        let offer = Offer {
            xid: call.xid,
            lists: &call.offered,
            invalidate: call.invalidate,
            credits: self.credits.granted(),
        };
        let xid = call.xid;
        let plan = |message: &Rope| Draft::plan(message, offer, &self.terms, &self.arena);
        let planned = match plan(&message) {
            Err(Misfit::WriteChunk) => {
                let error = plan(&reply::error(xid, AcceptError::SystemError));
                error.map(|draft| (draft, true))
            }
            other => other.map(|draft| (draft, false)),
        };
        let draft = match planned {
            Ok((draft, misfit)) => {
                self.counters.misfits += u64::from(misfit);
                self.counters.written_bytes += draft.placed_bytes() as u64;
                let kind = if draft.is_long() {
                    &mut self.counters.replies_long
                } else {
                    &mut self.counters.replies_inline
                };
                *kind += 1;
                draft
            }
            Err(_) => {
                self.counters.misfits += 1;
                self.chunk_error(xid)
            }
        };
        self.prepare(id, draft);
    }

    /// A call that gets no RPC answer: it gets ERR_CHUNK, because its credit has to come back.
    pub fn abandon(&mut self, id: CallId) {
        let Some(call) = self.calls.get(id) else { return };
        if matches!(call.stage, Stage::Executing) {
            let draft = self.chunk_error(call.xid);
            self.prepare(id, draft);
        }
    }

    fn chunk_error(&mut self, xid: u32) -> Draft {
        self.counters.chunk_errors += 1;
        let mut out = Vec::with_capacity(header::CHUNK_ERROR_BYTES);
        header::encode_chunk_error(&mut out, xid, self.credits.granted());
        Draft::header_only(out)
    }

    fn prepare(&mut self, id: CallId, draft: Draft) {
        let Some(call) = self.calls.get_mut(id) else { return };
        call.stage = Stage::Preparing(Box::new(draft));
        self.gather_bytes = self.gather_bytes.saturating_sub(call.gather_bytes);
        call.gather_bytes = 0;
        self.ask_lease(id);
        self.admit_gathers();
    }

    /// A draft has got a buffer: queue it when that was the last.
    pub(super) fn prepared(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let complete = matches!(&call.stage, Stage::Preparing(draft) if draft.need().is_none());
        if !complete {
            return self.ask_lease(id);
        }
        let Stage::Preparing(draft) = std::mem::replace(&mut call.stage, Stage::Executing) else {
            return;
        };
        match draft.build() {
            Some(work) => {
                call.stage = Stage::Queued(work);
                self.queue.replies.push_back(id);
                self.pump(now);
            }
            // A buffer smaller than asked for: the driver's bug, but the client must not wait for ever.
            None => self.close(now, super::CloseReason::Refused),
        }
    }

    /// Post what fits: replies first, then RDMA Reads if no reply had to stay.
    pub(super) fn pump(&mut self, now: Instant) {
        if !matches!(self.state(), State::Ready | State::Draining) {
            return;
        }
        while let Some(&id) = self.queue.replies.front() {
            if !self.post_reply(now, id) {
                return;
            }
            self.queue.replies.pop_front();
        }
        while let Some(&id) = self.queue.fetches.front() {
            let room = self.queue.reads_room();
            if room == 0 {
                return;
            }
            self.queue.fetches.pop_front();
            self.post_reads(now, id, room);
        }
    }

    /// Post a reply. False when it has to wait for room.
    fn post_reply(&mut self, now: Instant, id: CallId) -> bool {
        let Some(call) = self.calls.get_mut(id) else { return true };
        let requests = match &call.stage {
            Stage::Queued(work) => work.requests(),
            _ => return true,
        };
        if !self.queue.take_reply(requests) {
            return false;
        }
        let stage = std::mem::replace(&mut call.stage, Stage::Sending { requests });
        let Stage::Queued(work) = stage else { return true };
        if matches!(work, Work::Reply { invalidate: Some(_), .. }) {
            self.counters.invalidations += 1;
        }
        call.posted_at = Some(now);
        self.works_posted += 1;
        self.actions.push_back(Action::Post(id, work));
        // From here on the client may see the reply and use its credit again.
        self.credits.answered();
        true
    }

    fn post_reads(&mut self, now: Instant, id: CallId, room: usize) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let Stage::Gathering(gather) = &mut call.stage else { return };
        let Some((sink, reads)) = gather.batch(room) else { return };
        self.queue.take_reads(reads.len());
        call.posted_at = Some(now);
        self.works_posted += 1;
        self.actions.push_back(Action::Post(id, Work::Fetch { sink, reads }));
    }

    /// A reply was sent, or failed.
    pub fn replied(&mut self, now: Instant, id: CallId, result: Result<(), WireFault>) {
        self.works_posted = self.works_posted.saturating_sub(1);
        if let Some(call) = self.calls.remove(id) {
            if let Stage::Sending { requests } = call.stage {
                self.queue.give_reply(requests);
            }
            if let Err(fault) = result {
                self.remember(call.xid, fault);
                self.work_failed(now, fault);
            }
        }
        self.pump(now);
        self.check_quiet(now);
        self.check_flushed(now);
    }

    /// Work could not be posted; what it owned is gone.
    pub fn work_refused(&mut self, now: Instant, id: CallId) {
        self.works_posted = self.works_posted.saturating_sub(1);
        self.calls.remove(id);
        self.close(now, super::CloseReason::Refused);
        self.check_flushed(now);
    }
}
