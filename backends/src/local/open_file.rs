//! An object that is held open: one `O_PATH` descriptor, and descriptors for data as they are needed.
//!
//! The data descriptors are opened with the gateway's own rights and serve all callers; who may use them is
//! decided for each request ([`super::permission`]). Only regular files are ever opened for data: the kind is
//! known first, from the same inode. While writes are not yet committed the write descriptor must stay open,
//! because the kernel reports an error of writing back once for each descriptor.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use rustix::fs::{Mode, OFlags};

use crate::{
    attr::FileKind,
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
};

use super::{
    attr::{Stat, stat_direct},
    commit::CommitQueue,
    group_sync::GroupSync,
    permission::Grant,
    write_gate::WriteGate,
};

/// What a data descriptor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Reading through the page cache.
    Read,
    /// Writing through the page cache.
    Write,
    /// Reading past it.
    DirectRead,
    /// Writing past it.
    DirectWrite,
}

/// Alignments of direct I/O, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAlign {
    /// Of the memory address.
    pub memory: usize,
    /// Of offset and length; at least a page, so that a direct write covers whole pages.
    pub offset: u64,
}

const PAGE_BYTES: u32 = 4096;

/// An object held open.
#[derive(Debug)]
pub struct OpenFile {
    /// Its handle.
    pub handle: ObjectHandle,
    /// What it is.
    pub kind: FileKind,
    /// Its inode number.
    pub inode: u64,
    /// The `O_PATH` descriptor.
    pub path: OwnedFd,
    /// Syncs of it by threads.
    pub sync: GroupSync,
    /// What callers were found to be allowed.
    pub grants: Mutex<Vec<Grant>>,
    /// COMMITs of all lanes.
    pub commits: CommitQueue,
    /// Keeps buffered and direct writes apart.
    pub gate: WriteGate,
    fds: [OnceLock<Arc<OwnedFd>>; 4],
    direct: OnceLock<Option<DirectAlign>>,
    direct_refused: AtomicBool,
    read_refused: AtomicBool,
    dirty: AtomicBool,
    writes_running: AtomicU32,
    writes_begun: AtomicU64,
}

impl OpenFile {
    /// An object by its `O_PATH` descriptor.
    pub fn new(handle: ObjectHandle, path: OwnedFd, stat: &Stat) -> Self {
        Self {
            handle,
            kind: stat.attributes.kind,
            inode: stat.attributes.file_id,
            path,
            sync: GroupSync::default(),
            grants: Mutex::default(),
            commits: CommitQueue::default(),
            gate: WriteGate::default(),
            fds: Default::default(),
            direct: OnceLock::new(),
            direct_refused: AtomicBool::new(false),
            read_refused: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            writes_running: AtomicU32::new(0),
            writes_begun: AtomicU64::new(0),
        }
    }

    /// The descriptor for `purpose` if it is open already.
    pub fn ready(&self, purpose: Purpose) -> Option<&Arc<OwnedFd>> {
        self.fds[purpose as usize].get()
    }

    /// The descriptor for `purpose`, opened now if need be. May block. `None`: the file system has no direct
    /// I/O for this file.
    ///
    /// # Errors
    /// `BadType` or `IsDirectory` for what has no data; what open says.
    pub fn open(&self, purpose: Purpose) -> Result<Option<Arc<OwnedFd>>, BackendError> {
        match self.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(BackendError::new(ErrorKind::IsDirectory, "open")),
            _ => return Err(BackendError::new(ErrorKind::Invalid, "open")),
        }
        if let Some(fd) = self.ready(purpose) {
            return Ok(Some(fd.clone()));
        }
        let direct = OFlags::DIRECT;
        let opened = match purpose {
            Purpose::Read => self.reopen(OFlags::RDONLY),
            // A file that the process may only write is still good for writing.
            Purpose::Write => self.reopen_writable(OFlags::empty()),
            Purpose::DirectRead | Purpose::DirectWrite if self.direct_align().is_none() => {
                return Ok(None);
            }
            Purpose::DirectRead => self.reopen(OFlags::RDONLY | direct),
            Purpose::DirectWrite => self.reopen_writable(direct),
        };
        match opened {
            Ok(fd) => Ok(Some(self.fds[purpose as usize].get_or_init(|| Arc::new(fd)).clone())),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && purpose.is_direct() => {
                self.direct_refused.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => {
                if purpose == Purpose::Read {
                    self.read_refused.store(true, Ordering::Relaxed);
                }
                Err(BackendError::from_io(error, "open"))
            }
        }
    }

    /// Use `fd`, which a creating open made, for writing.
    pub fn adopt_writer(&self, fd: OwnedFd) {
        let _ = self.fds[Purpose::Write as usize].set(Arc::new(fd));
    }

    /// Known to have no direct I/O. Never blocks.
    pub fn lacks_direct(&self) -> bool {
        self.direct_refused.load(Ordering::Relaxed) || matches!(self.direct.get(), Some(None))
    }

    /// Known not to be readable for the process, so that COMMIT must do with the descriptor for writing.
    pub fn lacks_read(&self) -> bool {
        self.read_refused.load(Ordering::Relaxed)
    }

    /// Alignments for direct I/O; `None` where there is none. May block the first time.
    pub fn direct_align(&self) -> Option<DirectAlign> {
        *self.direct.get_or_init(|| {
            let (memory, offset) = stat_direct(&self.path).ok()?.direct_align;
            let usable = memory > 0 && offset > 0 && offset <= PAGE_BYTES && memory <= PAGE_BYTES;
            usable.then(|| DirectAlign {
                memory: memory as usize,
                offset: u64::from(offset.max(PAGE_BYTES)),
            })
        })
    }

    /// Another descriptor of the same object, with the rights of whoever this thread acts as.
    ///
    /// # Errors
    /// What open says.
    pub fn reopen(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.path.as_raw_fd()));
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    fn reopen_writable(&self, extra: OFlags) -> io::Result<OwnedFd> {
        self.reopen(OFlags::RDWR | extra).or_else(|error| match error.raw_os_error() {
            Some(libc::EACCES) => self.reopen(OFlags::WRONLY | extra),
            _ => Err(error),
        })
    }

    /// Make the object stable by fsync, together with others who want it at the same time. May block.
    ///
    /// # Errors
    /// What fsync or the open for it says.
    pub fn fsync(&self) -> Result<(), BackendError> {
        let fail = |error| BackendError::from_io(error, "fsync");
        let fd = match self.kind {
            // An error of writing back is reported to the descriptor that wrote.
            FileKind::Regular if self.ready(Purpose::Write).is_some() => {
                self.ready(Purpose::Write).cloned()
            }
            FileKind::Regular => match self.open(Purpose::Read) {
                Ok(fd) => fd,
                Err(_) => self.open(Purpose::Write)?,
            },
            FileKind::Directory => {
                let place = &self.fds[Purpose::Read as usize];
                if place.get().is_none() {
                    let fd = self
                        .reopen(OFlags::RDONLY | OFlags::DIRECTORY)
                        .map_err(|error| BackendError::from_io(error, "open"))?;
                    let _ = place.set(Arc::new(fd));
                }
                place.get().cloned()
            }
            // These cannot be opened without side effects.
            _ => None,
        };
        let Some(fd) = fd else { return Ok(()) };
        self.sync.run(|| rustix::fs::fsync(&fd)).map_err(|errno| fail(errno.into()))
    }

    /// Whether `fsync` can reach this object itself.
    pub fn can_fsync(&self) -> bool {
        matches!(self.kind, FileKind::Regular | FileKind::Directory)
    }

    /// A write begins. An unstable one keeps the file open until it has been committed.
    pub fn write_begins(&self, unstable: bool) {
        self.writes_running.fetch_add(1, Ordering::SeqCst);
        self.writes_begun.fetch_add(1, Ordering::SeqCst);
        if unstable {
            self.set_dirty(true);
        }
    }

    /// A write has ended. (A sync that ran meanwhile has cleared the mark and may have missed the write.)
    pub fn write_ends(&self, unstable: bool) {
        if unstable {
            self.set_dirty(true);
        }
        self.writes_running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Something else than a write changes attributes of the object, until the value is dropped. What holds
    /// the object's lock need not say so.
    pub fn changing(&self) -> Changing<'_> {
        self.write_begins(false);
        Changing(self)
    }

    /// Number of writes and other changes begun, or `None` while one is running: two equal answers mean that
    /// none came between.
    pub fn quiet_since(&self) -> Option<u64> {
        let begun = self.writes_begun.load(Ordering::SeqCst);
        (self.writes_running.load(Ordering::SeqCst) == 0).then_some(begun)
    }

    /// Whether nothing has changed since `quiet_since` gave this answer.
    pub fn stayed_quiet(&self, since: Option<u64>) -> bool {
        since.is_some() && since == self.quiet_since()
    }

    /// Whether there may be data that is not on stable storage.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Say whether there may be such data. A sync clears this *before* it begins.
    pub fn set_dirty(&self, dirty: bool) {
        self.dirty.store(dirty, Ordering::SeqCst);
    }
}

/// A change of an object under way, see [`OpenFile::changing`].
#[derive(Debug)]
pub struct Changing<'a>(&'a OpenFile);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.write_ends(false);
    }
}

impl Purpose {
    /// Past the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::DirectRead | Self::DirectWrite)
    }
}
