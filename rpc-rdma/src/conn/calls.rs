//! From a message to a call that is handed over.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Instant;

use buffers::Lease;
use bytes::Bytes;

use super::{
    action::Action,
    budget::reply_budget,
    connection::Connection,
    draft::Draft,
    gather::{Gather, Progress},
    settings::CALL_BYTES_MAX,
    state::State,
    table::{Call, CallId, Stage},
};
use crate::{
    chunk::ChunkLists,
    header::{self, Header, HeaderFault, Procedure},
    rpc::call::{CALL, REPLY},
    wire::WireFault,
    xdr::{Reader, Rope},
};

/// What the first words of an RPC message say about it.
enum Kind {
    Call,
    Reply,
    Neither,
}

impl Connection {
    /// Take up to `calls_max` of the messages that wait. True when there are more.
    pub fn work(&mut self, now: Instant, calls_max: usize) -> bool {
        for _ in 0..calls_max {
            if self.state() != State::Ready {
                return false;
            }
            let Some(message) = self.backlog.pop_front() else { break };
            self.message(now, message);
        }
        self.state() == State::Ready && !self.backlog.is_empty()
    }

    fn message(&mut self, now: Instant, bytes: Bytes) {
        let message = Rope::inline(bytes);
        match header::decode(&message) {
            Ok((header, at)) => self.admit(now, header, message.head.slice(at..)),
            Err(HeaderFault::Drop(_)) => {
                self.counters.dropped += 1;
                self.peer_fault(now);
            }
            Err(HeaderFault::Version { xid, version }) => {
                self.counters.version_errors += 1;
                let mut out = Vec::with_capacity(header::VERSION_ERROR_BYTES);
                header::encode_version_error(&mut out, xid, version, self.credits.granted());
                self.refuse(now, xid, out);
            }
            Err(HeaderFault::Chunk { xid, .. }) => self.refuse_chunks(now, xid),
        }
    }

    /// A header that can be used: check what RFC 8166 section 4.4 demands of the rest.
    fn admit(&mut self, now: Instant, header: Header, body: Bytes) {
        let Header { xid, procedure, mut lists, .. } = header;
        let by_chunk = lists.read.iter().any(|read| read.position == 0);
        let inline = match procedure {
            Procedure::Message => body,
            Procedure::NoMessage => Bytes::new(),
        };
        if procedure == Procedure::NoMessage && !by_chunk {
            return self.refuse_chunks(now, xid);
        }
        if !by_chunk {
            match kind(&inline, xid) {
                Kind::Call => {}
                Kind::Reply => {
                    // Nobody here calls back, so it answers nothing; it costs no credit either.
                    self.counters.dropped += 1;
                    return;
                }
                Kind::Neither => return self.refuse_chunks(now, xid),
            }
        }
        if let Some(index) = self.poisoned.iter().position(|&poisoned| poisoned == xid) {
            self.poisoned.swap_remove(index);
            return self.refuse_chunks(now, xid);
        }
        let invalidate = lists.sole_handle();
        let read = std::mem::take(&mut lists.read);
        let stage = if read.is_empty() {
            Stage::Executing
        } else {
            match Gather::new(inline.clone(), &read, CALL_BYTES_MAX) {
                Ok(gather) => Stage::Gathering(Box::new(gather)),
                Err(_) => return self.refuse_chunks(now, xid),
            }
        };
        let gathers = matches!(stage, Stage::Gathering(_));
        let Some(id) = self.begin(now, xid, lists, invalidate, stage) else { return };
        if gathers {
            self.gather_waiting.push_back(id);
            self.admit_gathers();
        } else {
            self.deliver(now, id, Rope::inline(inline));
        }
    }

    /// Enter a call and charge its credit.
    fn begin(
        &mut self,
        now: Instant,
        xid: u32,
        offered: ChunkLists,
        invalidate: Option<u32>,
        stage: Stage,
    ) -> Option<CallId> {
        if self.credits.call().is_err() {
            self.overrun(now);
            return None;
        }
        let call = Call { xid, offered, invalidate, gather_bytes: 0, posted_at: None, stage };
        let id = self.calls.insert(call);
        if id.is_none() {
            self.overrun(now);
        }
        id
    }

    fn refuse_chunks(&mut self, now: Instant, xid: u32) {
        self.counters.chunk_errors += 1;
        let mut out = Vec::with_capacity(header::CHUNK_ERROR_BYTES);
        header::encode_chunk_error(&mut out, xid, self.credits.granted());
        self.refuse(now, xid, out);
    }

    /// Answer with RDMA_ERROR. The connection stays, unless it happens too often.
    fn refuse(&mut self, now: Instant, xid: u32, error: Vec<u8>) {
        if !self.peer_fault(now) {
            return;
        }
        let draft = Stage::Preparing(Box::new(Draft::header_only(error)));
        if let Some(id) = self.begin(now, xid, ChunkLists::default(), None, draft) {
            self.ask_lease(id);
        }
    }

    /// Let waiting calls gather as far as the connection's share of the buffers goes. One that alone exceeds
    /// the share goes when nothing else does.
    pub(super) fn admit_gathers(&mut self) {
        while let Some(&id) = self.gather_waiting.front() {
            let Some(call) = self.calls.get_mut(id) else {
                self.gather_waiting.pop_front();
                continue;
            };
            let Stage::Gathering(gather) = &call.stage else {
                self.gather_waiting.pop_front();
                continue;
            };
            let bytes = gather.bytes();
            let after = self.gather_bytes + bytes;
            if after > self.settings.gather_bytes_max && self.gather_bytes > 0 {
                return;
            }
            call.gather_bytes = bytes;
            self.gather_bytes = after;
            self.gather_waiting.pop_front();
            self.ask_lease(id);
        }
    }

    /// Ask for the next buffer of a call.
    pub(super) fn ask_lease(&mut self, id: CallId) {
        let bytes = match self.calls.get(id).map(|call| &call.stage) {
            Some(Stage::Gathering(gather)) => Some(gather.sink_bytes()),
            Some(Stage::Preparing(draft)) => draft.need(),
            _ => None,
        };
        if let Some(bytes) = bytes {
            self.actions.push_back(Action::NeedLease { call: id, bytes });
        }
    }

    /// A buffer that was asked for. Dropped when the call no longer needs it.
    pub fn lease(&mut self, now: Instant, id: CallId, lease: Lease) {
        if let Some(call) = self.calls.get_mut(id) {
            match &mut call.stage {
                Stage::Gathering(gather) => {
                    gather.give(lease);
                    self.queue.fetches.push_back(id);
                    self.pump(now);
                }
                Stage::Preparing(draft) => {
                    draft.give(lease);
                    self.prepared(now, id);
                }
                Stage::Executing | Stage::Queued(_) | Stage::Sending { .. } => {}
            }
        }
    }

    /// RDMA Reads are done, or failed.
    pub fn fetched(
        &mut self,
        now: Instant,
        id: CallId,
        sink: Lease,
        result: Result<(), WireFault>,
    ) {
        self.works_posted = self.works_posted.saturating_sub(1);
        let running = matches!(self.state(), State::Ready);
        let Some(call) = self.calls.get_mut(id) else { return self.check_flushed(now) };
        call.posted_at = None;
        let xid = call.xid;
        let Stage::Gathering(gather) = &mut call.stage else { return };
        self.queue.give_reads(gather.reads_posted());
        match result {
            Ok(()) if running => match gather.fetched(sink) {
                Progress::Read => self.queue.fetches.push_front(id),
                Progress::Complete => self.gathered(now, id),
            },
            Ok(()) => {
                self.calls.remove(id);
            }
            Err(fault) => {
                self.calls.remove(id);
                self.remember(xid, fault);
                self.work_failed(now, fault);
            }
        }
        self.pump(now);
        self.check_quiet(now);
        self.check_flushed(now);
    }

    /// All chunks of a call are here.
    fn gathered(&mut self, now: Instant, id: CallId) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let xid = call.xid;
        let Stage::Gathering(gather) = std::mem::replace(&mut call.stage, Stage::Executing) else {
            return;
        };
        self.counters.read_bytes += gather.bytes() as u64;
        let message = gather.assemble();
        match kind(&message.head, xid) {
            Kind::Call => self.deliver(now, id, message),
            Kind::Reply | Kind::Neither => {
                self.peer_fault(now);
                self.abandon(id);
            }
        }
    }

    fn deliver(&mut self, now: Instant, id: CallId, message: Rope) {
        let Some(call) = self.calls.get(id) else { return };
        self.counters.calls += 1;
        let budget = reply_budget(&call.offered, &self.terms);
        self.touch(now);
        self.actions.push_back(Action::Deliver { call: id, budget, message });
    }

    /// A call whose work failed for the client's memory must not come back for ever (RFC 8166 section 4.5.3).
    pub(super) fn remember(&mut self, xid: u32, fault: WireFault) {
        if matches!(fault, WireFault::RemoteAccess | WireFault::RemoteOperation) {
            self.actions.push_back(Action::Remember { xid });
        }
    }
}

fn kind(head: &Bytes, xid: u32) -> Kind {
    let rope = Rope::inline(head.clone());
    let mut reader = Reader::new(&rope);
    match (reader.u32("xid"), reader.u32("direction")) {
        (Ok(found), Ok(CALL)) if found == xid => Kind::Call,
        (Ok(_), Ok(REPLY)) => Kind::Reply,
        _ => Kind::Neither,
    }
}
