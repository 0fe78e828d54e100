//! One lane's RDMA: polls the devices, feeds the connections, carries out what they ask for.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{
    mem,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use buffers::{Pool, pool::CLASS_BYTES};

use super::{
    lease_queue::LeaseQueue,
    links::{LinkKey, Links},
    poison::PoisonRing,
    settings::RdmaSettings,
    stats::{ConnectionStats, RdmaStats},
};
use crate::{
    conn::{Action, CallId, CloseReason, Connection},
    driver::{ConnectionLimits, LogRate},
    service::{Peer, ReplyBudget, Ticket, Transport},
    wire::{
        Alarm, Provider, QpId, QpMap, WireError, WireEvent, WireLimits, Work, WorkCompletion,
        WorkId,
    },
    xdr::Rope,
};

/// Completions taken from one device in one turn.
const COMPLETIONS_PER_TURN: usize = 64;
/// Messages taken from one connection in one turn.
const MESSAGES_PER_TURN: usize = 32;
/// Least time between two log lines about connections that come or go: a client that connects in a tight loop
/// must not fill the log.
pub(super) const COMINGS_AND_GOINGS: Duration = Duration::from_millis(100);
/// This part of the buffers for messages is for replies alone: calls wait for payload memory in theirs, and
/// payload memory comes back when replies go out.
const RESERVE_SHARE: usize = 16;
/// How often timers are looked at.
const TICK: Duration = Duration::from_millis(250);

/// A call for the program.
#[derive(Debug)]
pub struct DeliveredCall {
    /// Names it for [`RdmaSide::reply`].
    pub ticket: Ticket,
    /// Who asks.
    pub peer: Peer,
    /// How much the reply may be.
    pub budget: ReplyBudget,
    /// The RPC message, not yet decoded.
    pub message: Rope,
}

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    pub provider: Box<dyn Provider>,
    pub by_qp: QpMap<LinkKey>,
    /// It has refused Send with Invalidate although it said that it can.
    pub invalidate_refused: bool,
    invalidate_proven: bool,
    invalidate_first: Option<(QpId, WorkId)>,
}

impl Device {
    pub fn limits(&self) -> WireLimits {
        self.provider.limits()
    }
}

/// The RDMA side of one lane. Not shared between threads.
#[derive(Debug)]
pub struct RdmaSide {
    pub(super) settings: RdmaSettings,
    pub(super) limits: Arc<ConnectionLimits>,
    pub(super) pool: Arc<Pool>,
    pub(super) devices: Vec<Option<Device>>,
    pub(super) links: Links,
    pub(super) poison: PoisonRing,
    pub(super) draining: bool,
    pub(super) now: Instant,
    pub(super) stats: RdmaStats,
    leases: LeaseQueue,
    /// Connections that wait for the end of what they have posted.
    awaiting: usize,
    listed: Vec<LinkKey>,
    ready: Vec<DeliveredCall>,
    completions: Vec<WorkCompletion>,
    ticked_at: Instant,
    /// Buffers for messages that arriving ones leave to replies.
    reserve: usize,
}

impl RdmaSide {
    /// A side without devices. `limits` are those of all lanes.
    pub fn new(settings: RdmaSettings, limits: Arc<ConnectionLimits>, pool: Arc<Pool>) -> Self {
        let now = Instant::now();
        let class = CLASS_BYTES.iter().position(|&size| size >= settings.inline());
        let total = class.and_then(|class| pool.stats().total.get(class).copied());
        Self {
            settings,
            limits,
            reserve: total.unwrap_or(0) / RESERVE_SHARE,
            leases: LeaseQueue::new(pool.clone()),
            pool,
            devices: Vec::new(),
            links: Links::default(),
            poison: PoisonRing::default(),
            draining: false,
            now,
            stats: RdmaStats::default(),
            awaiting: 0,
            listed: Vec::new(),
            ready: Vec::new(),
            completions: Vec::with_capacity(COMPLETIONS_PER_TURN),
            ticked_at: now,
        }
    }

    /// Serve on this device, too.
    pub fn add_provider(&mut self, provider: Box<dyn Provider>) {
        let device = Some(Device {
            provider,
            by_qp: QpMap::default(),
            invalidate_refused: false,
            invalidate_proven: false,
            invalidate_first: None,
        });
        match self.devices.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = device,
            None => self.devices.push(device),
        }
    }

    /// Do what there is to do, within bounds, and append the calls that have come. Returns how much was
    /// done: with 0 the lane may sleep after [`Self::arm`] and one more turn.
    pub fn turn(&mut self, now: Instant, calls: &mut Vec<DeliveredCall>) -> usize {
        self.now = now;
        let mut progress = 0;
        for index in 0..self.devices.len() {
            progress += self.poll_device(index);
        }
        progress += self.serve_leases();
        if now.saturating_duration_since(self.ticked_at) >= TICK {
            self.ticked_at = now;
            self.each(|_| true, |conn, now| conn.tick(now));
        }
        progress += self.work();
        progress += self.ready.len();
        calls.append(&mut self.ready);
        progress
    }

    /// Answer a call. Tickets of other transports and of connections that are gone are ignored.
    pub fn reply(&mut self, ticket: Ticket, reply: Rope) {
        self.on_call(ticket, |conn, call| conn.reply(call, reply));
    }

    /// Give a call up that has no RPC answer; the client gets ERR_CHUNK and its credit back.
    pub fn abandon(&mut self, ticket: Ticket) {
        self.on_call(ticket, |conn, call| conn.abandon(call));
    }

    fn on_call(&mut self, ticket: Ticket, answer: impl FnOnce(&mut Connection, CallId)) {
        let Some((key, call)) = LinkKey::of(ticket) else { return };
        let Some(link) = self.links.get_mut(key) else { return };
        answer(&mut link.conn, call);
        self.list(key);
        self.settle();
    }

    /// Hand everything posted to the devices: the end of every turn. Returns how much has come back from it
    /// without a wake-up, so that another turn must follow.
    pub fn flush(&mut self) -> usize {
        self.devices.iter_mut().flatten().map(|device| device.provider.flush()).sum()
    }

    /// Ask all devices for a wake-up at the next message; at the next completion of any kind if somebody
    /// waits for what that would free.
    pub fn arm(&mut self) {
        let waits = self.awaiting > 0 || self.leases.len() > 0 || self.pool.is_starved();
        let alarm = if waits { Alarm::Everything } else { Alarm::Arrivals };
        self.devices.iter_mut().flatten().for_each(|device| device.provider.arm(alarm));
    }

    /// What becomes readable when there is something to do.
    pub fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.devices.iter().flatten().flat_map(|device| device.provider.wake_fds()).collect()
    }

    /// When a turn is due even if nothing happens, for timers.
    pub fn deadline(&self) -> Option<Instant> {
        (self.links.len() > 0).then(|| self.ticked_at + TICK)
    }

    /// Take no more connections and calls; what is being executed finishes, then the connections close.
    /// Drained when [`Self::connections`] is 0.
    pub fn drain(&mut self) {
        self.draining = true;
        self.each(|_| true, |conn, now| conn.drain(now));
        self.settle();
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.links.len()
    }

    /// Sums over all connections.
    pub fn stats(&self) -> RdmaStats {
        let mut stats = self.stats;
        stats.connections = self.links.len();
        stats.leases_waiting = self.leases.len();
        for link in self.links.iter() {
            stats.credits_granted += link.conn.credits_granted() as usize;
            stats.calls_under_way += link.conn.calls_under_way();
            stats.counters.add(link.conn.counters());
        }
        stats
    }

    /// Calls and replies that wait for a buffer.
    pub fn leases_waiting(&self) -> usize {
        self.leases.len()
    }

    /// Every open connection.
    pub fn connection_stats(&self) -> Vec<ConnectionStats> {
        let of = |link: &super::links::Link| ConnectionStats {
            peer: link.peer,
            state: link.conn.state(),
            credits_granted: link.conn.credits_granted(),
            calls_under_way: link.conn.calls_under_way(),
            counters: *link.conn.counters(),
        };
        self.links.iter().map(of).collect()
    }

    /// Events and completions of one device.
    fn poll_device(&mut self, index: usize) -> usize {
        let Some(Some(device)) = self.devices.get_mut(index) else { return 0 };
        let mut events = Vec::new();
        device.provider.events(&mut events);
        let mut completions = mem::take(&mut self.completions);
        device.provider.poll(&mut completions, COMPLETIONS_PER_TURN);
        let progress = events.len() + completions.len();
        let mut gone = false;
        // Completions first: what a peer sent before it hung up still counts.
        for completion in completions.drain(..) {
            self.completion(index, completion);
        }
        self.completions = completions;
        for event in events {
            match event {
                WireEvent::ConnectRequest(request) => self.connect_request(index, &request),
                WireEvent::Established(qp) => self.on_qp(index, qp, Connection::established),
                WireEvent::Disconnected(qp) => self.on_qp(index, qp, Connection::disconnected),
                WireEvent::Failed(qp) => self.on_qp(index, qp, Connection::failed),
                WireEvent::DeviceGone => gone = true,
            }
        }
        if gone {
            self.device_gone(index);
        }
        progress
    }

    /// The device is gone: so are its connections, at once. The others stay.
    fn device_gone(&mut self, index: usize) {
        self.stats.devices_lost += 1;
        self.each(|link| link.device == index, |conn, now| conn.device_gone(now));
        self.settle();
        let device = self.devices.get_mut(index).and_then(Option::take);
        if let Some(device) = device {
            tracing::warn!(device = device.provider.name(), "RDMA device is gone");
        }
    }

    fn completion(&mut self, index: usize, completion: WorkCompletion) {
        let now = self.now;
        match completion {
            WorkCompletion::Received { qp, buffer, len } => {
                let spare = self.pool.take_leaving(self.settings.inline(), self.reserve);
                self.on_qp(index, qp, |conn, now| conn.received(now, buffer, len, spare));
            }
            WorkCompletion::ReceiveFailed { qp, buffer, fault } => {
                drop(buffer);
                self.on_qp(index, qp, |conn, now| conn.receive_failed(now, fault));
            }
            WorkCompletion::Replied { qp, id, result } => {
                if let Some(Some(device)) = self.devices.get_mut(index)
                    && device.invalidate_first == Some((qp, id))
                {
                    device.invalidate_first = None;
                    device.invalidate_proven = result.is_ok();
                }
                self.on_qp(index, qp, |conn, _| conn.replied(now, CallId(id as u32), result));
            }
            WorkCompletion::Fetched { qp, id, sink, result } => {
                let call = CallId(id as u32);
                self.on_qp(index, qp, |conn, _| conn.fetched(now, call, sink, result));
            }
        }
    }

    /// Tell the connection of a queue pair something.
    fn on_qp(&mut self, index: usize, qp: QpId, tell: impl FnOnce(&mut Connection, Instant)) {
        let now = self.now;
        let device = self.devices.get(index).and_then(Option::as_ref);
        let Some(&key) = device.and_then(|device| device.by_qp.get(&qp)) else { return };
        if let Some(link) = self.links.get_mut(key) {
            tell(&mut link.conn, now);
            self.list(key);
        }
    }

    /// Tell many connections something.
    fn each(
        &mut self,
        wanted: impl Fn(&super::links::Link) -> bool,
        tell: impl Fn(&mut Connection, Instant),
    ) {
        let now = self.now;
        for key in self.links.keys(wanted) {
            if let Some(link) = self.links.get_mut(key) {
                tell(&mut link.conn, now);
                self.list(key);
            }
        }
    }

    /// Note that a connection has something to do.
    pub(super) fn list(&mut self, key: LinkKey) {
        if let Some(link) = self.links.get_mut(key)
            && !mem::replace(&mut link.listed, true)
        {
            self.listed.push(key);
        }
    }

    /// Let every connection that has something to do take its messages. Returns how many have more.
    fn work(&mut self) -> usize {
        let now = self.now;
        let mut more = Vec::new();
        let listed = mem::take(&mut self.listed);
        for &key in &listed {
            if let Some(link) = self.links.get_mut(key)
                && link.conn.work(now, MESSAGES_PER_TURN)
            {
                more.push(key);
            }
        }
        self.listed = listed;
        self.settle();
        more.iter().for_each(|&key| self.list(key));
        more.len()
    }

    /// Carry out all actions, and what follows from them.
    fn settle(&mut self) {
        while let Some(key) = self.listed.pop() {
            if let Some(link) = self.links.get_mut(key) {
                link.listed = false;
            }
            while let Some(action) = self.links.get_mut(key).and_then(|l| l.conn.poll_action()) {
                self.carry_out(key, action);
            }
            self.serve_leases();
            if let Some(link) = self.links.get_mut(key) {
                let before = mem::replace(&mut link.awaits, link.conn.awaits_completions());
                self.awaiting = self.awaiting + usize::from(link.awaits) - usize::from(before);
            }
        }
    }

    fn serve_leases(&mut self) -> usize {
        let now = self.now;
        let mut served = 0;
        while let Some((key, call, lease)) = self.leases.serve() {
            served += 1;
            if let Some(link) = self.links.get_mut(key) {
                link.conn.lease(now, call, lease);
                self.list(key);
            }
        }
        served
    }

    fn carry_out(&mut self, key: LinkKey, action: Action) {
        let now = self.now;
        let Some(link) = self.links.get_mut(key) else { return };
        let Some(Some(device)) = self.devices.get_mut(link.device) else { return };
        match action {
            Action::Receive(lease) => {
                if let Err(error) = device.provider.post_receive(link.qp, lease) {
                    static RATE: LogRate = LogRate::per_second();
                    if let Some(left_out) = RATE.next() {
                        tracing::warn!(peer = %link.peer, left_out, "cannot post a Receive: {error}");
                    }
                    link.conn.receive_refused(now);
                }
            }
            Action::Post(call, work) => {
                let forbid = device.post(link.qp, WorkId::from(call.0), work);
                match forbid {
                    Posted::Yes => {}
                    Posted::WithoutInvalidate => link.conn.forbid_invalidate(),
                    Posted::No => link.conn.work_refused(now, call),
                }
            }
            Action::Deliver { call, budget, message } => {
                let peer = Peer { address: link.peer, transport: Transport::Rdma };
                let ticket = key.ticket(call);
                self.ready.push(DeliveredCall { ticket, peer, budget, message });
            }
            Action::NeedLease { call, bytes } => {
                if !self.leases.ask(key, call, bytes) {
                    link.conn.close(now, CloseReason::Refused);
                }
            }
            Action::Remember { xid } => self.poison.remember(now, link.peer.ip(), xid),
            Action::Disconnect => device.provider.disconnect(link.qp),
            Action::Destroy => self.destroy(key),
        }
    }

    fn destroy(&mut self, key: LinkKey) {
        let Some(link) = self.links.remove(key) else { return };
        self.awaiting -= usize::from(link.awaits);
        if let Some(Some(device)) = self.devices.get_mut(link.device) {
            device.by_qp.remove(&link.qp);
            device.provider.destroy(link.qp);
        }
        self.leases.forget(key);
        self.stats.counters.add(link.conn.counters());
        if let Some(reason) = link.conn.close_reason() {
            static RATE: LogRate = LogRate::new(COMINGS_AND_GOINGS);
            if let Some(left_out) = RATE.next() {
                tracing::info!(peer = %link.peer, left_out, "RDMA connection closed: {reason}");
            }
        }
    }
}

fn log_unposted(what: &str, error: &WireError) {
    static RATE: LogRate = LogRate::per_second();
    if let Some(left_out) = RATE.next() {
        tracing::warn!(left_out, "cannot post {what}: {error}");
    }
}

/// How posting went.
enum Posted {
    Yes,
    WithoutInvalidate,
    No,
}

impl Device {
    /// Post work. A reply that the device refuses for its invalidation goes without.
    fn post(&mut self, qp: QpId, id: WorkId, work: Work) -> Posted {
        let plain = match &work {
            Work::Reply { writes, send, invalidate: Some(_) } if !self.invalidate_proven => {
                let (writes, send) = (writes.clone(), send.clone());
                Some(Work::Reply { writes, send, invalidate: None })
            }
            _ => None,
        };
        let invalidates = plain.is_some();
        let error = match self.provider.post(qp, id, work) {
            Ok(()) => {
                if invalidates && self.invalidate_first.is_none() {
                    self.invalidate_first = Some((qp, id));
                }
                return Posted::Yes;
            }
            Err(error) => error,
        };
        match plain.map(|plain| self.provider.post(qp, id, plain)) {
            Some(Ok(())) => {
                let device = self.provider.name();
                tracing::warn!(device, "Send with Invalidate does not work here: {error}");
                self.invalidate_refused = true;
                Posted::WithoutInvalidate
            }
            Some(Err(error)) => {
                log_unposted("a reply", &error);
                Posted::No
            }
            None => {
                log_unposted("work", &error);
                Posted::No
            }
        }
    }
}
