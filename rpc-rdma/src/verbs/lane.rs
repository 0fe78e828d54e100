//! One device as one lane sees it: two completion queues, the queue pairs of its connections, and the buffers
//! that the device works on.
//!
//! What is sent and what arrives complete on queues of their own, so that a lane can sleep until something
//! arrives: the end of a Send is no news that anybody waits for, as long as there are buffers and room.

#![allow(unsafe_code)]

use std::{
    collections::{HashMap, VecDeque},
    io, mem,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use buffers::Lease;

use super::{
    chain,
    cm_sys::KernelQpAttr,
    completions::{Completion, CompletionQueue},
    device::Device,
    mailbox::{ConnectionHandle, IncomingRequest, Mailbox, Note},
    queue::{QueuePair, SendRequest},
    slots::{Owner, Posted, Slots},
};
use crate::wire::{
    Alarm, Provider, QpDepths, QpId, QpMap, WireError, WireEvent, WireFault, WireLimits, Work,
    WorkCompletion, WorkId,
};

/// Entries of a completion queue at first; it grows as connections come.
const COMPLETIONS_AT_FIRST: usize = 8192;

/// Messages up to this size travel inside the work request, where the device can do that.
const INLINE_BYTES: usize = 128;

/// A request that nobody has answered for so long is turned down.
const REQUEST_AGE_MAX: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Connection {
    /// `None` once the queue pair had to be destroyed before its time.
    pub(super) qp: Option<QueuePair>,
    pub(super) handle: ConnectionHandle,
    incoming: Attributes,
    pub(super) depths: QpDepths,
    /// What the device has and what waits for the end of the turn.
    pub(super) sends_posted: usize,
    pub(super) receives_posted: usize,
    /// Whether it stands in the list of those that have something waiting.
    pub(super) waits: bool,
    /// The device did not take something.
    pub(super) refused: bool,
    pub(super) disconnected: bool,
}

#[derive(Debug)]
struct Attributes {
    rtr: KernelQpAttr,
    rts: KernelQpAttr,
}

#[derive(Debug)]
struct Waiting {
    incoming: Box<IncomingRequest>,
    since: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LaneProvider {
    pub(super) name: String,
    mailbox: Arc<Mailbox<Note>>,
    requests: HashMap<u64, Waiting>,
    pub(super) connections: QpMap<Connection>,
    pub(super) slots: Slots,
    pub(super) sent: CompletionQueue,
    pub(super) arrived: CompletionQueue,
    device: Arc<Device>,
    pub(super) send_with_invalidate: bool,
    /// Queue pairs for which something waits for the end of the turn.
    pub(super) waiting: Vec<QpId>,
    /// Completions that the device will not report any more.
    pub(super) ready: VecDeque<WorkCompletion>,
    scratch: Vec<Completion>,
    pub(super) chain: Vec<SendRequest>,
}

fn system(operation: &'static str) -> impl Fn(io::Error) -> WireError {
    move |source| WireError::System { operation, source }
}

impl LaneProvider {
    pub(super) fn new(
        device: Arc<Device>,
        name: String,
        lane: usize,
        mailbox: Arc<Mailbox<Note>>,
    ) -> io::Result<Self> {
        let entries = COMPLETIONS_AT_FIRST.min(device.attributes.completions_max).max(1);
        let sent = CompletionQueue::new(device.clone(), entries, lane)?;
        let arrived = CompletionQueue::new(device.clone(), entries, lane)?;
        Ok(Self {
            name,
            mailbox,
            requests: HashMap::new(),
            connections: QpMap::default(),
            slots: Slots::default(),
            sent,
            arrived,
            send_with_invalidate: device.attributes.send_with_invalidate,
            device,
            waiting: Vec::new(),
            ready: VecDeque::new(),
            scratch: Vec::new(),
            chain: Vec::new(),
        })
    }

    /// Make room for the completions of a queue pair.
    fn reserve(&mut self, depths: &QpDepths) -> Result<(), WireError> {
        let full = system("completion queue of the device");
        self.sent.reserve(depths.send_requests).map_err(&full)?;
        self.arrived.reserve(depths.receives).map_err(|error| {
            self.sent.release(depths.send_requests, false);
            full(error)
        })
    }

    /// Give it back. `lingering`: there may still be completions in the queues.
    fn release(&mut self, depths: &QpDepths, lingering: bool) {
        self.sent.release(depths.send_requests, lingering);
        self.arrived.release(depths.receives, lingering);
    }

    /// A queue pair in the state INIT, with room for its completions.
    fn make_queue_pair(
        &mut self,
        number: u64,
        wanted: QpDepths,
        init: &KernelQpAttr,
    ) -> Result<(QueuePair, QpDepths), WireError> {
        let QpDepths { send_requests, receives } = wanted;
        let device = self.device.clone();
        let queues = (&self.sent, &self.arrived);
        let mut qp = QueuePair::new(device, queues, number, send_requests, receives, INLINE_BYTES)
            .map_err(system("create a queue pair"))?;
        let (send_requests, receives) = qp.depths();
        let depths = QpDepths { send_requests, receives };
        // Nothing of ours may be read or written by the peer on its own.
        let initialised = qp.initialise(init, 0).map_err(system("initialise the queue pair"));
        match initialised.and_then(|()| self.reserve(&depths)) {
            Ok(()) => Ok((qp, depths)),
            Err(error) => {
                discard(qp);
                Err(error)
            }
        }
    }

    fn expire_requests(&mut self) {
        let now = Instant::now();
        self.requests.retain(|_, waiting| {
            let young = now.duration_since(waiting.since) < REQUEST_AGE_MAX;
            if !young {
                waiting.incoming.connection.reject(&[]);
            }
            young
        });
    }
}

/// Destroy a queue pair that has nothing posted.
fn discard(qp: QueuePair) {
    if let Err(error) = qp.destroy() {
        tracing::error!(%error, "cannot destroy an unused queue pair");
    }
}

/// The device may still work on this memory, so it must never be used again.
pub(super) fn leak(device: &str, posted: Vec<Posted>, error: &io::Error) {
    tracing::error!(device, %error, pieces = posted.len(), "cannot destroy a queue pair; its buffers are lost");
    mem::forget(posted);
}

impl Provider for LaneProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn limits(&self) -> WireLimits {
        WireLimits { send_with_invalidate: self.send_with_invalidate, ..self.device.limits() }
    }

    fn prepare(&mut self, request: u64, depths: QpDepths) -> Result<(QpId, QpDepths), WireError> {
        let waiting = self.requests.remove(&request).ok_or(WireError::Unknown)?;
        let (qp, depths) = match self.make_queue_pair(request, depths, &waiting.incoming.init) {
            Ok(made) => made,
            Err(error) => {
                // Still there to be rejected.
                self.requests.insert(request, waiting);
                return Err(error);
            }
        };
        let incoming = *waiting.incoming;
        let connection = Connection {
            qp: Some(qp),
            handle: incoming.connection,
            incoming: Attributes { rtr: incoming.rtr, rts: incoming.rts },
            depths,
            sends_posted: 0,
            receives_posted: 0,
            waits: false,
            refused: false,
            disconnected: false,
        };
        let id = QpId(request);
        self.connections.insert(id, connection);
        Ok((id, depths))
    }

    fn accept(
        &mut self,
        qp: QpId,
        private_data: &[u8],
        reads_outstanding: u8,
    ) -> Result<(), WireError> {
        // The first message may come at once.
        self.submit(qp);
        let connection = self.connections.get_mut(&qp).ok_or(WireError::Unknown)?;
        let queue = connection.qp.as_mut().ok_or(WireError::Unknown)?;
        if connection.refused {
            let source = io::Error::other("the device did not take all of them");
            return Err(WireError::System { operation: "post Receives", source });
        }
        // We serve no RDMA Reads: the peer has no key of ours.
        queue.ready_to_receive(&connection.incoming.rtr, 0).map_err(system("ready to receive"))?;
        queue
            .ready_to_send(&connection.incoming.rts, reads_outstanding)
            .map_err(system("ready to send"))?;
        connection.handle.accept(queue.number(), private_data, reads_outstanding);
        Ok(())
    }

    fn reject(&mut self, request: u64, private_data: &[u8]) {
        if let Some(waiting) = self.requests.remove(&request) {
            waiting.incoming.connection.reject(private_data);
        }
    }

    fn post_receive(&mut self, qp: QpId, buffer: Lease) -> Result<(), WireError> {
        let place = chain::place_of_lease(&self.device, &buffer)?;
        self.queue_receive(qp, buffer, place)
    }

    fn post(&mut self, qp: QpId, id: WorkId, work: Work) -> Result<(), WireError> {
        let connection = self.connections.get(&qp).ok_or(WireError::Unknown)?;
        let inline_bytes = connection.qp.as_ref().ok_or(WireError::Unknown)?.inline_bytes();
        match work {
            Work::Reply { writes, send, invalidate } => {
                let invalidate = invalidate.filter(|_| self.send_with_invalidate);
                chain::reply(
                    &self.device,
                    &mut self.chain,
                    inline_bytes,
                    &writes,
                    &send,
                    invalidate,
                )?;
                self.queue_chain(qp, id, Owner::Reply { _writes: writes, _send: send })
            }
            Work::Fetch { sink, reads } => {
                chain::fetch(&self.device, &mut self.chain, &sink, &reads)?;
                self.queue_chain(qp, id, Owner::Fetch { sink })
            }
        }
    }

    fn flush(&mut self) -> usize {
        self.submit_all();
        self.ready.len()
    }

    fn poll(&mut self, out: &mut Vec<WorkCompletion>, max: usize) {
        let mut room = max;
        while room > 0
            && let Some(completion) = self.ready.pop_front()
        {
            out.push(completion);
            room -= 1;
        }
        if room == 0 {
            return;
        }
        let mut batch = mem::take(&mut self.scratch);
        // What arrives can be an answer to what was sent, so the ends of Sends are reported first; and to
        // have them all, the arrivals are looked at before.
        let arrived = self.arrived.poll(&mut batch, room);
        self.sent.poll(&mut batch, usize::MAX);
        batch.rotate_left(arrived);
        for completion in batch.drain(..) {
            out.extend(self.finish(completion));
        }
        self.scratch = batch;
    }

    fn events(&mut self, out: &mut Vec<WireEvent>) {
        let notes = self.mailbox.take();
        if notes.is_empty() {
            if !self.requests.is_empty() {
                self.expire_requests();
            }
            return;
        }
        for note in notes {
            match note {
                Note::Request(incoming) => {
                    let request = incoming.request.clone();
                    self.requests.insert(request.id, Waiting { incoming, since: Instant::now() });
                    out.push(WireEvent::ConnectRequest(request));
                }
                Note::Established(qp) if self.connections.contains_key(&qp) => {
                    out.push(WireEvent::Established(qp));
                }
                Note::Disconnected(qp) if self.connections.contains_key(&qp) => {
                    out.push(WireEvent::Disconnected(qp));
                }
                Note::Failed(qp) if self.connections.contains_key(&qp) => {
                    out.push(WireEvent::Failed(qp));
                }
                // Of a connection that is gone.
                Note::Established(_) | Note::Failed(_) => {}
                Note::Disconnected(qp) => drop(self.requests.remove(&qp.0)),
                Note::DeviceGone => out.push(WireEvent::DeviceGone),
            }
        }
    }

    fn arm(&mut self, alarm: Alarm) {
        let sent = match alarm {
            Alarm::Everything => self.sent.arm(),
            Alarm::Arrivals => Ok(()),
        };
        if let Err(error) = sent.and_then(|()| self.arrived.arm()) {
            // The device is gone or going: the connection manager's thread reports that.
            tracing::debug!(device = self.name, %error, "cannot arm the completion queues");
        }
    }

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        vec![self.sent.shared_fd(), self.arrived.shared_fd(), self.mailbox.shared_fd()]
    }

    fn disconnect(&mut self, qp: QpId) {
        let Some(connection) = self.connections.get_mut(&qp) else { return };
        if mem::replace(&mut connection.disconnected, true) {
            return;
        }
        // What was posted before comes back in its order, flushed or done.
        self.submit(qp);
        let Some(connection) = self.connections.get_mut(&qp) else { return };
        let Some(queue) = connection.qp.as_mut() else { return };
        let failed = queue.fail();
        connection.handle.disconnect();
        if let Err(error) = failed {
            // Without the error state nothing would be flushed.
            tracing::debug!(device = self.name, %error, "no error state; destroying the queue pair");
            self.condemn(qp, WireFault::Flushed);
        }
    }

    fn destroy(&mut self, qp: QpId) {
        let Some(mut connection) = self.connections.remove(&qp) else { return };
        if !connection.disconnected {
            connection.handle.disconnect();
        }
        if let Some(queue) = connection.qp.as_mut() {
            for wr_id in queue.discard() {
                drop(self.slots.completed(wr_id, Err(WireFault::Flushed)));
            }
        }
        let posted = self.slots.take_all_of(qp);
        self.release(&connection.depths, !posted.is_empty());
        if let Some(queue) = connection.qp.take()
            && let Err(error) = queue.destroy()
        {
            leak(&self.name, posted, &error);
        }
    }
}

impl Drop for LaneProvider {
    fn drop(&mut self) {
        self.mailbox.close();
        for waiting in self.requests.values() {
            waiting.incoming.connection.reject(&[]);
        }
        // Queue pairs first: after that the device does not touch the buffers in the slots.
        let open: Vec<_> = self.connections.keys().copied().collect();
        for qp in open {
            self.destroy(qp);
        }
    }
}
