//! The ring itself: who owns what is in flight, how completions find their way, and how it ends.
//!
//! Several backends share a lane's ring. Each has a [`RingOwner`]; an operation goes in with a tag and comes
//! back, whole, to the owner that sent it. The ring owns the operation in between, so memory, file and
//! identity outlive the kernel's use of them whatever happens to the caller. Dropping the ring cancels and
//! waits for what is in flight.
//!
//! With `DEFER_TASKRUN` a poll of the ring's own descriptor never becomes ready: only the registered eventfd
//! wakes a sleeping lane.
#![allow(unsafe_code)]

use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt, io,
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
    sync::Arc,
};

use buffers::Arena;
use io_uring::{IoUring, opcode, squeue};
use rustix::event::EventfdFlags;

use super::{
    files::FileSlots,
    op::{Io, IoKind},
    personality::{self, Made},
};

const ENTER_GETEVENTS: u32 = 1;

/// Sizes of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSettings {
    /// Submission queue entries; four times as many operations can be in flight.
    pub entries: u32,
    /// Kernel worker threads for calls that block on files.
    pub workers_max: u32,
    /// Files in the ring's table; 0: no table.
    pub files_max: u32,
}

impl Default for RingSettings {
    fn default() -> Self {
        Self { entries: 1024, workers_max: 16, files_max: 1024 }
    }
}

/// A finished operation.
#[derive(Debug)]
pub struct IoDone {
    /// The owner's mark.
    pub tag: u64,
    /// Bytes done, or a negative error number.
    pub result: i32,
    /// The operation, given back.
    pub io: Io,
}

#[derive(Debug)]
struct InFlight {
    owner: usize,
    tag: u64,
    io: Io,
}

struct Inner {
    ring: IoUring,
    arena: Option<Arc<Arena>>,
    eventfd: Arc<OwnedFd>,
    /// The eventfd may be readable.
    drain: bool,
    slab: Vec<Option<InFlight>>,
    free: Vec<usize>,
    in_flight: usize,
    backlog: VecDeque<InFlight>,
    /// Finished operations by owner; `None`: the owner is gone.
    mailboxes: Vec<Option<Vec<IoDone>>>,
    /// Personality for operations on behalf of ordinary users.
    nobody: u16,
    files: FileSlots,
}

/// A lane's ring, shared by the backends that run on the lane. It lives on the lane's thread.
#[derive(Clone)]
pub struct LaneRing(Rc<RefCell<Inner>>);

impl fmt::Debug for LaneRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.0.borrow();
        f.debug_struct("LaneRing")
            .field("in_flight", &inner.in_flight)
            .field("backlog", &inner.backlog.len())
            .finish_non_exhaustive()
    }
}

impl LaneRing {
    /// Make a ring on the calling thread, which alone may use it, and register `arena`'s chunks with it.
    ///
    /// # Errors
    /// When the kernel has no io_uring, forbids it (sysctl, seccomp), or lacks an operation that is needed.
    /// The lane then does without: everything goes through the blocking pool.
    pub fn open(settings: &RingSettings, arena: &Arc<Arena>) -> io::Result<Self> {
        let Made { ring, nobody } = personality::make(|| build(settings))?;
        ring.submitter().register_enable_rings()?;
        probe(&ring)?;
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        // Workers for bounded work (files) and for unbounded work; both are limits for this ring's thread.
        let mut workers = [settings.workers_max.max(1), settings.workers_max.max(1)];
        if let Err(error) = ring.submitter().register_iowq_max_workers(&mut workers) {
            tracing::debug!(%error, "the number of io_uring workers stays at the kernel's default");
        }
        let arena = register_arena(&ring, arena).then(|| arena.clone());
        let files = FileSlots::register(&ring, settings.files_max.min(32_768));
        Ok(Self(Rc::new(RefCell::new(Inner {
            ring,
            arena,
            eventfd: Arc::new(eventfd),
            drain: true,
            slab: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            backlog: VecDeque::new(),
            mailboxes: Vec::new(),
            nobody,
            files,
        }))))
    }

    /// A new owner of operations on this ring.
    pub fn owner(&self) -> RingOwner {
        let mut inner = self.0.borrow_mut();
        let index = match inner.mailboxes.iter().position(Option::is_none) {
            // A place may be taken again only when nothing of the former owner is under way.
            Some(index) if inner.in_flight == 0 && inner.backlog.is_empty() => index,
            _ => {
                inner.mailboxes.push(None);
                inner.mailboxes.len() - 1
            }
        };
        inner.mailboxes[index] = Some(Vec::new());
        RingOwner { ring: self.clone(), index }
    }

    /// Readable when completions may be waiting.
    pub fn eventfd(&self) -> Arc<OwnedFd> {
        self.0.borrow().eventfd.clone()
    }

    /// Operations that the kernel has or that wait for a place.
    pub fn pending(&self) -> usize {
        let inner = self.0.borrow();
        inner.in_flight + inner.backlog.len()
    }

    /// Whether payload in the arena travels as fixed buffers.
    pub fn has_fixed_buffers(&self) -> bool {
        self.0.borrow().arena.is_some()
    }

    /// Files in the ring's table.
    pub fn registered_files(&self) -> usize {
        self.0.borrow().files.len()
    }

    /// Take files that nobody else holds out of the ring's table. Dropping them closes them, which may block.
    pub fn take_unused_files(&self) -> Vec<Arc<OwnedFd>> {
        let mut inner = self.0.borrow_mut();
        let Inner { ring, files, .. } = &mut *inner;
        files.take_unused(ring)
    }

    /// Hand everything that was pushed to the kernel.
    pub fn submit(&self) {
        self.0.borrow_mut().submit();
    }
}

/// One backend's access to the ring.
pub struct RingOwner {
    ring: LaneRing,
    index: usize,
}

impl fmt::Debug for RingOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingOwner").field("index", &self.index).finish_non_exhaustive()
    }
}

impl RingOwner {
    /// The ring.
    pub fn ring(&self) -> &LaneRing {
        &self.ring
    }

    /// Begin `io`; it reaches the kernel with the next [`LaneRing::submit`] and comes back with `tag`.
    pub fn push(&self, tag: u64, io: Io) {
        let mut inner = self.ring.0.borrow_mut();
        let item = InFlight { owner: self.index, tag, io };
        // First in, first out: nothing overtakes what already waits.
        if inner.backlog.is_empty() {
            if let Err(item) = inner.start(item) {
                inner.backlog.push_back(item);
            }
        } else {
            inner.backlog.push_back(item);
        }
    }

    /// Append what has finished.
    pub fn completions(&self, out: &mut Vec<IoDone>) {
        let mut inner = self.ring.0.borrow_mut();
        inner.reap(self.index);
        if let Some(Some(mailbox)) = inner.mailboxes.get_mut(self.index) {
            out.append(mailbox);
        }
    }
}

impl Drop for RingOwner {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.ring.0.try_borrow_mut() {
            let index = self.index;
            inner.backlog.retain(|item| item.owner != index);
            inner.mailboxes[index] = None;
        }
    }
}

impl Inner {
    /// Put `item` into the submission queue, or give it back when there is no place.
    fn start(&mut self, mut item: InFlight) -> Result<(), InFlight> {
        if self.in_flight >= self.ring.params().cq_entries() as usize {
            return Err(item);
        }
        if self.ring.submission().is_full() {
            self.submit();
            if self.ring.submission().is_full() {
                return Err(item);
            }
        }
        let personality = if item.io.identity.is_some() { self.nobody } else { 0 };
        let slot = match item.io.kind {
            IoKind::Splice { .. } => None,
            _ => self.file_slot(&item.io.file),
        };
        let arena = self.arena.as_deref();
        let Some(entry) = item.io.entry(slot, |bytes| Some(arena?.locate(bytes)?.chunk)) else {
            self.deliver(item, -libc::EINVAL);
            return Ok(());
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slab.push(None);
            self.slab.len() - 1
        });
        let entry = entry.user_data(index as u64).personality(personality);
        self.slab[index] = Some(item);
        self.in_flight += 1;
        // SAFETY: everything that the entry points to is owned by the slab until its completion is reaped,
        // and `drop` waits for all completions (or leaks the slab).
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.in_flight -= 1;
            self.free.push(index);
            return match self.slab[index].take() {
                Some(item) => Err(item),
                None => Ok(()),
            };
        }
        Ok(())
    }

    fn file_slot(&mut self, file: &Arc<OwnedFd>) -> Option<u32> {
        if let Some(slot) = self.files.get(file) {
            return Some(slot);
        }
        if !self.files.is_wanted(file) {
            return None;
        }
        if self.files.is_full() {
            // Entries in the queue may name the slot that is about to change hands.
            self.submit();
            if !self.ring.submission().is_empty() {
                return None;
            }
        }
        self.files.insert(&self.ring, file).ok()
    }

    fn deliver(&mut self, item: InFlight, result: i32) {
        if let Some(Some(mailbox)) = self.mailboxes.get_mut(item.owner) {
            mailbox.push(IoDone { tag: item.tag, result, io: item.io });
            self.wake();
        }
    }

    /// Make the eventfd readable: something waits that no completion announces.
    fn wake(&mut self) {
        self.drain = true;
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }

    fn submit(&mut self) {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => {
                    // EBUSY and EAGAIN: the kernel is short for the moment; the next turn tries again.
                    tracing::debug!(%error, "io_uring takes no entries now");
                    self.wake();
                    break;
                }
            }
        }
    }

    fn reap(&mut self, caller: usize) {
        if self.drain {
            let mut count = [0; 8];
            let got = rustix::io::read(&self.eventfd, &mut count).is_ok();
            self.drain = got;
        }
        if self.ring.submission().taskrun() || self.ring.submission().cq_overflow() {
            self.get_events();
        }
        let mut for_others = false;
        loop {
            let next = self.ring.completion().next();
            let Some(entry) = next else { break };
            self.drain = true;
            let index = entry.user_data() as usize;
            let Some(item) = self.slab.get_mut(index).and_then(Option::take) else { continue };
            self.free.push(index);
            self.in_flight -= 1;
            for_others |= item.owner != caller;
            if let Some(Some(mailbox)) = self.mailboxes.get_mut(item.owner) {
                mailbox.push(IoDone { tag: item.tag, result: entry.result(), io: item.io });
            }
        }
        if for_others {
            self.wake();
        }
        while let Some(item) = self.backlog.pop_front() {
            if let Err(item) = self.start(item) {
                self.backlog.push_front(item);
                break;
            }
        }
    }

    /// Let the kernel post deferred completions.
    fn get_events(&mut self) {
        // SAFETY: no entries are submitted and no argument is passed, so the kernel reads no memory of ours.
        let entered =
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, ENTER_GETEVENTS, None) };
        if let Err(error) = entered
            && error.raw_os_error() != Some(libc::EINTR)
        {
            tracing::debug!(%error, "io_uring_enter for completions failed");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.backlog.clear();
        self.mailboxes.clear();
        self.submit();
        if self.in_flight > 0 {
            // What waits for a worker can be cancelled; what a device has finishes by itself.
            let timeout = io_uring::types::Timespec::new().sec(1);
            let cancel = io_uring::types::CancelBuilder::any();
            let _ = self.ring.submitter().register_sync_cancel(Some(timeout), cancel);
        }
        while self.in_flight > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.reap(usize::MAX),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => {
                    // The kernel may still write to this memory: better lost than freed.
                    tracing::error!(%error, in_flight = self.in_flight, "cannot drain io_uring; leaking");
                    std::mem::forget(std::mem::take(&mut self.slab));
                    return;
                }
            }
        }
    }
}

/// The best flags that this kernel takes.
fn build(settings: &RingSettings) -> io::Result<IoUring> {
    let entries = settings.entries.clamp(8, 32_768);
    let completions = entries.saturating_mul(4);
    let mut deferred = IoUring::<squeue::Entry>::builder();
    deferred.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    deferred
        .setup_r_disabled()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(completions)
        .dontfork();
    let mut cooperative = IoUring::<squeue::Entry>::builder();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    cooperative
        .setup_r_disabled()
        .setup_submit_all()
        .setup_clamp()
        .setup_cqsize(completions)
        .dontfork();
    let mut plain = IoUring::<squeue::Entry>::builder();
    plain.setup_r_disabled().setup_clamp().setup_cqsize(completions).dontfork();
    deferred
        .build(entries)
        .or_else(|_| cooperative.build(entries))
        .or_else(|_| plain.build(entries))
}

fn probe(ring: &IoUring) -> io::Result<()> {
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
        opcode::Splice::CODE,
    ];
    if needed.into_iter().all(|code| probe.is_supported(code)) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// Register the arena's chunks as fixed buffers. Without them everything works, only dearer.
fn register_arena(ring: &IoUring, arena: &Arena) -> bool {
    let chunks: Vec<_> = arena
        .chunks()
        .map(|(start, bytes)| libc::iovec { iov_base: start.cast(), iov_len: bytes })
        .collect();
    // SAFETY: the chunks are mapped, and `Inner` keeps the arena alive as long as the ring exists.
    match unsafe { ring.submitter().register_buffers(&chunks) } {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(
                %error,
                "io_uring does not take the buffers as fixed ones; raise LimitMEMLOCK to save CPU time"
            );
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::{fd::AsFd, unix::net::UnixStream},
    };

    use buffers::{PagePool, Pool};
    use bytes::Bytes;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn open(settings: RingSettings) -> Option<(LaneRing, Arc<Pool>)> {
        let pool = Pool::standalone(16 << 20);
        // Where io_uring is forbidden there is nothing to test.
        Some((LaneRing::open(&settings, pool.arena()).ok()?, pool))
    }

    fn file(text: &[u8]) -> Arc<OwnedFd> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        Arc::new(file.into())
    }

    fn read(file: &Arc<OwnedFd>, pool: &Arc<Pool>, len: usize) -> Io {
        let into = pool.take(len).unwrap();
        let kind = IoKind::Read { into, start: 0, len };
        Io { file: file.clone(), offset: 0, flags: 0, identity: None, kind }
    }

    /// Sleep on the eventfd, as a lane does, until `count` operations are done.
    fn wait(owner: &RingOwner, count: usize) -> Vec<IoDone> {
        let mut done = Vec::new();
        owner.ring().submit();
        loop {
            owner.completions(&mut done);
            if done.len() >= count {
                return done;
            }
            owner.ring().submit();
            let inner = owner.ring().0.borrow();
            let mut fds = [PollFd::new(&inner.eventfd, PollFlags::IN)];
            let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "lost wake-up");
        }
    }

    fn text(done: &IoDone) -> &[u8] {
        let IoKind::Read { into, .. } = &done.io.kind else { panic!("{done:?}") };
        &into[..usize::try_from(done.result).unwrap()]
    }

    #[test]
    fn every_owner_gets_its_own() {
        let Some((ring, pool)) = open(RingSettings::default()) else { return };
        let (a, b) = (ring.owner(), ring.owner());
        let (one, two) = (file(b"one"), file(b"two"));
        a.push(1, read(&one, &pool, 100));
        b.push(2, read(&two, &pool, 100));
        // The first reaps both; the second must still be woken for its own.
        assert_eq!(text(&wait(&a, 1)[0]), b"one");
        let done = wait(&b, 1);
        assert_eq!((text(&done[0]), done[0].tag), (&b"two"[..], 2));
        assert_eq!(ring.pending(), 0);
    }

    #[test]
    fn more_than_the_queues_hold_is_done_in_the_end() {
        let Some((ring, pool)) = open(RingSettings { entries: 8, ..RingSettings::default() })
        else {
            return;
        };
        let owner = ring.owner();
        let file = file(b"text");
        for tag in 0..200 {
            let kind = IoKind::Write { data: Bytes::from_static(b"TEXT") };
            let io = Io { file: file.clone(), offset: 0, flags: 0, identity: None, kind };
            owner.push(tag, io);
        }
        let done = wait(&owner, 200);
        assert!(done.iter().all(|done| done.result == 4));
        owner.push(0, read(&file, &pool, 10));
        assert_eq!(text(&wait(&owner, 1)[0]), b"TEXT");
    }

    #[test]
    fn slots_change_hands_without_mixing_files_up() {
        let settings = RingSettings { files_max: 4, ..RingSettings::default() };
        let Some((ring, pool)) = open(settings) else { return };
        let owner = ring.owner();
        let files: Vec<_> = (0..20u8).map(|n| file(&[n; 50])).collect();
        for round in 0..6 {
            // Twice in a row, so that each is worth a slot; some entries wait in the queue meanwhile.
            for (n, file) in files.iter().enumerate() {
                owner.push(n as u64, read(file, &pool, 50));
                owner.push(n as u64, read(file, &pool, 50));
            }
            for done in wait(&owner, 40) {
                assert_eq!(text(&done), [done.tag as u8; 50], "round {round}");
            }
        }
        assert!(ring.registered_files() <= 4 && ring.registered_files() > 0);
        drop(files);
        assert!(!ring.take_unused_files().is_empty());
        assert_eq!(ring.registered_files(), 0);
    }

    #[test]
    fn bug_a_splice_of_an_owner_that_died_soiled_the_next_reply() {
        let Some((ring, _)) = open(RingSettings::default()) else { return };
        let (of_the_dead, of_another) = (file(&[7; 100_000]), file(&[8; 4096]));
        let pages = PagePool::new(1);
        let splice = |file: &Arc<OwnedFd>, len| {
            let pages = pages.take(0, len).unwrap();
            let kind = IoKind::Splice { pages, len };
            Io { file: file.clone(), offset: 0, flags: 0, identity: None, kind }
        };
        let dying = ring.owner();
        dying.push(1, splice(&of_the_dead, 100_000));
        ring.submit();
        drop(dying);
        // Its completion finds nobody; its pipe holds what nobody has counted.
        let owner = ring.owner();
        let patience = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while ring.pending() > 0 {
            assert!(std::time::Instant::now() < patience, "lost");
            owner.completions(&mut Vec::new());
        }
        owner.push(2, splice(&of_another, 4096));
        let done = wait(&owner, 1);
        let IoKind::Splice { pages, .. } = &done[0].io.kind else { panic!("{done:?}") };
        pages.filled(usize::try_from(done[0].result).unwrap());
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        assert_eq!(pages.splice_to(ours.as_fd(), false).unwrap(), 4096);
        let mut seen = [0; 4096];
        theirs.read_exact(&mut seen).unwrap();
        assert_eq!(seen, [8; 4096], "its own bytes, not those of the dead");
    }

    #[test]
    fn dropping_the_ring_waits_for_what_is_in_flight() {
        let Some((ring, pool)) = open(RingSettings::default()) else { return };
        let owner = ring.owner();
        let free = pool.stats().free;
        let file = file(&[1; 60_000]);
        for tag in 0..20 {
            owner.push(tag, read(&file, &pool, 4000));
            let kind = IoKind::Sync { data_only: false };
            owner.push(tag, Io { file: file.clone(), offset: 0, flags: 0, identity: None, kind });
        }
        ring.submit();
        drop(owner);
        drop(ring);
        assert_eq!(pool.stats().free, free);
        assert_eq!(Arc::strong_count(&file), 1);
    }
}
