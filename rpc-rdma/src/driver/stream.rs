//! TCP connections: a task of the lane's runtime for each.
//!
//! The task reads as long as the connection is within its limits (calls under way, bytes waiting to be
//! written), begins every complete call at once, and writes what has become ready. A peer that stops
//! reading stops being read; one that stops in the middle of a record, or does not take its replies for a
//! while, is hung up.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    os::fd::AsFd,
    rc::Rc,
    time::{Duration, Instant},
};

use buffers::Lease;
use bytes::BufMut;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use tokio::{io::Interest, net::TcpStream, sync::Notify};

use super::{core::LaneCore, holdings::Books, limits::Admission};
use crate::{
    log_rate::LogRate,
    service::{Peer, ReplyBudget, Ticket, Transport},
    tcp::{Assembler, AssemblerLimits, Front, Next, Outbound, Space},
    xdr::Rope,
};

/// What one TCP connection may do.
#[derive(Debug, Clone, Copy)]
pub struct StreamSettings {
    /// Calls under way.
    pub calls_max: usize,
    /// Bytes of replies that wait to be written, or that calls under way can still come to, before reading
    /// stops. Never more than a share of the lane's buffers.
    pub outbound_bytes_max: usize,
    /// How long a peer may take over one record, or over taking replies, without any progress.
    pub stall_timeout: Duration,
    /// The same while others wait for the buffers that it holds.
    pub stall_timeout_starved: Duration,
    /// How long a connection may be idle; `None`: for ever (keep-alive still finds dead peers).
    pub idle_timeout: Option<Duration>,
    /// Messages that are not calls before the peer is hung up.
    pub garbage_max: u32,
    /// Record sizes.
    pub records: AssemblerLimits,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            calls_max: 256,
            outbound_bytes_max: 8 << 20,
            stall_timeout: Duration::from_secs(60),
            stall_timeout_starved: Duration::from_secs(5),
            idle_timeout: None,
            garbage_max: 16,
            records: AssemblerLimits::default(),
        }
    }
}

/// A record may take so many times the stall timeout, whatever trickles in: it holds a buffer.
const RECORD_STALLS_MAX: u32 = 4;

/// Room for everything in a reply that is not bulk data.
const REPLY_OVERHEAD_BYTES: usize = 64 << 10;
/// Bulk data in one reply.
pub(super) const BULK_BYTES_MAX: usize = 1 << 20;

/// The part of a connection that replies reach.
#[derive(Debug)]
pub struct Connection {
    peer: Peer,
    settings: StreamSettings,
    outbound: RefCell<Outbound>,
    calls: Cell<usize>,
    /// What it holds of the lane's buffers.
    pub(super) books: Books,
    garbage: Cell<u32>,
    /// Something changed that the task must look at.
    changed: Notify,
    last_progress: Cell<Instant>,
    mid_record: Cell<bool>,
    /// Since when the record that is arriving has been awaited.
    record_since: Cell<Option<Instant>>,
    hang_up: Cell<bool>,
}

impl Connection {
    fn new(peer: Peer, settings: StreamSettings, now: Instant) -> Rc<Self> {
        Rc::new(Self {
            peer,
            settings,
            outbound: RefCell::default(),
            calls: Cell::new(0),
            books: Books::default(),
            garbage: Cell::new(0),
            changed: Notify::new(),
            last_progress: Cell::new(now),
            mid_record: Cell::new(false),
            record_since: Cell::new(None),
            hang_up: Cell::new(false),
        })
    }

    /// What it was noted to hold before, and what it holds now.
    pub(super) fn rebook(&self) -> (usize, usize) {
        self.books.rebook(self.outbound.borrow().bound())
    }

    /// Here is the buffer that it has waited for. (It was we who kept the peer waiting.)
    pub(super) fn grant(&self, lease: Lease) {
        self.books.grant(lease);
        self.progressed();
        self.changed.notify_one();
    }

    /// A reply to a call of this connection.
    pub(super) fn push(&self, reply: &Rope) {
        if self.outbound.borrow().is_empty() {
            // From now on the peer is to take something.
            self.progressed();
        }
        let bound = self.books.replied(reply);
        // A failure carries no data, and pages of the page cache need no buffer: it has gone back.
        let in_buffer = reply.pieces.iter().any(|piece| piece.data.bytes().is_some());
        let bound = if in_buffer { bound } else { 0 };
        self.outbound.borrow_mut().push(reply, bound);
        self.calls.set(self.calls.get().saturating_sub(1));
        self.changed.notify_one();
    }

    /// A message of this connection gets no reply.
    pub(super) fn abandon(&self) {
        self.calls.set(self.calls.get().saturating_sub(1));
        self.garbage.set(self.garbage.get() + 1);
        if self.garbage.get() > self.settings.garbage_max {
            static RATE: LogRate = LogRate::per_second();
            if let Some(left_out) = RATE.next() {
                let peer = self.peer.address;
                tracing::warn!(%peer, left_out, "closing a connection that sends garbage");
            }
            self.hang_up.set(true);
        }
        self.changed.notify_one();
    }

    /// Once a second: enforce the timeouts.
    pub(super) fn tick(&self, now: Instant) {
        let quiet = now.saturating_duration_since(self.last_progress.get());
        let stalled = self.mid_record.get() || !self.outbound.borrow().is_empty();
        let limit = if stalled {
            Some(self.settings.stall_timeout)
        } else {
            self.settings.idle_timeout.filter(|_| self.calls.get() == 0)
        };
        let slow = self.record_since.get().is_some_and(|since| {
            now.saturating_duration_since(since) > self.settings.stall_timeout * RECORD_STALLS_MAX
        });
        if slow || limit.is_some_and(|limit| quiet > limit) {
            let what = if slow || stalled { "stalled" } else { "idle" };
            static RATE: LogRate = LogRate::per_second();
            if let Some(left_out) = RATE.next().filter(|_| !self.hang_up.get()) {
                let peer = self.peer.address;
                tracing::info!(%peer, left_out, "closing a connection that is {what}");
            }
            self.hang_up.set(true);
        }
        self.changed.notify_one();
    }

    /// Whether the peer has not moved for longer than others should have to wait.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        let quiet = now.saturating_duration_since(self.last_progress.get());
        let patience = self.settings.stall_timeout_starved.min(self.settings.stall_timeout);
        quiet >= patience && (self.mid_record.get() || !self.outbound.borrow().is_empty())
    }

    /// Hang up because others wait for what it holds.
    pub(super) fn hang_up_for_others(&self) {
        static RATE: LogRate = LogRate::per_second();
        if let Some(left_out) = RATE.next().filter(|_| !self.hang_up.get()) {
            let (peer, bytes) = (self.peer.address, self.books.held());
            tracing::warn!(%peer, bytes, left_out, "closing a stalled connection: others wait for its buffers");
        }
        self.hang_up.set(true);
        self.changed.notify_one();
    }

    fn may_read(&self) -> bool {
        self.calls.get() < self.settings.calls_max
            && self.outbound.borrow().bytes() + self.books.expected()
                < self.settings.outbound_bytes_max
    }

    fn is_quiet(&self) -> bool {
        self.calls.get() == 0 && self.outbound.borrow().is_empty()
    }

    /// Whether the peer owes the rest of a record.
    fn set_mid_record(&self, mid_record: bool) {
        self.mid_record.set(mid_record);
        let since = self.record_since.get().filter(|_| mid_record);
        self.record_since.set(since.or_else(|| mid_record.then(Instant::now)));
    }

    fn progressed(&self) {
        self.last_progress.set(Instant::now());
    }
}

/// Serve one connection until either side ends it.
pub(super) async fn serve(
    core: Rc<LaneCore>,
    stream: TcpStream,
    mut settings: StreamSettings,
    admission: Admission,
) {
    settings.outbound_bytes_max = settings.outbound_bytes_max.min(core.holdings.stream_max());
    let Ok(address) = stream.peer_addr() else { return };
    if let Err(error) = tune(&stream, settings.stall_timeout) {
        static RATE: LogRate = LogRate::per_second();
        if let Some(left_out) = RATE.next() {
            tracing::warn!(peer = %address, %error, left_out, "cannot set socket options");
        }
    }
    let peer = Peer { address, transport: Transport::Tcp };
    let connection = Connection::new(peer, settings, Instant::now());
    let ticket = core.add_stream(&connection);
    let assembler = Assembler::new(settings.records);
    let task =
        StreamTask { core: core.clone(), stream, connection, ticket, assembler, starved: false };
    match task.run().await {
        Ok(()) => tracing::debug!(peer = %address, "connection closed"),
        Err(error) => tracing::debug!(peer = %address, %error, "connection lost"),
    }
    core.remove_stream(ticket);
    drop(admission);
}

fn tune(stream: &TcpStream, stall: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 6)?;
    let millis = u32::try_from(stall.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)?;
    Ok(())
}

struct StreamTask {
    core: Rc<LaneCore>,
    stream: TcpStream,
    connection: Rc<Connection>,
    ticket: Ticket,
    assembler: Assembler,
    /// Reading waits for a pool buffer.
    starved: bool,
}

/// What reading one batch came to.
enum Read {
    /// The socket has no more for now.
    Blocked,
    /// A limit was reached, or enough was done for one turn.
    Paused,
    /// The peer has ended its side.
    End,
}

/// Bytes read in one go before other connections get their turn.
const READ_BYTES_PER_TURN: usize = 2 << 20;

impl StreamTask {
    async fn run(mut self) -> io::Result<()> {
        let mut ended = false;
        loop {
            if self.connection.hang_up.get() {
                return Ok(());
            }
            let done = ended || self.core.draining.get();
            if !done && self.connection.may_read() {
                match self.read_calls()? {
                    Read::Blocked => {}
                    Read::End => ended = true,
                    Read::Paused => {
                        self.write_replies()?;
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
            }
            self.write_replies()?;
            if (ended || self.core.draining.get()) && self.connection.is_quiet() {
                return Ok(());
            }
            self.wait(ended).await?;
        }
    }

    /// Sleep until the socket or a reply needs us.
    async fn wait(&self, ended: bool) -> io::Result<()> {
        let open = !ended && !self.core.draining.get() && self.connection.may_read();
        let reading = open && !self.starved;
        let writing = !self.connection.outbound.borrow().is_empty();
        tokio::select! {
            biased;
            () = self.connection.changed.notified() => {}
            ready = self.stream.readable(), if reading => ready?,
            ready = self.stream.writable(), if writing => ready?,
        }
        Ok(())
    }

    /// Read and begin calls until the socket is empty or a limit is reached.
    fn read_calls(&mut self) -> io::Result<Read> {
        let mut budget = READ_BYTES_PER_TURN;
        loop {
            if let Some(read) = self.begin_complete_calls()? {
                return Ok(read);
            }
            match self.read_once() {
                Ok((0, _)) => return Ok(Read::End),
                Ok((count, empty)) => {
                    self.connection.progressed();
                    budget = budget.saturating_sub(count);
                    if empty {
                        self.emptied();
                        if let Some(read) = self.begin_complete_calls()? {
                            return Ok(read);
                        }
                        self.connection.set_mid_record(self.assembler.is_mid_record());
                        return Ok(Read::Blocked);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.connection.set_mid_record(self.assembler.is_mid_record());
                    return Ok(Read::Blocked);
                }
                Err(error) => return Err(error),
            }
            if budget == 0 {
                self.connection.set_mid_record(false);
                self.begin_complete_calls()?;
                return Ok(Read::Paused);
            }
        }
    }

    /// Begin every call that is complete. `Some`: reading must stop for now.
    fn begin_complete_calls(&mut self) -> io::Result<Option<Read>> {
        let core = self.core.clone();
        let mut begun = false;
        let outcome = loop {
            if !self.connection.may_read() {
                self.connection.set_mid_record(false);
                break Some(Read::Blocked);
            }
            match self.assembler.next(|start| core.bulk_offset(start)).map_err(io::Error::other)? {
                Next::Record(message) => {
                    begun = true;
                    self.connection.set_mid_record(false);
                    self.connection.books.set_lent(0);
                    self.connection.calls.set(self.connection.calls.get() + 1);
                    core.begin(self.ticket, &self.connection.peer, tcp_budget(), message);
                    if self.connection.hang_up.get() {
                        break None;
                    }
                }
                Next::Buffer(bytes) => {
                    if !self.borrow_buffer(bytes) {
                        // It is we who keep the peer waiting.
                        self.connection.set_mid_record(false);
                        break Some(Read::Blocked);
                    }
                }
                Next::More => break None,
            }
        };
        if begun {
            core.account(&self.connection);
            core.kicked.notify_one();
        }
        Ok(outcome)
    }

    /// Get a pool buffer for the record that is arriving. If there is none, reading waits; replies go on
    /// being written, since they may be what holds the buffers.
    fn borrow_buffer(&mut self, bytes: usize) -> bool {
        let lease = self.core.holdings.borrow(&self.connection, bytes);
        self.starved = lease.is_none();
        let Some(lease) = lease else {
            // The lane asks for it from now on.
            self.core.kicked.notify_one();
            return false;
        };
        self.assembler.lend(lease);
        true
    }

    /// Read once. Returns how much came, and whether there was room for more.
    fn read_once(&mut self) -> io::Result<(usize, bool)> {
        match self.assembler.space() {
            Space::Stream(buffer, limit) => {
                let room = (buffer.capacity() - buffer.len()).min(limit);
                let count = self.stream.try_read_buf(&mut buffer.limit(limit))?;
                Ok((count, count < room))
            }
            Space::Buffer(buffer) => {
                let room = buffer.len();
                let count = self.stream.try_read(buffer)?;
                self.assembler.filled(count);
                Ok((count, count < room))
            }
        }
    }

    /// The socket gave less than there was room for: it is empty, and the next byte announces itself.
    fn emptied(&self) {
        let empty: io::Result<()> =
            self.stream.try_io(Interest::READABLE, || Err(io::ErrorKind::WouldBlock.into()));
        debug_assert!(empty.is_err());
    }

    /// Write as much as the socket takes.
    fn write_replies(&self) -> io::Result<()> {
        let written = self.write_outbound();
        self.core.account(&self.connection);
        written
    }

    fn write_outbound(&self) -> io::Result<()> {
        let mut outbound = self.connection.outbound.borrow_mut();
        while let Some(front) = outbound.front() {
            let sent = self.stream.try_io(Interest::WRITABLE, || match &front {
                Front::Slices(slices, more) => send(&self.stream, slices, *more),
                Front::Pages(pages, more) => pages.splice_to(self.stream.as_fd(), *more),
            });
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    outbound.sent(count);
                    self.connection.progressed();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// One vectored write. `more`: the segment is not complete, what follows goes with it.
fn send(stream: &TcpStream, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    Ok(sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

fn tcp_budget() -> ReplyBudget {
    ReplyBudget { message_bytes_max: BULK_BYTES_MAX + REPLY_OVERHEAD_BYTES, direct_bytes_max: None }
}
