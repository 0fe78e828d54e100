//! The connection manager's thread: devices that come and go, listeners, connection events.
//!
//! It waits for nobody: lanes get notes, and give orders. It alone talks to the kernel's connection manager
//! (see [`super::cm`]). Loss of a device is learned from whichever comes first: the asynchronous event of the
//! device, the removal event of a connection, or the disappearance of its user interface (drivers that cannot
//! take a device away from its users announce nothing and wait until the last user has closed it).

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    os::fd::{BorrowedFd, RawFd},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    cm::{CmEvent, CmId, ConnectionManager, Terms},
    cm_sys::event,
    device::{self, AsyncEvent, Device, DeviceError, DeviceName},
    diagnose::{self, FabricError},
    fabric::{FabricSettings, FabricStatus, ProviderSink},
    lane::LaneProvider,
    mailbox::{ConnectionHandle, IncomingRequest, Mailbox, Note, Order},
};
use crate::wire::{ConnectRequest, QpId};

/// Connection requests that the kernel holds for us.
const BACKLOG: u32 = 256;

/// How often devices and listeners are looked after.
const ROUND: Duration = Duration::from_secs(1);

/// Connections and requests at a time, over all lanes; beyond it requests are refused before anything is
/// allocated for them. The lanes' own limits are lower.
const KNOWN_MAX: usize = 16_384;

/// A device that could not be opened is tried again after this time.
const RETRY: Duration = Duration::from_secs(10);

/// `IBV_EVENT_COMM_EST`.
const EVENT_COMMUNICATION_ESTABLISHED: u32 = 4;

/// `ibv_qp_state`.
const STATE_INIT: u32 = 1;
const STATE_RTR: u32 = 2;
const STATE_RTS: u32 = 3;

#[derive(Debug)]
struct Served {
    device: Arc<Device>,
    text: String,
    /// Number of the user interface (see `diagnose::user_interfaces`).
    interface: Option<u64>,
    lanes: Vec<Arc<Mailbox<Note>>>,
    next_lane: usize,
}

#[derive(Debug)]
struct Known {
    qp: QpId,
    mailbox: Arc<Mailbox<Note>>,
    device: DeviceName,
}

#[derive(Debug)]
struct Listener {
    address: SocketAddr,
    id: Option<CmId>,
}

/// State of the thread.
pub(super) struct Manager {
    settings: FabricSettings,
    sink: ProviderSink,
    orders: Arc<Mailbox<Order>>,
    status: Arc<Mutex<FabricStatus>>,
    cm: Option<ConnectionManager>,
    listeners: Vec<Listener>,
    served: Vec<Served>,
    known: HashMap<CmId, Known>,
    interfaces: Vec<(String, u64)>,
    failed_at: Option<Instant>,
    looked_at: Instant,
    /// Names requests and queue pairs; never reused.
    next_number: u64,
    stopping: bool,
}

impl Manager {
    pub(super) fn new(
        settings: FabricSettings,
        sink: ProviderSink,
        orders: Arc<Mailbox<Order>>,
        status: Arc<Mutex<FabricStatus>>,
    ) -> Self {
        let listeners = settings
            .listen_addresses()
            .into_iter()
            .map(|address| Listener { address, id: None })
            .collect();
        Self {
            settings,
            sink,
            orders,
            status,
            cm: None,
            listeners,
            served: Vec::new(),
            known: HashMap::new(),
            interfaces: Vec::new(),
            failed_at: None,
            looked_at: Instant::now(),
            next_number: 1,
            stopping: false,
        }
    }

    /// Open what is not open yet. The error says what is missing; what is there works.
    pub(super) fn bring_up(&mut self) -> Result<(), FabricError> {
        let result = self.try_bring_up();
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.devices = self.served.iter().map(|served| served.text.clone()).collect();
        status.listening =
            self.listeners.iter().filter(|l| l.id.is_some()).map(|l| l.address).collect();
        status.trouble = result.as_ref().err().map(ToString::to_string);
        result
    }

    fn try_bring_up(&mut self) -> Result<(), FabricError> {
        if self.cm.is_none() {
            let opened = ConnectionManager::open();
            self.cm = Some(opened.map_err(diagnose::connection_manager_unavailable)?);
        }
        let listening = self.listen();
        self.open_devices()?;
        listening
    }

    fn listen(&mut self) -> Result<(), FabricError> {
        let Some(cm) = &self.cm else { return Ok(()) };
        let mut result = Ok(());
        for listener in self.listeners.iter_mut().filter(|listener| listener.id.is_none()) {
            match cm.listen(listener.address, BACKLOG) {
                Ok(id) => {
                    tracing::info!(address = %listener.address, "listening for RDMA connections");
                    listener.id = Some(id);
                }
                Err(source) => result = Err(diagnose::cannot_listen(listener.address, source)),
            }
        }
        result
    }

    fn chosen(&self, name: &DeviceName) -> bool {
        self.settings.devices.is_empty() || self.settings.devices.contains(&name.name)
    }

    fn open_devices(&mut self) -> Result<(), FabricError> {
        self.interfaces = diagnose::user_interfaces();
        let present = device::list()
            .map_err(|source| FabricError::System { operation: "list the devices", source })?;
        let mut result = Ok(());
        for name in &present {
            let open = self.served.iter().any(|served| served.device.id == *name);
            if open || !self.chosen(name) {
                continue;
            }
            if let Err(source) = self.open_device(name.clone()) {
                tracing::error!(device = name.name, "cannot use the RDMA device: {source}");
                result = Err(FabricError::Device { device: name.name.clone(), source });
            }
        }
        self.failed_at = result.is_err().then(Instant::now);
        if result.is_ok() && self.served.is_empty() {
            let names: Vec<_> = present.into_iter().map(|name| name.name).collect();
            return Err(diagnose::no_device(&self.settings.devices, &names));
        }
        result
    }

    fn open_device(&mut self, name: DeviceName) -> Result<(), DeviceError> {
        let text = diagnose::describe(&name.name);
        let device = Arc::new(Device::open(name, self.settings.arena.clone())?);
        let its_own = |(uverbs, _): &&(String, u64)| *uverbs == device.uverbs;
        let interface = self.interfaces.iter().find(its_own).map(|(_, number)| *number);
        let system = |operation| move |source| DeviceError::System { operation, source };
        let mut lanes = Vec::new();
        let mut providers = Vec::new();
        for lane in 0..self.settings.lanes.max(1) {
            let mailbox = Mailbox::new().map_err(system("event descriptor"))?;
            let provider = LaneProvider::new(device.clone(), text.clone(), lane, mailbox.clone())
                .map_err(system("completion queue"))?;
            lanes.push(mailbox);
            providers.push(provider);
        }
        tracing::info!(device = text, limits = ?device.limits(), "RDMA device opened");
        for (lane, provider) in providers.into_iter().enumerate() {
            (self.sink)(lane, Box::new(provider));
        }
        self.served.push(Served { device, text, interface, lanes, next_lane: 0 });
        Ok(())
    }

    /// Serve until stopped and every connection has been given up.
    pub(super) fn run(mut self) {
        while !(self.stopping && self.known.is_empty()) {
            self.wait();
            self.take_orders();
            self.take_async_events();
            self.take_cm_events();
            if self.looked_at.elapsed() >= ROUND {
                self.look_after();
            }
        }
        self.orders.close();
    }

    fn wait(&self) {
        let mut fds: Vec<RawFd> = vec![self.orders.fd()];
        fds.extend(self.cm.as_ref().map(ConnectionManager::fd));
        fds.extend(self.served.iter().map(|served| served.device.async_fd()));
        let borrow = |&fd: &RawFd| borrow_fd(fd);
        let borrowed: Vec<BorrowedFd<'_>> = fds.iter().map(borrow).collect();
        let mut set: Vec<_> = borrowed.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let rest = ROUND.saturating_sub(self.looked_at.elapsed());
        let timeout =
            Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) };
        if let Err(error) = poll(&mut set, Some(&timeout))
            && error != rustix::io::Errno::INTR
        {
            tracing::error!(%error, "cannot wait for RDMA events");
            std::thread::sleep(ROUND);
        }
    }

    fn look_after(&mut self) {
        self.looked_at = Instant::now();
        let now = diagnose::user_interfaces();
        let changed = now != self.interfaces;
        if changed {
            let gone = |served: &Served| {
                let key = (&served.device.uverbs, served.interface);
                !now.iter().any(|(uverbs, number)| key == (uverbs, Some(*number)))
            };
            let lost: Vec<_> =
                self.served.iter().filter(|s| gone(s)).map(|s| s.device.id.clone()).collect();
            for name in lost {
                self.lose(&name, "it was removed");
            }
        }
        if self.stopping {
            return;
        }
        let retry = self.failed_at.is_some_and(|at| at.elapsed() >= RETRY);
        let deaf = self.listeners.iter().any(|listener| listener.id.is_none());
        if changed || retry || deaf || self.cm.is_none() {
            // What is missing is kept in the status; it was reported when it first failed.
            let _ = self.bring_up();
        }
    }

    /// Give a device up: its lanes are told, and everything is closed when they have let go.
    fn lose(&mut self, name: &DeviceName, why: &str) {
        let Some(at) = self.served.iter().position(|served| served.device.id == *name) else {
            return;
        };
        let served = self.served.swap_remove(at);
        // It may have failed without going away; then it is opened again.
        self.failed_at = Some(Instant::now());
        tracing::warn!(device = served.text, "RDMA device lost: {why}");
        for mailbox in &served.lanes {
            // A lane that has dropped its provider already needs no telling.
            let _ = mailbox.put(Note::DeviceGone);
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.devices.retain(|text| *text != served.text);
    }

    fn take_orders(&mut self) {
        for order in self.orders.take() {
            match order {
                Order::Stop => self.stop(),
                other => self.carry_out(other),
            }
        }
    }

    fn carry_out(&mut self, order: Order) {
        let Some(cm) = &self.cm else { return };
        match order {
            Order::Accept { id, qp_num, private_data, reads_outstanding } => {
                let terms = Terms {
                    qp_num,
                    private_data: &private_data,
                    responder_resources: 0,
                    initiator_depth: reads_outstanding,
                    retry_count: 7,
                    // A peer that overruns its credits is at fault: its queue pair fails at once instead
                    // of hanging in repetitions.
                    rnr_retry_count: 0,
                };
                if let Err(error) = cm.accept(id, terms) {
                    tracing::debug!(%error, "the peer went away before its connection was accepted");
                    self.note(id, Note::Disconnected);
                }
            }
            Order::Reject { id, private_data } => settle("reject", cm.reject(id, &private_data)),
            Order::Disconnect { id } => settle("disconnect", cm.disconnect(id)),
            Order::Release { id } => {
                settle("release", cm.destroy(id));
                self.known.remove(&id);
            }
            Order::Stop => {}
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        if let Some(cm) = &self.cm {
            for listener in &mut self.listeners {
                if let Some(id) = listener.id.take() {
                    settle("stop listening", cm.destroy(id));
                }
            }
        }
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.listening.clear();
    }

    fn note(&self, id: CmId, note: impl FnOnce(QpId) -> Note) {
        if let Some(known) = self.known.get(&id) {
            // A lane that is gone has given its connections up; their release is on its way.
            let _ = known.mailbox.put(note(known.qp));
        }
    }

    fn take_async_events(&mut self) {
        let mut lost = Vec::new();
        for served in &self.served {
            while let Some(seen) = served.device.async_event() {
                let find = |number: u64| self.known.iter().find(|(_, k)| k.qp == QpId(number));
                match seen {
                    AsyncEvent::QueuePairFailed(number) => {
                        if let Some((&id, _)) = find(number) {
                            self.note(id, Note::Failed);
                        }
                    }
                    AsyncEvent::CommunicationEstablished(number) => {
                        // The first message has overtaken the end of the handshake.
                        if let (Some((&id, _)), Some(cm)) = (find(number), &self.cm) {
                            settle("notify", cm.notify(id, EVENT_COMMUNICATION_ESTABLISHED));
                        }
                    }
                    AsyncEvent::DeviceFatal => {
                        lost.push(served.device.id.clone());
                        break;
                    }
                    AsyncEvent::Benign(number) => {
                        tracing::debug!(device = served.text, number, "RDMA device event");
                    }
                }
            }
        }
        for name in lost {
            self.lose(&name, "it reported a fatal error");
        }
    }

    fn take_cm_events(&mut self) {
        loop {
            let Some(cm) = &self.cm else { return };
            match cm.next_event() {
                Ok(Some(seen)) => self.handle(seen),
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "cannot read RDMA connection events");
                    return;
                }
            }
        }
    }

    fn handle(&mut self, seen: CmEvent) {
        match seen.event {
            event::CONNECT_REQUEST => self.request(&seen),
            event::ESTABLISHED => self.note(seen.id, Note::Established),
            event::DISCONNECTED
            | event::REJECTED
            | event::UNREACHABLE
            | event::CONNECT_ERROR
            | event::ADDR_CHANGE => self.ended(seen.id),
            event::DEVICE_REMOVAL => {
                self.ended(seen.id);
                if let Some(name) = self.known.get(&seen.id).map(|known| known.device.clone()) {
                    self.lose(&name, "it is being removed");
                }
            }
            event::TIMEWAIT_EXIT => {}
            other => tracing::debug!(event = other, status = seen.status, "RDMA connection event"),
        }
    }

    /// A connection has ended, or a listener has lost its device.
    fn ended(&mut self, id: CmId) {
        self.note(id, Note::Disconnected);
        if let Some(listener) = self.listeners.iter_mut().find(|l| l.id == Some(id)) {
            listener.id = None;
            tracing::warn!(address = %listener.address, "RDMA listener lost; listening again soon");
            if let Some(cm) = &self.cm {
                settle("stop listening", cm.destroy(id));
            }
        }
    }

    fn request(&mut self, seen: &CmEvent) {
        if let Err(error) = self.try_request(seen) {
            tracing::warn!(%error, "RDMA connection request refused");
            if let Some(cm) = &self.cm
                && !self.known.contains_key(&seen.id)
            {
                settle("reject", cm.reject(seen.id, &[]));
                settle("release", cm.destroy(seen.id));
            }
        }
    }

    fn try_request(&mut self, seen: &CmEvent) -> io::Result<()> {
        let cm = self.cm.as_ref().ok_or_else(|| io::Error::other("no connection manager"))?;
        if self.known.len() >= KNOWN_MAX {
            return Err(io::Error::other("too many RDMA connections"));
        }
        let binding = cm.binding(seen.id)?;
        let unknown = || io::Error::other("the request has no addresses");
        let peer = binding.peer.ok_or_else(unknown)?;
        let local = binding.local.ok_or_else(unknown)?;
        let init = cm.qp_attributes(seen.id, STATE_INIT)?;
        let rtr = cm.qp_attributes(seen.id, STATE_RTR)?;
        let rts = cm.qp_attributes(seen.id, STATE_RTS)?;
        let is_it = |served: &Served| binding.is_of(&served.device.id);
        if !self.served.iter().any(is_it) {
            // A device that has just come.
            self.bring_up().map_err(io::Error::other)?;
        }
        let served = self.served.iter_mut().find(|served| is_it(served));
        let served = served.ok_or_else(|| io::Error::other("the device is not served"))?;
        let device_max = served.device.attributes.reads_outstanding_max;
        let reads = seen.initiator_depth.min(u8::try_from(device_max).unwrap_or(u8::MAX));
        let number = self.next_number;
        self.next_number += 1;
        let request = ConnectRequest {
            id: number,
            peer,
            local,
            private_data: seen.private_data.clone(),
            reads_outstanding_max: reads,
        };
        let connection = ConnectionHandle::new(seen.id, self.orders.clone());
        let mut incoming = Box::new(IncomingRequest { request, connection, init, rtr, rts });
        for _ in 0..served.lanes.len() {
            let lane = served.next_lane % served.lanes.len();
            served.next_lane = lane + 1;
            let Some(mailbox) = served.lanes.get(lane).cloned() else { break };
            let device = served.device.id.clone();
            let known = Known { qp: QpId(number), mailbox: mailbox.clone(), device };
            self.known.insert(seen.id, known);
            match mailbox.put(Note::Request(incoming)) {
                Ok(()) => return Ok(()),
                Err(Note::Request(back)) => incoming = back,
                Err(_) => return Err(io::Error::other("the note was not a request")),
            }
        }
        // Dropping `incoming` has the connection released.
        incoming.connection.reject(&[]);
        Err(io::Error::other("no lane serves this device any more"))
    }
}

/// A call whose failure changes nothing (the peer or the device has gone, twice is harmless).
fn settle(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "RDMA connection manager: {what}");
    }
}

#[allow(unsafe_code)]
fn borrow_fd<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the descriptors belong to fields of the manager, which stay open during the call that this is
    // made for.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
