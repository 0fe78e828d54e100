//! READ (RFC 1813 section 3.3.6).
//!
//! The attributes in the answer are those from before the read, which is also when the caller's right to it was
//! looked up: a client that caches the data under them finds out of any change that came in between. The other
//! way round (old data under new attributes) it would not.
//!
//! Small reads of cached data are answered at once (`RWF_NOWAIT`); the rest goes through the ring or a thread.
//! Where the transport can send pages of the page cache as they are, large reads give it those (splice(2), on
//! a thread of the ring) and nothing is copied. A direct read is widened to the alignment that the drive asks
//! for; the answer is a slice of the middle, so no byte is copied.

use std::{
    io::IoSliceMut,
    sync::{Arc, atomic::Ordering},
};

use buffers::{Lease, Pages, Payload};
use bytes::Bytes;
use rustix::io::ReadWriteFlags;

use crate::{
    attr::{Around, Attributes},
    error::{BackendError, ErrorKind},
    op::Outcome,
    uring::{Io, IoDone, IoKind},
};

use super::{
    attr::stat,
    backend::LocalBackend,
    open_file::Purpose,
    settings::IoMode,
    transfer::{Fd, RETRIES_MAX, RWF_DONTCACHE, Step, Subject, not_prepared},
};

/// Largest read that is tried on the lane itself, in bytes: a longer copy would keep others waiting.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// A READ under way.
#[derive(Debug)]
pub struct ReadTransfer {
    subject: Subject,
    /// The file when the read was planned.
    attr: Attributes,
    /// What the client asked for, cut to what there can be.
    offset: u64,
    count: usize,
    /// What is read: the same, widened for direct I/O.
    from: u64,
    len: usize,
    got: usize,
    /// The buffer, while pages are read instead.
    spare: Option<Lease>,
    align: Option<u64>,
    flags: i32,
    fd: Fd,
    retries: u32,
}

impl ReadTransfer {
    /// Plan a read that the caller may do; perhaps answer at once. `attr`: the file now. `pages`: for pages
    /// of the page cache, where they may be sent as they are.
    pub fn start(
        backend: &LocalBackend,
        subject: Subject,
        attr: &Attributes,
        (offset, count, into): (u64, u32, Lease),
        pages: Option<Pages>,
    ) -> (Option<Self>, Step) {
        match Self::plan(backend, &subject, attr, (offset, count, &into)) {
            Ok(Plan::Nothing { end_of_file, around }) => {
                let data = Payload::Bytes(Bytes::new());
                let done = Ok(Outcome::Data { data, end_of_file });
                (None, Step::Done(subject.answer_with(done, around)))
            }
            Ok(Plan::Move(read)) => {
                let mut read = *read;
                let step = read.begin(backend, into, pages);
                (Some(read), step)
            }
            Err(error) => (None, Step::Done(subject.answer(Err(error)))),
        }
    }

    fn plan(
        backend: &LocalBackend,
        subject: &Subject,
        attr: &Attributes,
        (offset, count, into): (u64, u32, &Lease),
    ) -> Result<Plan, BackendError> {
        let file = &subject.file;
        let left = attr.size.saturating_sub(offset);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(count as usize);
        if count == 0 {
            return Ok(Plan::Nothing { end_of_file: left == 0, around: Around::after(*attr) });
        }
        let count = count.min(into.capacity());
        let buffered = file.ready(Purpose::Read).or_else(|| file.ready(Purpose::Write));
        let mut read = Self {
            subject: subject.clone(),
            attr: *attr,
            offset,
            count,
            from: offset,
            len: count,
            got: 0,
            spare: None,
            align: None,
            flags: 0,
            fd: buffered.ok_or_else(not_prepared)?.clone(),
            retries: 0,
        };
        match backend.settings.io_mode {
            IoMode::Direct => read.widen(into.capacity()),
            IoMode::DontCache if backend.dont_cache_works.load(Ordering::Relaxed) => {
                read.flags = RWF_DONTCACHE;
            }
            _ => {}
        }
        Ok(Plan::Move(Box::new(read)))
    }

    /// Make it a direct read, if the file has them and the buffer has room for the edges.
    fn widen(&mut self, capacity: usize) {
        let file = &self.subject.file;
        let (Some(fd), Some(align)) = (file.ready(Purpose::DirectRead), file.direct_align()) else {
            return;
        };
        let from = self.offset - self.offset % align.offset;
        let end = self.offset.saturating_add(self.count as u64);
        let Some(end) = end.checked_next_multiple_of(align.offset) else { return };
        match usize::try_from(end - from) {
            Ok(len) if len <= capacity => {
                (self.from, self.len, self.align) = (from, len, Some(align.offset));
                self.fd = fd.clone();
            }
            _ => {}
        }
    }

    /// Try at once what is small and may be in the page cache; send what is large by reference.
    fn begin(&mut self, backend: &LocalBackend, mut into: Lease, pages: Option<Pages>) -> Step {
        if let Some(pages) = pages
            && self.align.is_none()
            && self.flags == 0
            && self.len > INLINE_BYTES_MAX
            && backend.splice_works.load(Ordering::Relaxed)
        {
            self.spare = Some(into);
            return self.next_pages(pages);
        }
        if self.align.is_none() && self.flags == 0 && self.len <= INLINE_BYTES_MAX {
            let part = into.get_mut(..self.len).unwrap_or_default();
            let flags = ReadWriteFlags::NOWAIT;
            let mut parts = [IoSliceMut::new(part)];
            if let Ok(got) = rustix::io::preadv2(&self.fd, &mut parts, self.from, flags) {
                self.got = got;
                if got >= self.len {
                    return self.finish(into);
                }
            }
        }
        self.next(into)
    }

    fn next(&mut self, into: Lease) -> Step {
        Step::Io(Io {
            file: self.fd.clone(),
            offset: self.from + self.got as u64,
            flags: self.flags,
            identity: None,
            kind: IoKind::Read { into, start: self.got, len: self.len - self.got },
        })
    }

    fn next_pages(&mut self, pages: Pages) -> Step {
        Step::Io(Io {
            file: self.fd.clone(),
            offset: self.from + self.got as u64,
            flags: 0,
            identity: None,
            kind: IoKind::Splice { pages, len: self.len - self.got },
        })
    }

    /// Some bytes have come, or an error.
    pub fn advance(&mut self, backend: &LocalBackend, done: IoDone) -> Step {
        let into = match done.io.kind {
            IoKind::Read { into, .. } => into,
            IoKind::Splice { pages, .. } => return self.advance_pages(backend, pages, done.result),
            _ => {
                let error = BackendError::new(ErrorKind::ServerFault, "read");
                return Step::Done(self.subject.answer(Err(error)));
            }
        };
        match usize::try_from(done.result) {
            Ok(got) => {
                self.got += got;
                // An unaligned count ends a direct read: there is the end of the file.
                let short = self.align.is_some_and(|align| !(got as u64).is_multiple_of(align));
                if got == 0 || short || self.got >= self.len {
                    return self.finish(into);
                }
                self.next(into)
            }
            Err(_) => self.failed(backend, -done.result, into),
        }
    }

    /// Some pages have come, or an error: then the data is copied, which every file system can.
    fn advance_pages(&mut self, backend: &LocalBackend, pages: Pages, result: i32) -> Step {
        match usize::try_from(result) {
            Ok(got) => {
                pages.filled(got);
                self.got += got;
                if got == 0 || self.got >= self.len {
                    self.spare = None;
                    return self.answer(Payload::Pages(Arc::new(pages)));
                }
                self.next_pages(pages)
            }
            Err(_) => {
                if matches!(-result, libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS) {
                    backend.splice_works.store(false, Ordering::Relaxed);
                }
                self.got = 0;
                match self.spare.take() {
                    Some(into) => self.next(into),
                    None => Step::Done(self.subject.answer(Err(not_prepared()))),
                }
            }
        }
    }

    fn failed(&mut self, backend: &LocalBackend, errno: i32, into: Lease) -> Step {
        self.retries += 1;
        if self.retries > RETRIES_MAX {
            let error = BackendError::from_errno(libc::EAGAIN, "read");
            return Step::Done(self.subject.answer(Err(error)));
        }
        match errno {
            libc::EAGAIN | libc::EINTR => self.next(into),
            libc::EOPNOTSUPP | libc::EINVAL if self.flags & RWF_DONTCACHE != 0 => {
                backend.dont_cache_works.store(false, Ordering::Relaxed);
                self.flags &= !RWF_DONTCACHE;
                self.next(into)
            }
            libc::EINVAL if self.align.is_some() => {
                // Whatever the file system has against it, the page cache takes everything.
                let file = &self.subject.file;
                let Some(fd) = file.ready(Purpose::Read) else {
                    return Step::Done(self.subject.answer(Err(not_prepared())));
                };
                self.fd = fd.clone();
                (self.from, self.len, self.got, self.align) = (self.offset, self.count, 0, None);
                self.next(into)
            }
            errno => Step::Done(self.subject.answer(Err(BackendError::from_errno(errno, "read")))),
        }
    }

    fn finish(&mut self, into: Lease) -> Step {
        let skip = usize::try_from(self.offset - self.from).unwrap_or(0);
        let len = self.got.saturating_sub(skip).min(self.count);
        // A read that ended before the wanted bytes gives an empty slice.
        let data = into.freeze(if len == 0 { 0 } else { skip }, len);
        self.answer(data.into())
    }

    fn answer(&self, data: Payload) -> Step {
        let len = data.len();
        // Less than there was: it has been cut off since.
        let attr = if len < self.count { self.stat_again() } else { Ok(self.attr) };
        let end = self.offset.saturating_add(len as u64);
        let (end_of_file, around) = match attr {
            Ok(attr) => (end >= attr.size, Around::after(attr)),
            Err(_) => (len < self.count, Around::default()),
        };
        let done = Ok(Outcome::Data { data, end_of_file });
        Step::Done(self.subject.answer_with(done, around))
    }

    fn stat_again(&self) -> Result<Attributes, BackendError> {
        stat(&self.subject.file.path).map(|about| about.attributes)
    }
}

enum Plan {
    Nothing { end_of_file: bool, around: Around },
    Move(Box<ReadTransfer>),
}
