//! WRITE (RFC 1813 section 3.3.7).
//!
//! Data goes to the file as the caller, so that the kernel clears set-id bits and charges quotas. How stable
//! it is when the answer goes out is decided by the write itself (`RWF_DSYNC`, `RWF_SYNC`). In direct mode the
//! aligned middle goes past the page cache and unaligned edges through it, one after the other and apart from
//! other such writes of the file ([`super::write_gate`]).

use std::{collections::VecDeque, ops::Range, sync::Arc, sync::atomic::Ordering};

use buffers::copies::{self, Why};
use bytes::Bytes;

use crate::{
    attr::Around,
    blocking::creds,
    error::{BackendError, ErrorKind},
    op::{Outcome, Stability, WriteVerifier},
    uring::{Io, IoDone},
};

use super::{
    attr::stat,
    backend::LocalBackend,
    commit::Awaited,
    inbox::{Inbox, Message},
    open_file::{DirectAlign, Purpose},
    settings::IoMode,
    transfer::{RETRIES_MAX, RWF_DONTCACHE, RWF_DSYNC, RWF_SYNC, Step, Subject, not_prepared},
    write_gate::Pass,
};

/// A part of the data that goes one way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    range: Range<usize>,
    direct: bool,
}

/// A WRITE under way.
#[derive(Debug)]
pub struct WriteTransfer {
    subject: Subject,
    offset: u64,
    data: Bytes,
    stability: Stability,
    verifier: WriteVerifier,
    pieces: VecDeque<Piece>,
    written: usize,
    flags: i32,
    pass: Option<Pass>,
    /// Where the gate's word goes when the write has to wait at it.
    gate_word: (Arc<Inbox>, u64),
    retries: u32,
    running: bool,
    /// The data goes into the page cache first, and a sync that others share makes it stable. (The kernel
    /// would carry out synchronous writes of one file one after the other, each with a flush of its own.)
    sync_after: bool,
    /// The gate is open for this write.
    admitted: bool,
}

impl WriteTransfer {
    /// Check and plan. `tag` comes back in [`Message::GateOpen`] when the write has to wait.
    pub fn start(
        backend: &LocalBackend,
        subject: Subject,
        (offset, data, stability): (u64, Bytes, Stability),
        (inbox, tag): (&Arc<Inbox>, u64),
    ) -> (Option<Self>, Step) {
        let mut write = Self {
            subject,
            offset,
            data,
            stability,
            verifier: backend.verifier.sample(),
            pieces: VecDeque::new(),
            written: 0,
            flags: 0,
            pass: None,
            gate_word: (inbox.clone(), tag),
            retries: 0,
            running: false,
            sync_after: false,
            admitted: false,
        };
        if let Err(error) = write.plan(backend) {
            let step = Step::Done(write.subject.answer(Err(error)));
            return (None, step);
        }
        write.subject.file.write_begins(write.is_unstable());
        write.running = true;
        let step = write.enter();
        (Some(write), step)
    }

    /// Go through the gate, if there is one for this write, and begin or go on.
    fn enter(&mut self) -> Step {
        if let Some(pass) = self.pass {
            let (inbox, tag) = self.gate_word.clone();
            let notify = move || inbox.send(Message::GateOpen(tag));
            if !self.subject.file.gate.enter(pass, notify) {
                return Step::Wait;
            }
            self.admitted = true;
        }
        self.next()
    }

    fn leave(&mut self) {
        let admitted = std::mem::take(&mut self.admitted);
        if let Some(pass) = self.pass.filter(|_| admitted) {
            self.subject.file.gate.leave(pass);
        }
    }

    /// Whatever the file system has against direct writes, the page cache takes the rest: apart from all
    /// others, as every write that touches it beside direct ones.
    fn fall_back(&mut self) -> Step {
        self.pieces.iter_mut().for_each(|piece| piece.direct = false);
        if self.pass != Some(Pass::Shared) {
            return self.next();
        }
        self.leave();
        self.pass = Some(Pass::Alone);
        self.enter()
    }

    fn is_unstable(&self) -> bool {
        self.stability == Stability::Unstable || self.sync_after
    }

    fn plan(&mut self, backend: &LocalBackend) -> Result<(), BackendError> {
        let file = &self.subject.file;
        let end = self.offset.checked_add(self.data.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(BackendError::new(ErrorKind::TooLarge, "write"));
        }
        file.ready(Purpose::Write).ok_or_else(not_prepared)?;
        self.flags = match self.stability {
            Stability::Unstable => 0,
            Stability::DataSync => RWF_DSYNC,
            Stability::FileSync => RWF_SYNC,
        };
        let whole = 0..self.data.len();
        match backend.settings.io_mode {
            IoMode::Direct => {
                let direct = file.ready(Purpose::DirectWrite).and(file.direct_align());
                if let Some(align) = direct {
                    self.pieces = cut(self.offset, &self.data, align).into();
                    let alone = self.pieces.iter().any(|piece| !piece.direct);
                    self.pass = Some(if alone { Pass::Alone } else { Pass::Shared });
                    return Ok(());
                }
            }
            IoMode::DontCache if backend.dont_cache_works.load(Ordering::Relaxed) => {
                self.flags |= RWF_DONTCACHE;
            }
            _ => {}
        }
        if !whole.is_empty() {
            self.pieces.push_back(Piece { range: whole, direct: false });
            self.sync_after = self.stability != Stability::Unstable;
            self.flags &= !(RWF_DSYNC | RWF_SYNC);
        }
        Ok(())
    }

    /// The gate is open.
    pub fn passed(&mut self) -> Step {
        self.admitted();
        self.next()
    }

    fn next(&mut self) -> Step {
        let Some(piece) = self.pieces.front().cloned() else { return self.finish(None) };
        let file = &self.subject.file;
        let purpose = if piece.direct { Purpose::DirectWrite } else { Purpose::Write };
        let Some(fd) = file.ready(purpose).cloned() else {
            return self.finish(Some(not_prepared()));
        };
        let identity =
            (creds::can_switch() && self.subject.who.uid != 0).then(|| self.subject.who.clone());
        Step::Io(Io {
            file: fd,
            offset: self.offset + piece.range.start as u64,
            flags: self.flags,
            identity,
            kind: crate::uring::IoKind::Write { data: self.data.slice(piece.range) },
        })
    }

    /// A piece, or a part of it, is written, or an error.
    pub fn advance(&mut self, backend: &LocalBackend, done: IoDone) -> Step {
        let Ok(count) = usize::try_from(done.result) else {
            return self.failed(backend, -done.result);
        };
        let Some(piece) = self.pieces.front_mut() else { return self.finish(None) };
        if count == 0 {
            let error = BackendError::from_errno(libc::EIO, "write");
            return self.finish(Some(error));
        }
        let direct_rest = piece.direct && count < piece.range.len();
        piece.range.start = (piece.range.start + count).min(piece.range.end);
        self.written = piece.range.start;
        if piece.range.is_empty() {
            self.pieces.pop_front();
        } else if direct_rest && !(count as u64).is_multiple_of(512) {
            // What is left is no longer aligned: the answer is what was written.
            return self.finish(None);
        }
        self.next()
    }

    fn failed(&mut self, backend: &LocalBackend, errno: i32) -> Step {
        self.retries += 1;
        match errno {
            libc::EAGAIN | libc::EINTR if self.retries <= RETRIES_MAX => return self.next(),
            libc::EOPNOTSUPP | libc::EINVAL if self.flags & RWF_DONTCACHE != 0 => {
                backend.dont_cache_works.store(false, Ordering::Relaxed);
                self.flags &= !RWF_DONTCACHE;
                return self.next();
            }
            libc::EINVAL if self.pieces.front().is_some_and(|piece| piece.direct) => {
                return self.fall_back();
            }
            _ => {}
        }
        // A stable write also reports that earlier data could not be written back, but mostly that its own
        // could not: a user beyond the quota, or a bad spot on the drive that somebody writes to again and
        // again, must not make everybody write again. COMMIT has a descriptor of its own and still gets the
        // error of what was acknowledged, unless it has to do with this one.
        let taken = !self.is_unstable() && self.subject.file.ready(Purpose::Read).is_none();
        if taken && matches!(errno, libc::EIO | libc::ENOSPC | libc::EDQUOT) {
            backend.verifier.rotate("a write failed");
        }
        self.finish(Some(BackendError::from_errno(errno, "write")))
    }

    /// The answer: a part that was written before an error is a success.
    fn finish(&mut self, error: Option<BackendError>) -> Step {
        self.release();
        let count = u32::try_from(self.written).unwrap_or(u32::MAX);
        if self.sync_after && count > 0 {
            let what = Awaited::Write(count, self.stability, self.verifier);
            return Step::Sync(self.subject.clone(), what);
        }
        let result = match error {
            Some(error) if self.written == 0 => Err(error),
            _ => Ok(Outcome::Written { count, stability: self.stability, verifier: self.verifier }),
        };
        let after = stat(&self.subject.file.path)
            .map_or_else(|_| Around::default(), |about| Around::after(about.attributes));
        Step::Done(self.subject.answer_with(result, after))
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.running) {
            self.subject.file.write_ends(self.is_unstable());
            self.leave();
        }
    }

    /// The gate has let this write in.
    pub fn admitted(&mut self) {
        self.admitted = true;
    }
}

impl Drop for WriteTransfer {
    fn drop(&mut self) {
        self.release();
    }
}

/// Cut data into an unaligned head, an aligned middle and an unaligned tail. Data whose place in memory does
/// not suit the drive goes through the page cache as a whole: the kernel's copy is no dearer than ours.
fn cut(offset: u64, data: &[u8], align: DirectAlign) -> Vec<Piece> {
    let end = offset + data.len() as u64;
    let from = offset.next_multiple_of(align.offset).min(end);
    let to = (end - end % align.offset).max(from);
    let at = |position: u64| usize::try_from(position - offset).unwrap_or(data.len());
    let middle = at(from)..at(to);
    let address = data.as_ptr().addr() + middle.start;
    let suits = address.is_multiple_of(align.memory) && !middle.is_empty();
    let pieces = if suits {
        vec![
            Piece { range: 0..middle.start, direct: false },
            Piece { range: middle.clone(), direct: true },
            Piece { range: middle.end..data.len(), direct: false },
        ]
    } else {
        vec![Piece { range: 0..data.len(), direct: false }]
    };
    let pieces: Vec<Piece> = pieces.into_iter().filter(|piece| !piece.range.is_empty()).collect();
    let buffered = pieces.iter().filter(|piece| !piece.direct);
    copies::count(Why::Align, buffered.map(|piece| piece.range.len()).sum());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::Identity,
        local::{LocalSettings, lookup::open_child},
    };

    fn aligned(bytes: usize) -> buffers::Lease {
        buffers::Pool::standalone(4 << 20).take(bytes).unwrap()
    }

    #[test]
    fn pieces_cover_the_data_and_the_middle_is_aligned() {
        let lease = aligned(64 << 10);
        let align = DirectAlign { memory: 512, offset: 4096 };
        for offset in [0u64, 1, 511, 4095, 4096, 4097, 12_288] {
            for len in [1usize, 511, 4096, 4097, 8191, 8192, 20_000] {
                // Memory in step with the file, as if the head had been received in its place.
                let skip = usize::try_from(offset % 4096).unwrap();
                let data = &lease[skip..skip + len];
                let pieces = cut(offset, data, align);
                let mut at = 0;
                for piece in &pieces {
                    assert_eq!(piece.range.start, at);
                    at = piece.range.end;
                    if piece.direct {
                        assert_eq!((offset + piece.range.start as u64) % 4096, 0);
                        assert_eq!(piece.range.len() % 4096, 0);
                    }
                }
                assert_eq!(at, len);
                assert!(pieces.iter().filter(|piece| !piece.direct).count() <= 2);
            }
        }
    }

    /// A file to write to, the directory that has it, and its backend.
    fn new_file() -> (tempfile::TempDir, Arc<LocalBackend>, Arc<super::super::open_file::OpenFile>)
    {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), b"").unwrap();
        let backend = LocalBackend::open(LocalSettings::new(directory.path())).unwrap();
        let root = backend.root_file.clone();
        let fd = open_child(&root, b"f", false).unwrap();
        let (file, _) = backend.adopt(fd, &root, b"f", true).unwrap();
        (directory, backend, file)
    }

    fn inbox() -> Arc<Inbox> {
        Inbox::new(std::task::Waker::noop().clone())
    }

    #[test]
    fn bug_a_write_that_failed_for_itself_made_all_clients_write_again() {
        let (_directory, backend, file) = new_file();
        let rotates = |errno, sync_after| {
            let before = backend.verifier.sample();
            let who = Arc::new(Identity::root());
            let subject = Subject { token: 1, who, file: file.clone() };
            let what = (0, Bytes::from_static(b"data"), Stability::FileSync);
            let (write, _) = WriteTransfer::start(&backend, subject, what, (&inbox(), 1));
            let mut write = write.unwrap();
            write.sync_after = sync_after;
            assert!(matches!(write.failed(&backend, errno), Step::Done(_)));
            backend.verifier.sample() != before
        };
        file.open(Purpose::Write).unwrap();
        for errno in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
            assert!(!rotates(errno, true), "the write itself only goes to the page cache");
            assert!(rotates(errno, false), "its descriptor is the one that COMMIT would ask");
        }
        file.open(Purpose::Read).unwrap();
        for errno in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
            assert!(!rotates(errno, false), "COMMIT has its own");
        }
    }

    #[test]
    fn bug_a_direct_write_that_fell_back_ran_beside_direct_ones() {
        let (_directory, backend, file) = new_file();
        file.open(Purpose::Write).unwrap();
        // As a file system with direct I/O would have it planned.
        let direct = |inbox: &Arc<Inbox>, tag| {
            let who = Arc::new(Identity::root());
            let subject = Subject { token: tag, who, file: file.clone() };
            let what = (0, Bytes::from_static(&[7; 4096]), Stability::Unstable);
            let (write, _) = WriteTransfer::start(&backend, subject, what, (inbox, tag));
            let mut write = write.unwrap();
            write.pieces = VecDeque::from([Piece { range: 0..4096, direct: true }]);
            write.pass = Some(Pass::Shared);
            write.admitted = file.gate.enter(Pass::Shared, || false);
            assert!(write.admitted);
            write
        };
        let inbox = inbox();
        let (mut first, second) = (direct(&inbox, 1), direct(&inbox, 2));
        assert!(matches!(first.failed(&backend, libc::EINVAL), Step::Wait));
        assert!(inbox.take().is_empty(), "the other direct write still runs");
        drop(second);
        assert!(matches!(inbox.take()[..], [Message::GateOpen(1)]));
        let Step::Io(io) = first.passed() else { panic!("its turn") };
        assert!(Arc::ptr_eq(&io.file, file.ready(Purpose::Write).unwrap()));
        assert!(!file.gate.enter(Pass::Shared, || false), "alone");
        drop(first);
        assert!(file.gate.enter(Pass::Alone, || false), "and gone");
    }

    #[test]
    fn memory_out_of_step_goes_through_the_page_cache() {
        let lease = aligned(64 << 10);
        let align = DirectAlign { memory: 512, offset: 4096 };
        let pieces = cut(0, &lease[1..8193], align);
        assert_eq!(pieces, [Piece { range: 0..8192, direct: false }]);
    }
}
