//! Pages of the kernel's page cache on their way from a file to a socket, without a copy.
//!
//! The pages hang in a pipe: splice(2) puts them there from the file, and another splice takes them to the
//! socket. They stay in the page cache, so they need no buffer of ours. What is sent is what the pages hold at
//! that moment: a write to the file in between shows, as it does with every server that sends by reference.
//!
//! Pipes are kept and used again. One that dies with pages in it (its connection broke, or whoever spliced
//! did not live to count them) is closed: what is left in it would go out in front of the next reply.

use std::{
    fmt, io, mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::io::ioctl_fionread;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes of a page, and so of each slot of a pipe.
const PAGE_BYTES: usize = 4096;

/// Capacity that is asked for: what an ordinary user may have, and a page-aligned megabyte fits.
pub const PIPE_BYTES: usize = 1 << 20;

/// Descriptors of a pipe.
pub const PIPE_FDS: usize = 2;

#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    slots: usize,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let bytes = fcntl_setpipe_size(&writer, PIPE_BYTES)?;
        Ok(Self { reader, writer, slots: bytes / PAGE_BYTES })
    }

    /// Whether the kernel says that nothing is in it.
    fn is_empty(&self) -> bool {
        ioctl_fionread(&self.reader).is_ok_and(|bytes| bytes == 0)
    }
}

/// The pipes of one lane.
pub struct PagePool {
    idle: Mutex<Vec<Pipe>>,
    /// Pipes that exist.
    count: AtomicUsize,
    max: usize,
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePool").field("count", &self.count).finish_non_exhaustive()
    }
}

impl PagePool {
    /// Up to `max` pipes, made when they are needed. Each can hold a mebibyte of pages of the page cache.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { idle: Mutex::default(), count: AtomicUsize::new(0), max })
    }

    /// An empty pipe for `bytes` that begin at `offset` of a file. `None` when they do not fit, all pipes are
    /// in use, or the system has no more for us (`pipe-user-pages-soft`): a copy is the way then.
    pub fn take(self: &Arc<Self>, offset: u64, bytes: usize) -> Option<Pages> {
        let first = (offset % PAGE_BYTES as u64) as usize;
        let slots = first.checked_add(bytes)?.div_ceil(PAGE_BYTES);
        let idle = self.lock().pop();
        let pipe = match idle {
            Some(pipe) => pipe,
            None => self.make()?,
        };
        let fits = slots <= pipe.slots;
        let pages = Pages { pipe: Some(pipe), len: AtomicUsize::new(0), pool: self.clone() };
        fits.then_some(pages)
    }

    fn make(&self) -> Option<Pipe> {
        if self.count.fetch_add(1, Ordering::Relaxed) < self.max
            && let Ok(pipe) = Pipe::new()
        {
            return Some(pipe);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Pipe>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of pages. The pipe goes back to its pool when this is dropped empty.
pub struct Pages {
    /// `None` only while it is being dropped.
    pipe: Option<Pipe>,
    len: AtomicUsize,
    pool: Arc<PagePool>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Pages {
    /// Bytes that hang in the pipe.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn pipe(&self) -> io::Result<&Pipe> {
        self.pipe.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Where the pages go in, for whoever splices by other means and then says [`Self::filled`].
    ///
    /// # Errors
    /// None while it is not being dropped.
    pub fn entrance(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.pipe()?.writer.as_fd())
    }

    /// So many bytes were put in.
    pub fn filled(&self, bytes: usize) {
        self.len.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Put up to `bytes` of `file` in; may wait for the drive. How many came; 0 at the end of the file.
    /// The caller counts them with [`Self::filled`].
    ///
    /// # Errors
    /// What splice(2) says, among that EINVAL where the file system cannot.
    pub fn splice_from(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: usize,
    ) -> io::Result<usize> {
        let mut offset = offset;
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let writer = &self.pipe()?.writer;
        Ok(splice(file, Some(&mut offset), writer, None, bytes, flags)?)
    }

    /// Send what there is to a socket that does not block; `more`: other bytes follow at once. How many
    /// bytes went.
    ///
    /// # Errors
    /// What splice(2) says, `WouldBlock` when the socket is full.
    pub fn splice_to(&self, socket: BorrowedFd<'_>, more: bool) -> io::Result<usize> {
        let mut flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        flags.set(SpliceFlags::MORE, more);
        let sent = splice(&self.pipe()?.reader, None, socket, None, self.len(), flags)?;
        self.len.fetch_sub(sent.min(self.len()), Ordering::Relaxed);
        Ok(sent)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let Some(pipe) = mem::take(&mut self.pipe) else { return };
        // Our own count does not know what went in on behalf of somebody who has died since.
        if self.is_empty() && pipe.is_empty() {
            self.pool.lock().push(pipe);
        } else {
            self.pool.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    use super::*;

    fn file(bytes: usize) -> (std::fs::File, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("aqueduct-pages-{}", std::process::id()));
        let mut file = std::fs::File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(path).unwrap();
        let data: Vec<u8> = (0..bytes).map(|n| (n / 7 % 251) as u8).collect();
        file.write_all(&data).unwrap();
        (file, data)
    }

    #[test]
    fn pages_go_from_file_to_socket_in_any_steps() {
        let (file, data) = file(300_001);
        let pool = PagePool::new(2);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        for from in [0usize, 1, 4096, 5000, 299_999] {
            let pages = pool.take(from as u64, data.len() - from).unwrap();
            let wanted = data.len();
            while let got @ 1.. =
                pages.splice_from(file.as_fd(), (from + pages.len()) as u64, wanted).unwrap()
            {
                pages.filled(got);
            }
            assert_eq!(pages.len(), data.len() - from);
            let mut seen = Vec::new();
            while !pages.is_empty() {
                if let Err(error) = pages.splice_to(ours.as_fd(), false) {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                }
                let mut part = vec![0; 70_000];
                let got = theirs.read(&mut part).unwrap();
                seen.extend_from_slice(&part[..got]);
            }
            while seen.len() < data.len() - from {
                let mut part = vec![0; 70_000];
                let got = theirs.read(&mut part).unwrap();
                seen.extend_from_slice(&part[..got]);
            }
            assert!(seen == data[from..], "from {from}");
        }
        assert_eq!(pool.count.load(Ordering::Relaxed), 1, "one pipe, used again");
    }

    #[test]
    fn there_are_only_so_many_and_a_broken_one_makes_room() {
        let (file, _) = file(10_000);
        let pool = PagePool::new(2);
        let one = pool.take(0, 4096).unwrap();
        let two = pool.take(0, 4096).unwrap();
        assert!(pool.take(0, 4096).is_none());
        one.filled(one.splice_from(file.as_fd(), 0, 100).unwrap());
        drop(one);
        assert_eq!(pool.count.load(Ordering::Relaxed), 1, "closed with what it held");
        let three = pool.take(0, 4096).unwrap();
        assert!(three.is_empty());
        drop((two, three));
        assert_eq!(pool.lock().len(), 2);
    }

    #[test]
    fn bug_pages_that_nobody_counted_went_out_before_the_next_reply() {
        let (file, _) = file(10_000);
        let pool = PagePool::new(1);
        let pages = pool.take(0, 4096).unwrap();
        assert_eq!(pages.splice_from(file.as_fd(), 0, 100).unwrap(), 100);
        // Whoever was to count them is gone.
        drop(pages);
        assert_eq!(pool.count.load(Ordering::Relaxed), 0, "closed with what it held");
        let next = pool.take(0, 4096).unwrap();
        assert!(next.pipe().unwrap().is_empty());
    }

    #[test]
    fn a_file_cut_short_or_overwritten_still_gives_every_byte() {
        let (file, _) = file(300_000);
        let pool = PagePool::new(1);
        let pages = pool.take(0, 300_000).unwrap();
        while pages.len() < 300_000 {
            let (at, left) = (pages.len(), 300_000 - pages.len());
            pages.filled(pages.splice_from(file.as_fd(), at as u64, left).unwrap());
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 5000], 0).unwrap();
        file.set_len(100_001).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 300_000 {
            if !pages.is_empty() {
                match pages.splice_to(ours.as_fd(), false) {
                    Ok(sent) => assert!(sent > 0),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
            }
            let mut part = vec![0; 70_000];
            let got = theirs.read(&mut part).unwrap();
            seen.extend_from_slice(&part[..got]);
        }
        assert!(pages.is_empty() && pages.pipe().unwrap().is_empty());
        assert_eq!(seen[..5000], [0xee; 5000], "newer data, as with every server that does this");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let pool = PagePool::new(1);
        assert!(pool.take(0, PIPE_BYTES).is_some());
        assert!(pool.take(1, PIPE_BYTES).is_none(), "one page more");
        assert!(pool.take(u64::MAX, usize::MAX).is_none());
    }
}
