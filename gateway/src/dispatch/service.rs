//! The programs of one lane.
//!
//! A call comes in, is decoded and admitted, and becomes one operation of a backend (MOUNT: a few in a row).
//! It either finishes at once or stays in flight until the backend reports. Every call gets exactly one
//! reply: whatever goes wrong on the way, up to a panic in a backend, becomes an answer of its program.

use std::{
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use backends::{
    BackendError, Completion, ErrorKind, LaneResources, Operation, Request as BackendRequest, Token,
};
use buffers::{Lease, PagePool};
use bytes::Bytes;
use rpc_rdma::{
    driver::LogRate,
    rpc::{AcceptError, Call, reply, reply::ACCEPTED_BYTES},
    service::{Begun, Peer, ReplyBudget, Service, Ticket, Transport},
    xdr::Rope,
};

use super::{
    Shared,
    admission::Admission,
    attachments::Attachments,
    bulk,
    calls::{Calls, InFlight, Job},
    inbox::Inbox,
    reply_cache::{self, Key, Waiter},
    route::{Route, route},
    starved::{Grant, Starved, Waiting},
};
use crate::{
    config::memory::PIPES_MAX,
    exports::ExportsReader,
    mount::Step,
    nfs3::{self, Done, Plan, Reply, Request, Scope, Status},
};

/// Smaller READs are copied: that is as fast as sending them by reference, and takes no pipe.
const BY_PAGE_BYTES_MIN: u32 = (64 << 10) + 1;

/// Serves the calls of one lane. Lives on the lane's thread.
#[derive(Debug)]
pub struct LaneService {
    pub(super) shared: Arc<Shared>,
    pub(super) exports: ExportsReader,
    pub(super) resources: LaneResources,
    pub(super) attachments: Attachments,
    pub(super) calls: Calls,
    starved: Starved,
    page_pool: Arc<PagePool>,
    inbox: Arc<Inbox>,
    completions: Vec<Completion>,
    last_warning: Option<Instant>,
    pub(super) refused_mounts: LogRate,
}

/// What is known of a call besides its arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) ticket: Ticket,
    pub(super) peer: &'a Peer,
    pub(super) budget: ReplyBudget,
    pub(super) call: &'a Call,
}

impl Origin<'_> {
    pub(super) fn xid(&self) -> u32 {
        self.call.header.xid
    }
}

/// Run `step`; a panic in it is logged and counted, and gives `None`.
fn guarded<T>(shared: &Shared, step: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(step)).ok();
    if result.is_none() {
        shared.metrics.panics.add();
        tracing::error!("a panic in a call was caught; the call fails, the rest goes on");
    }
    result
}

impl LaneService {
    /// The service of the lane that `resources` belong to; made on that lane's thread. The pool's release
    /// hook has to wake the lane, so that reads that wait for memory go on.
    ///
    /// # Errors
    /// None at present: an export whose backend cannot be attached is tried again with each call.
    pub fn new(shared: Arc<Shared>, resources: LaneResources) -> io::Result<Self> {
        let mut exports = ExportsReader::new(Arc::clone(&shared.exports));
        let mut attachments = Attachments::default();
        attachments.follow(exports.table(), &resources);
        Ok(Self {
            starved: Starved::new(Arc::clone(&resources.pool), shared.limits.waiting_reads_max),
            page_pool: PagePool::new(PIPES_MAX),
            inbox: Arc::new(Inbox::new(resources.waker.clone())),
            exports,
            resources,
            attachments,
            shared,
            calls: Calls::default(),
            completions: Vec::new(),
            last_warning: None,
            refused_mounts: LogRate::per_second(),
        })
    }

    /// Calls in flight.
    pub fn in_flight(&self) -> usize {
        self.calls.len()
    }

    fn follow_exports(&mut self) {
        if self.exports.refresh() {
            self.attachments.follow(self.exports.table(), &self.resources);
        }
    }

    fn begin(&mut self, origin: Origin<'_>) -> Option<Rope> {
        self.follow_exports();
        match route(&origin.call.header) {
            Route::Null => {
                if origin.call.header.program == nfs3::types::PROGRAM {
                    self.shared.metrics.nfs3_call(origin.call.header.procedure);
                } else {
                    self.shared.metrics.mount_calls.add();
                }
                Some(reply::success(origin.xid()).finish())
            }
            Route::Nfs3 => self.begin_nfs3(origin),
            Route::Mount(procedure) => self.begin_mount(origin, procedure),
            Route::Refuse(error) => {
                self.shared.metrics.unserved.add();
                Some(reply::error(origin.xid(), error))
            }
        }
    }

    fn begin_nfs3(&mut self, origin: Origin<'_>) -> Option<Rope> {
        let procedure = origin.call.header.procedure;
        self.shared.metrics.nfs3_call(procedure);
        let decoded = guarded(&self.shared, || Request::decode(procedure, origin.call.args()));
        let request = match decoded {
            Some(Ok(Some(request))) => request,
            Some(Ok(None)) => {
                return Some(reply::error(origin.xid(), AcceptError::ProcedureUnavailable));
            }
            Some(Err(error)) => {
                self.shared.metrics.garbage.add();
                tracing::debug!(%error, procedure = nfs3::procedure_name(procedure), "bad arguments");
                return Some(reply::error(origin.xid(), AcceptError::GarbageArguments));
            }
            None => return Some(reply::error(origin.xid(), AcceptError::SystemError)),
        };
        let cached = if nfs3::cacheable(procedure) {
            match self.recognise(origin) {
                Ok(cached) => cached,
                Err(replayed) => return replayed,
            }
        } else {
            None
        };
        self.carry_out(origin, request, cached)
    }

    /// Whether the call is a repetition. `Ok`: it is not, and its reply is to be kept under this key.
    /// `Err`: it is, and this is the reply, or it waits for one.
    fn recognise(&self, origin: Origin<'_>) -> Result<Option<Key>, Option<Rope>> {
        let key = self.shared.reply_cache.key(origin.peer, origin.call);
        let waiter = Waiter { inbox: Arc::clone(&self.inbox), ticket: origin.ticket };
        match self.shared.reply_cache.begin(key, waiter, Instant::now()) {
            reply_cache::Admission::New => Ok(Some(key)),
            reply_cache::Admission::Uncached => Ok(None),
            reply_cache::Admission::Joined(dropped) => {
                self.shared.metrics.joined.add();
                if let Some(waiter) = dropped {
                    let rope = reply::error(key.xid(), AcceptError::SystemError);
                    waiter.inbox.put(waiter.ticket, rope);
                }
                Err(None)
            }
            reply_cache::Admission::Replay(body) => {
                self.shared.metrics.replays.add();
                Err(Some(with_body(origin.xid(), &body)))
            }
        }
    }

    fn carry_out(
        &mut self,
        origin: Origin<'_>,
        mut request: Request,
        cached: Option<Key>,
    ) -> Option<Rope> {
        let planned = self.plan(origin, &mut request);
        let (scope, plan, attachment) = match planned {
            Ok(planned) => planned,
            Err(status) => {
                let procedure = origin.call.header.procedure;
                return Some(self.fail(origin.xid(), procedure, status, cached));
            }
        };
        let token = self.calls.insert(InFlight {
            ticket: origin.ticket,
            xid: origin.xid(),
            procedure: origin.call.header.procedure,
            job: Job::Nfs3 { request, scope },
            attachment,
            cached,
        });
        match plan {
            Plan::Ask(operation) => self.drive(token, operation),
            Plan::Read { offset, count } => {
                let count = count.min(self.starved.read_bytes_max());
                let by_page = origin.peer.transport == Transport::Tcp;
                self.read(Waiting { token, offset, count, by_page })
            }
        }
    }

    fn plan(
        &mut self,
        origin: Origin<'_>,
        request: &mut Request,
    ) -> Result<(Scope, Plan, usize), Status> {
        let needed = ACCEPTED_BYTES + request.result_bytes_max();
        if origin.budget.message_bytes_max < needed {
            return Err(Status::ServerFault);
        }
        let shared = Arc::clone(&self.shared);
        let table = Arc::clone(self.exports.table());
        let admission = Admission { table: &table, key: &shared.handle_key, peer: origin.peer };
        let planned = guarded(&shared, || {
            let scope = admission.admit(request, &origin.call.header.credential, origin.budget)?;
            let plan = request.plan(&scope)?;
            Ok((scope, plan))
        });
        let (scope, plan) = planned.unwrap_or(Err(Status::ServerFault)).inspect_err(|status| {
            if *status == Status::BadHandle {
                shared.metrics.bad_handles.add();
            }
        })?;
        let attachment = self.attachments.of(&scope.export, &self.resources).map_err(|error| {
            self.warn(|| {
                let path = &scope.export.path;
                tracing::warn!(%error, path, "export cannot be served on this lane; client is told to wait");
            });
            Status::Jukebox
        })?;
        Ok((scope, plan, attachment))
    }

    /// Get buffer memory and read; without memory the call waits.
    fn read(&mut self, waiting: Waiting) -> Option<Rope> {
        match self.starved.lease(waiting) {
            Grant::Lease(lease) => self.read_into(waiting, lease),
            Grant::Queued => {
                self.shared.metrics.starved_reads.add();
                if let Some(call) = self.calls.get(waiting.token) {
                    self.attachments.hold(call.attachment);
                }
                None
            }
            Grant::Refused => {
                let error = BackendError::new(ErrorKind::Later, "read");
                self.advance(Completion::failed(waiting.token, error)).map(|(_, rope)| rope)
            }
        }
    }

    fn read_into(&mut self, waiting: Waiting, into: Lease) -> Option<Rope> {
        let Some(InFlight { job: Job::Nfs3 { scope, .. }, .. }) = self.calls.get(waiting.token)
        else {
            return None;
        };
        let Waiting { token, offset, count, by_page } = waiting;
        let object = scope.object;
        let pages = if by_page && count >= BY_PAGE_BYTES_MIN {
            self.page_pool.take(offset, count as usize)
        } else {
            None
        };
        self.drive(token, Operation::Read { object, offset, count, into, pages })
    }

    /// Hand an operation of a call to its backend; go on as long as the answers come at once.
    pub(super) fn drive(&mut self, token: Token, operation: Operation) -> Option<Rope> {
        let completion = self.submit(token, operation)?;
        self.advance(completion).map(|(_, rope)| rope)
    }

    fn submit(&mut self, token: Token, operation: Operation) -> Option<Completion> {
        let call = self.calls.get(token)?;
        let identity = match &call.job {
            Job::Nfs3 { scope, .. } => Arc::clone(&scope.identity),
            Job::Mount(walk) => Arc::clone(walk.identity()),
        };
        self.attachments.submit(call.attachment, BackendRequest { token, identity, operation })
    }

    /// An operation has finished: the next one of its call, or the reply.
    fn advance(&mut self, mut completion: Completion) -> Option<(Ticket, Rope)> {
        loop {
            let token = completion.token;
            let call = self.calls.remove(token)?;
            self.note(&completion);
            let InFlight { ticket, xid, procedure, job, attachment, cached } = call;
            match job {
                Job::Nfs3 { request, scope } => {
                    self.attachments.finished(attachment);
                    let rope = self.results(xid, procedure, request, &scope, completion.into());
                    self.remember(cached, &rope);
                    return Some((ticket, rope));
                }
                Job::Mount(mut walk) => {
                    let step = walk.step(completion);
                    self.attachments.finished(attachment);
                    let operation = match step {
                        Step::End(result) => {
                            return Some((ticket, self.mounted(xid, &walk, result)));
                        }
                        Step::Ask(operation) => operation,
                    };
                    let job = Job::Mount(walk);
                    let next = InFlight { ticket, xid, procedure, job, attachment, cached };
                    let token = self.calls.insert(next);
                    completion = self.submit(token, operation)?;
                }
            }
        }
    }

    fn results(
        &self,
        xid: u32,
        procedure: u32,
        request: Request,
        scope: &Scope,
        done: Done,
    ) -> Rope {
        let failed = done.result.is_err();
        let key = &self.shared.handle_key;
        let encoded = guarded(&self.shared, || {
            let mut writer = reply::success(xid);
            request.results(done, &mut Reply { writer: &mut writer, scope, key });
            writer.finish()
        });
        if failed || encoded.is_none() {
            self.shared.metrics.nfs3_failure(procedure);
        }
        encoded.unwrap_or_else(|| failure(xid, procedure, Status::ServerFault))
    }

    /// A failure before the backend was asked.
    fn fail(&self, xid: u32, procedure: u32, status: Status, cached: Option<Key>) -> Rope {
        self.shared.metrics.nfs3_failure(procedure);
        let rope = failure(xid, procedure, status);
        self.remember(cached, &rope);
        rope
    }

    /// Keep the results for repetitions, and answer those that already wait. What was put off was not
    /// carried out, so it is not kept.
    fn remember(&self, cached: Option<Key>, rope: &Rope) {
        let Some(key) = cached else { return };
        // Pages can be sent once, and a buffer must not stay here.
        debug_assert!(rope.pieces.is_empty(), "results that are kept have no bulk data");
        let body = rope.head.get(ACCEPTED_BYTES..).unwrap_or(&[]);
        let put_off = body.first_chunk() == Some(&Status::Jukebox.code().to_be_bytes());
        let body = Bytes::copy_from_slice(body);
        let kept = (!put_off).then(|| body.clone());
        for waiter in self.shared.reply_cache.finish(key, kept, Instant::now()) {
            waiter.inbox.put(waiter.ticket, with_body(key.xid(), &body));
        }
    }

    /// Answer all calls that a backend may have lost when it panicked.
    fn fail_broken(&mut self, out: &mut Vec<(Ticket, Rope)>) {
        while let Some(index) = self.attachments.take_broken() {
            self.shared.metrics.panics.add();
            for token in self.calls.of_attachment(index) {
                let error = BackendError::new(ErrorKind::ServerFault, "a backend panicked");
                out.extend(self.advance(Completion::failed(token, error)));
            }
        }
    }

    /// Count what was done, and log failures that an operator has to know of.
    fn note(&mut self, completion: &Completion) {
        let error = match &completion.result {
            Ok(outcome) => return self.shared.metrics.moved(outcome),
            Err(error) => error,
        };
        if matches!(error.kind, ErrorKind::Io | ErrorKind::ServerFault) {
            self.warn(|| tracing::warn!(%error, cause = ?error.source, "an operation failed"));
        } else {
            tracing::trace!(%error, "an operation was refused");
        }
    }

    /// At most one warning a second and lane.
    fn warn(&mut self, log: impl FnOnce()) {
        let now = Instant::now();
        let recent = |last: Instant| now.saturating_duration_since(last).as_secs() == 0;
        if !self.last_warning.is_some_and(recent) {
            self.last_warning = Some(now);
            log();
        }
    }
}

/// A reply with these results.
fn with_body(xid: u32, body: &Bytes) -> Rope {
    let mut writer = reply::success(xid);
    writer.fixed(body);
    writer.finish()
}

/// A reply that says nothing but the status.
fn failure(xid: u32, procedure: u32, status: Status) -> Rope {
    let mut writer = reply::success(xid);
    nfs3::failure(procedure, status, &mut writer);
    writer.finish()
}

impl Service for LaneService {
    fn call(&mut self, ticket: Ticket, peer: &Peer, budget: ReplyBudget, call: Call) -> Begun {
        match self.begin(Origin { ticket, peer, budget, call: &call }) {
            Some(rope) => Begun::Reply(rope),
            None => Begun::Pending,
        }
    }

    fn reply_bulk_bytes(&self, call: &Call) -> usize {
        bulk::reply_bulk_bytes(call)
    }

    fn finished(&mut self, out: &mut Vec<(Ticket, Rope)>) {
        self.follow_exports();
        // First those who wait for memory: what they ask may finish in this very turn.
        while let Some((waiting, lease)) = self.starved.serve() {
            let Some(call) = self.calls.get(waiting.token) else { continue };
            let (ticket, attachment) = (call.ticket, call.attachment);
            if let Some(rope) = self.read_into(waiting, lease) {
                out.push((ticket, rope));
            }
            self.attachments.finished(attachment);
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.attachments.completions(&mut completions);
        for completion in completions.drain(..) {
            out.extend(self.advance(completion));
        }
        self.completions = completions;
        self.fail_broken(out);
        self.inbox.take(out);
    }

    fn flush(&mut self) {
        if self.attachments.flush() {
            // The lane may be about to sleep, and there are calls to answer.
            self.resources.waker.wake_by_ref();
        }
    }

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.attachments.wake_fds()
    }

    fn bulk_offset(&self, start: &[u8]) -> Option<usize> {
        bulk::bulk_offset(start)
    }
}
