//! The active side: one connection of a client on a real device, for tests and load tools.
//!
//! It has a device context, memory and connection manager of its own, so that nothing which it does touches
//! the serving side of the same process.

#![allow(unsafe_code)]

use std::{
    collections::VecDeque,
    io, mem,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
    sync::Arc,
    time::{Duration, Instant},
};

use buffers::{Arena, Pool, PoolLayout, pool::CLASS_BYTES, pool::Carver};
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    cm::{CmEvent, CmId, ConnectionManager, Terms},
    cm_sys::event,
    completions::{Completion, CompletionQueue},
    device::{self, Device},
    diagnose,
    queue::{Opcode, QueuePair, REMOTE_ACCESS, SendRequest},
    region::VerbsRegion,
    slots::{Owner, Posted, Slots},
};
use crate::{
    endpoint::{Access, Endpoint, EndpointEvent},
    wire::{QpId, WireError, WireFault, WorkCompletion},
};

/// Time for finding device and path.
const RESOLVE_MS: u32 = 5_000;

const QP: QpId = QpId(0);

/// `ibv_qp_state`.
const STATE_INIT: u32 = 1;
const STATE_RTR: u32 = 2;
const STATE_RTS: u32 = 3;

/// How a client connects.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// Private data of the request.
    pub private_data: Bytes,
    /// Size of each Receive, and of the longest message sent, in bytes.
    pub message_bytes: usize,
    /// Receives that may be posted at a time.
    pub receives: usize,
    /// Sends that may be under way at a time.
    pub sends: usize,
    /// RDMA Reads of the server that are served at a time.
    pub reads_served: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Connected,
    Over,
}

/// One connection.
#[derive(Debug)]
pub struct VerbsEndpoint {
    qp: Option<QueuePair>,
    slots: Slots,
    cq: CompletionQueue,
    pool: Arc<Pool>,
    device: Arc<Device>,
    cm: ConnectionManager,
    id: CmId,
    settings: EndpointSettings,
    state: State,
    sends_posted: usize,
    receives_posted: usize,
    ready: VecDeque<EndpointEvent>,
    scratch: Vec<Completion>,
}

fn system(operation: &'static str) -> impl Fn(io::Error) -> WireError {
    move |source| WireError::System { operation, source }
}

fn device_error(operation: &'static str) -> impl Fn(device::DeviceError) -> WireError {
    move |error| WireError::System { operation, source: io::Error::other(error) }
}

impl VerbsEndpoint {
    /// Begin to connect: find the device towards `server`, make a queue pair, ask. Blocks until the request
    /// is on its way (some seconds at most).
    ///
    /// # Errors
    /// When no RDMA device leads to `server`, or the system refuses.
    pub fn connect(server: SocketAddr, settings: EndpointSettings) -> Result<Self, WireError> {
        let opened = ConnectionManager::open();
        let cm = opened.map_err(|error| {
            system("connection manager")(io::Error::other(
                diagnose::connection_manager_unavailable(error),
            ))
        })?;
        let id = cm.create().map_err(system("connection identifier"))?;
        cm.resolve_address(id, server, RESOLVE_MS).map_err(system("resolve the address"))?;
        expect(&cm, event::ADDR_RESOLVED, "resolve the address")?;
        cm.resolve_route(id, RESOLVE_MS).map_err(system("resolve the route"))?;
        expect(&cm, event::ROUTE_RESOLVED, "resolve the route")?;
        let (device, pool) = open_device(&cm, id, &settings)?;
        let entries = settings.sends + settings.receives;
        let cq =
            CompletionQueue::new(device.clone(), entries, 0).map_err(system("completion queue"))?;
        let qp =
            QueuePair::new(device.clone(), (&cq, &cq), 0, settings.sends, settings.receives, 0)
                .map_err(system("create a queue pair"))?;
        let mut this = Self {
            qp: Some(qp),
            slots: Slots::default(),
            cq,
            pool,
            device,
            cm,
            id,
            settings,
            state: State::Connecting,
            sends_posted: 0,
            receives_posted: 0,
            ready: VecDeque::new(),
            scratch: Vec::new(),
        };
        this.ask().map_err(system("ask for a connection"))?;
        Ok(this)
    }

    fn ask(&mut self) -> io::Result<()> {
        let init = self.cm.qp_attributes(self.id, STATE_INIT)?;
        let Some(qp) = self.qp.as_mut() else { return Ok(()) };
        qp.initialise(&init, REMOTE_ACCESS)?;
        self.cm.connect(
            self.id,
            Terms {
                qp_num: qp.number(),
                private_data: &self.settings.private_data,
                responder_resources: self.settings.reads_served,
                initiator_depth: 0,
                retry_count: 6,
                rnr_retry_count: 0,
            },
        )
    }

    /// The server has accepted: bring our queue pair up and tell it that we are there.
    fn complete(&mut self) -> io::Result<()> {
        let Some(qp) = self.qp.as_mut() else { return Ok(()) };
        qp.initialise(&self.cm.qp_attributes(self.id, STATE_INIT)?, REMOTE_ACCESS)?;
        let rtr = self.cm.qp_attributes(self.id, STATE_RTR)?;
        qp.ready_to_receive(&rtr, self.settings.reads_served)?;
        qp.ready_to_send(&self.cm.qp_attributes(self.id, STATE_RTS)?, 0)?;
        self.cm.establish(self.id)
    }

    fn end(&mut self, how: EndpointEvent) {
        if mem::replace(&mut self.state, State::Over) != State::Over {
            self.ready.push_back(how);
        }
        self.hang_up();
    }

    fn hang_up(&mut self) {
        if let Some(qp) = self.qp.as_mut() {
            // Both fail when the device or the peer has gone, which comes to the same.
            let _ = qp.fail();
        }
        let _ = self.cm.disconnect(self.id);
    }

    fn take_cm_event(&mut self, seen: CmEvent) {
        match seen.event {
            event::CONNECT_RESPONSE if self.state == State::Connecting => match self.complete() {
                Ok(()) => self.connected(seen.private_data),
                Err(error) => {
                    tracing::debug!(%error, "cannot complete the connection");
                    self.end(EndpointEvent::Failed(WireFault::Local));
                }
            },
            event::ESTABLISHED if self.state == State::Connecting => {
                if seen.status == 0 {
                    self.connected(seen.private_data);
                } else {
                    self.end(EndpointEvent::Failed(WireFault::Local));
                }
            }
            event::REJECTED => {
                self.end(EndpointEvent::Rejected { private_data: seen.private_data });
            }
            event::UNREACHABLE => self.end(EndpointEvent::Failed(WireFault::RetryExceeded)),
            event::CONNECT_ERROR => self.end(EndpointEvent::Failed(WireFault::Local)),
            event::DISCONNECTED => self.end(EndpointEvent::Disconnected),
            event::DEVICE_REMOVAL => self.end(EndpointEvent::Failed(WireFault::DeviceGone)),
            _ => {}
        }
    }

    fn connected(&mut self, private_data: Bytes) {
        self.state = State::Connected;
        self.ready.push_back(EndpointEvent::Connected { private_data });
    }

    fn take_completion(&mut self, done: WorkCompletion) {
        if self.state == State::Over {
            return;
        }
        match done {
            WorkCompletion::Received { buffer, len, .. } => {
                self.receives_posted = self.receives_posted.saturating_sub(1);
                let message = Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default());
                self.ready.push_back(EndpointEvent::Received { message, invalidated: None });
            }
            WorkCompletion::Replied { result: Ok(()), .. } => {
                self.sends_posted = self.sends_posted.saturating_sub(1);
                self.ready.push_back(EndpointEvent::Sent);
            }
            WorkCompletion::ReceiveFailed { fault, .. }
            | WorkCompletion::Replied { result: Err(fault), .. } => {
                self.end(EndpointEvent::Failed(fault));
            }
            // Never posted here.
            WorkCompletion::Fetched { .. } => {}
        }
    }

    /// Take what has happened into `ready`.
    fn gather(&mut self) {
        // Completions first: a message that came before the end of the connection still counts.
        let mut batch = mem::take(&mut self.scratch);
        self.cq.poll(&mut batch, usize::MAX);
        for completion in batch.drain(..) {
            let found = self.slots.completed(completion.wr_id, completion.result);
            if let Some((posted, result)) = found {
                self.take_completion(posted.complete(result));
            }
        }
        self.scratch = batch;
        loop {
            match self.cm.next_event() {
                Ok(Some(seen)) => self.take_cm_event(seen),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(%error, "cannot read connection events");
                    self.end(EndpointEvent::Failed(WireFault::Local));
                    break;
                }
            }
        }
    }

    /// Release what the device did not take.
    fn take_back(&mut self) {
        for wr_id in self.qp.as_mut().map(QueuePair::discard).unwrap_or_default() {
            drop(self.slots.completed(wr_id, Err(WireFault::Refused)));
        }
    }

    fn message_buffer(&self, len: usize) -> Result<(buffers::Lease, u32), WireError> {
        let lease = self.pool.take(len).ok_or(WireError::QueueFull)?;
        let lkey = self.device.lkey(lease.chunk()).ok_or(WireError::NotRegistered)?;
        Ok((lease, lkey))
    }
}

fn open_device(
    cm: &ConnectionManager,
    id: CmId,
    settings: &EndpointSettings,
) -> Result<(Arc<Device>, Arc<Pool>), WireError> {
    let binding = cm.binding(id).map_err(system("device of the connection"))?;
    let gone = || system("device of the connection")(io::Error::from_raw_os_error(libc::ENODEV));
    let present = device::list().map_err(system("list the devices"))?;
    let name = present.into_iter().find(|name| binding.is_of(name)).ok_or_else(gone)?;
    let class = CLASS_BYTES.iter().position(|&bytes| bytes >= settings.message_bytes);
    let mut layout = PoolLayout { counts: [0; CLASS_BYTES.len()] };
    let class = class.ok_or(WireError::NotRegistered)?;
    if let Some(count) = layout.counts.get_mut(class) {
        *count = settings.sends + settings.receives;
    }
    let arena = Arena::map(layout.bytes())
        .map_err(|error| system("memory for messages")(io::Error::other(error)))?;
    let device = Device::open(name, arena.clone()).map_err(device_error("open the device"))?;
    Ok((Arc::new(device), Carver::new(arena).pool(layout)))
}

/// Wait for one event.
fn expect(cm: &ConnectionManager, wanted: u32, operation: &'static str) -> Result<(), WireError> {
    let until = Instant::now() + Duration::from_millis(u64::from(RESOLVE_MS) + 1_000);
    loop {
        if let Some(seen) = cm.next_event().map_err(system(operation))? {
            if seen.event == wanted {
                return Ok(());
            }
            let source = match seen.status.checked_neg() {
                Some(errno) if errno > 0 => io::Error::from_raw_os_error(errno),
                _ => io::Error::other(format!("connection event {}", seen.event)),
            };
            return Err(WireError::System { operation, source });
        }
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(system(operation)(io::ErrorKind::TimedOut.into()));
        }
        sleep_on(&[cm.fd()], rest);
    }
}

/// Wait until one of the descriptors, which the caller keeps open, is readable. May return early.
fn sleep_on(fds: &[RawFd], timeout: Duration) {
    // SAFETY: the caller keeps them open through the call.
    let borrowed: Vec<_> = fds.iter().map(|&fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect();
    let mut set: Vec<_> = borrowed.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // Interrupted is early, which is allowed.
    let _ = poll(&mut set, Some(&timeout));
}

impl Endpoint for VerbsEndpoint {
    type Region = VerbsRegion;

    fn remote_invalidation(&self) -> bool {
        false
    }

    fn register(&mut self, len: usize, access: Access) -> Result<VerbsRegion, WireError> {
        VerbsRegion::register(self.device.clone(), len, access)
    }

    fn refresh(&mut self, region: &mut VerbsRegion) -> Result<(), WireError> {
        region.refresh(self.device.clone())
    }

    fn deregister(&mut self, region: VerbsRegion) {
        drop(region);
    }

    fn post_receive(&mut self) -> Result<(), WireError> {
        if self.receives_posted >= self.settings.receives {
            return Err(WireError::QueueFull);
        }
        let (buffer, lkey) = self.message_buffer(self.settings.message_bytes)?;
        let address = buffer.as_ptr() as u64;
        let len = u32::try_from(self.settings.message_bytes).unwrap_or(u32::MAX);
        let qp = self.qp.as_mut().ok_or(WireError::Unknown)?;
        let posted = Posted::Receive { qp: QP, buffer };
        let slot = self.slots.insert(posted).ok_or(WireError::QueueFull)?;
        qp.queue_receive(slot.wr_id(true), address, len, lkey);
        // SAFETY: the buffer stays in its slot until the Receive has completed or the queue pair is
        // destroyed, and is at least `len` bytes long.
        if let Err(refusal) = unsafe { qp.post_receives() } {
            self.take_back();
            return Err(system("post a Receive")(refusal.error));
        }
        self.receives_posted += 1;
        Ok(())
    }

    fn send(&mut self, message: &[u8]) -> Result<(), WireError> {
        if self.sends_posted >= self.settings.sends {
            return Err(WireError::QueueFull);
        }
        if message.len() > self.settings.message_bytes {
            return Err(system("send")(io::Error::from_raw_os_error(libc::EMSGSIZE)));
        }
        let (mut lease, lkey) = self.message_buffer(message.len())?;
        lease.get_mut(..message.len()).ok_or(WireError::NotRegistered)?.copy_from_slice(message);
        let address = lease.as_ptr() as u64;
        let owner = Owner::Reply { _writes: Vec::new(), _send: lease.freeze(0, message.len()) };
        let posted = Posted::Chain { qp: QP, id: 0, requests: 1, owner, fault: None };
        let qp = self.qp.as_mut().ok_or(WireError::Unknown)?;
        let slot = self.slots.insert(posted).ok_or(WireError::QueueFull)?;
        let request = SendRequest {
            wr_id: slot.wr_id(true),
            opcode: Opcode::Send,
            address,
            len: message.len() as u32,
            lkey,
            remote_address: 0,
            rkey: 0,
            signaled: true,
            inline: false,
        };
        qp.queue_chain(&[request]);
        // SAFETY: the memory stays in its slot until the Send has completed or the queue pair is destroyed.
        if let Err(refusal) = unsafe { qp.post_sends(&mut false) } {
            self.take_back();
            return Err(system("post a Send")(refusal.error));
        }
        self.sends_posted += 1;
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<EndpointEvent>) {
        self.gather();
        out.extend(self.ready.drain(..));
    }

    fn arm(&mut self) {
        if let Err(error) = self.cq.arm() {
            tracing::debug!(%error, "cannot arm the completion queue");
        }
    }

    fn wake_fds(&self) -> Vec<RawFd> {
        vec![self.cq.fd(), self.cm.fd()]
    }

    fn wait(&mut self, timeout: Duration) {
        self.arm();
        // What completed before it was armed does not wake.
        self.gather();
        if self.ready.is_empty() {
            sleep_on(&self.wake_fds(), timeout);
        }
    }

    fn disconnect(&mut self) {
        if self.state == State::Over {
            return;
        }
        self.end(EndpointEvent::Disconnected);
    }
}

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        self.hang_up();
        let posted = self.slots.take_all_of(QP);
        if let Some(qp) = self.qp.take()
            && let Err(error) = qp.destroy()
        {
            tracing::error!(%error, "cannot destroy a queue pair; its buffers are lost");
            mem::forget(posted);
        }
    }
}
