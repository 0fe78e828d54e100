//! The shared half of a local backend: the export's root, the open objects, the write verifier; and how a handle
//! becomes an open object.
//!
//! What the export promises: handles work for any object of the file system that the root is in, wherever it
//! moves (like `no_subtree_check` of other servers); the gateway authenticates handles, so clients hold only
//! those that it gave them. Names are resolved strictly below the directory they are asked in, symbolic
//! links are never followed, and other mounts inside the export are not entered.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags};

use crate::{
    attr::{Around, Attributes, Before, FileKind, Timestamp},
    backend::{Backend, Capabilities, LaneBackend, LaneResources},
    blocking::creds,
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    op::NAME_BYTES_MAX,
};

use super::{
    attr::{Stat, stat},
    directory_locks::DirectoryLocks,
    file_cache::{FileCache, Unused},
    handle::{Parsed, Substitute, pack_native, pack_substitute, parse},
    lane::LocalLane,
    open_file::OpenFile,
    paths::Paths,
    settings::{LocalError, LocalSettings},
    sys,
    verifier::Verifier,
};

/// How long a removed file that nobody uses stays open for those who may still read it.
const UNLINKED_KEPT: Duration = Duration::from_secs(10);

/// How handles are made and resolved.
#[derive(Debug)]
enum Scheme {
    /// The file system's own handles.
    Native,
    /// Inode numbers and remembered names.
    Substitute(Paths),
}

/// What is left to do with objects, on a thread that may block.
#[derive(Debug, Default)]
pub struct Chores {
    /// To be closed: dropping the last descriptor of a large removed file frees its space.
    close: Vec<Arc<OpenFile>>,
    /// With unwritten data, and in the way of others: to be made stable and closed.
    settle: Vec<Arc<OpenFile>>,
}

/// Attributes around the one or two objects of an operation.
#[derive(Debug, Default)]
pub struct Arounds {
    /// The object or (first) directory.
    pub first: Around,
    /// The second directory.
    pub second: Around,
}

/// A directory of this machine as a backend.
#[derive(Debug)]
pub struct LocalBackend {
    pub(super) settings: LocalSettings,
    pub(super) root: OwnedFd,
    pub(super) root_stat: Stat,
    pub(super) root_file: Arc<OpenFile>,
    pub(super) cache: FileCache,
    pub(super) verifier: Verifier,
    pub(super) locks: DirectoryLocks,
    pub(super) dont_cache_works: AtomicBool,
    /// The file system gives pages to a pipe.
    pub(super) splice_works: AtomicBool,
    pub(super) direct_missing_logged: AtomicBool,
    pub(super) fail_next_sync: AtomicBool,
    commit_syncs: AtomicU64,
    unlinked: Mutex<VecDeque<(Instant, ObjectHandle)>>,
    chores: Mutex<Chores>,
    links_max: u32,
    scheme: Scheme,
}

impl LocalBackend {
    /// Serve the directory that `settings` names.
    ///
    /// # Errors
    /// When it cannot be opened or is no directory; the text says what to do.
    pub fn open(settings: LocalSettings) -> Result<Arc<Self>, LocalError> {
        let path = settings.root.clone();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| match errno {
            rustix::io::Errno::NOTDIR => LocalError::NotDirectory { path: path.clone() },
            errno => LocalError::Open { path: path.clone(), source: errno.into() },
        })?;
        let inspect = |error: BackendError| LocalError::Inspect {
            path: path.clone(),
            source: error.source.unwrap_or_else(|| io::Error::other(error.operation)),
        };
        let root_stat = stat(&root).map_err(inspect)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_path = rustix::fs::openat(&root, c".", flags, Mode::empty())
            .map_err(|errno| LocalError::Open { path: path.clone(), source: errno.into() })?;
        let scheme = choose_scheme(&root, &path);
        let handle = pack(&scheme, &root_path, &root_stat).map_err(inspect)?;
        let root_file = Arc::new(OpenFile::new(handle, root_path, &root_stat));
        root_file
            .reopen(OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|source| LocalError::NoProc { path: path.clone(), source })?;
        if creds::is_stuck_as_root() {
            return Err(LocalError::AllRoot { path });
        }
        if !creds::can_switch() {
            tracing::warn!(
                path = %path.display(),
                "the gateway cannot act as other users (it is not root): everything is done as its own user"
            );
        }
        Ok(Arc::new(Self {
            cache: FileCache::new(settings.open_files_max),
            settings,
            links_max: links_max(&root),
            root,
            root_stat,
            root_file,
            verifier: Verifier::new(),
            locks: DirectoryLocks::default(),
            dont_cache_works: AtomicBool::new(true),
            splice_works: AtomicBool::new(true),
            direct_missing_logged: AtomicBool::new(false),
            fail_next_sync: AtomicBool::new(false),
            commit_syncs: AtomicU64::new(0),
            unlinked: Mutex::default(),
            chores: Mutex::default(),
            scheme,
        }))
    }

    /// The write verifier of this export.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Whether handles stay valid when the gateway restarts.
    pub fn has_persistent_handles(&self) -> bool {
        matches!(self.scheme, Scheme::Native)
    }

    /// Let the next sync of file data fail with EIO: for tests of how errors of writing back are handled.
    pub fn inject_sync_failure(&self) {
        self.fail_next_sync.store(true, Ordering::SeqCst);
    }

    /// The object behind `handle` if it is held open. Never blocks.
    pub(super) fn held(&self, handle: &ObjectHandle) -> Option<Arc<OpenFile>> {
        if *handle == self.root_file.handle {
            return Some(self.root_file.clone());
        }
        self.cache.get(handle)
    }

    /// The object behind `handle`, opened now if need be, with the gateway's own rights. May block.
    pub(super) fn resolve(&self, handle: &ObjectHandle) -> Result<Arc<OpenFile>, BackendError> {
        if let Some(file) = self.held(handle) {
            return Ok(file);
        }
        let (fd, about) = match (parse(handle)?, &self.scheme) {
            (Parsed::Native(native), Scheme::Native) => {
                let flags = libc::O_PATH | libc::O_NOFOLLOW;
                let fd = sys::open_by_handle(&self.root, &native, flags).map_err(decode_failed)?;
                let about = stat(&fd)?;
                (fd, about)
            }
            (Parsed::Substitute(wanted), Scheme::Substitute(paths)) => {
                paths.open(&self.root, self.root_stat.attributes.file_id, wanted)?
            }
            // Ours, but from a run with other rights.
            _ => return Err(BackendError::new(ErrorKind::Stale, "handle")),
        };
        Ok(self.hold(OpenFile::new(*handle, fd, &about)))
    }

    /// Hold an object open. May block, when another one must be made stable to give way.
    fn hold(&self, file: OpenFile) -> Arc<OpenFile> {
        let inserted = self.cache.insert(Arc::new(file));
        if let Some(dirty) = inserted.dirty {
            self.settle(&dirty);
        }
        inserted.file
    }

    /// Hold an object open without blocking: what has to give way is left to [`Self::do_chores`].
    fn hold_at_once(&self, file: OpenFile) -> Arc<OpenFile> {
        let inserted = self.cache.insert(Arc::new(file));
        if !inserted.gone.is_empty() || inserted.dirty.is_some() {
            let mut chores = self.chores.lock().unwrap_or_else(PoisonError::into_inner);
            chores.close.extend(inserted.gone);
            chores.settle.extend(inserted.dirty);
        }
        inserted.file
    }

    /// Make a file's data stable so that it can be closed.
    fn settle(&self, file: &Arc<OpenFile>) {
        file.set_dirty(false);
        if let Err(error) = self.sync_object(file) {
            tracing::error!(%error, inode = file.inode, "data of a file could not be written back");
            if !was_tried(&error) {
                // No sync was made at all, so nothing is known to be lost: the data is still to be written.
                return file.set_dirty(true);
            }
        }
        self.cache.remove_idle(file);
    }

    /// Take an object found by name into the table. `may_block`: see [`Self::hold`].
    pub(super) fn adopt(
        &self,
        fd: OwnedFd,
        directory: &OpenFile,
        name: &[u8],
        may_block: bool,
    ) -> Result<(Arc<OpenFile>, Stat), BackendError> {
        let about = stat(&fd)?;
        let handle = pack(&self.scheme, &fd, &about)?;
        if let Scheme::Substitute(paths) = &self.scheme
            && handle != self.root_file.handle
        {
            paths.learn(directory.inode, name, about.attributes.file_id);
        }
        if let Some(file) = self.held(&handle) {
            return Ok((file, about));
        }
        let file = OpenFile::new(handle, fd, &about);
        let file = if may_block { self.hold(file) } else { self.hold_at_once(file) };
        Ok((file, about))
    }

    /// Take an object that was reached by another way than a name, such as "..", into the table.
    pub(super) fn adopt_known(
        &self,
        fd: OwnedFd,
        about: Stat,
    ) -> Result<(Arc<OpenFile>, Stat), BackendError> {
        let handle = pack(&self.scheme, &fd, &about)?;
        if let Some(file) = self.held(&handle) {
            return Ok((file, about));
        }
        Ok((self.hold(OpenFile::new(handle, fd, &about)), about))
    }

    /// Handle of an object without taking it into the table.
    pub(super) fn handle_of(
        &self,
        fd: impl AsFd,
        about: &Stat,
        directory: &OpenFile,
        name: &[u8],
    ) -> Result<ObjectHandle, BackendError> {
        let handle = pack(&self.scheme, fd, about)?;
        if let Scheme::Substitute(paths) = &self.scheme {
            paths.learn(directory.inode, name, about.attributes.file_id);
        }
        Ok(handle)
    }

    /// An object got another name.
    pub(super) fn renamed(&self, inode: u64, directory: &OpenFile, name: &[u8]) {
        if let Scheme::Substitute(paths) = &self.scheme {
            paths.learn(directory.inode, name, inode);
        }
    }

    /// The object's last name is gone: keep it open only for a while, so that its space is freed.
    pub(super) fn unlinked(&self, handle: ObjectHandle) {
        let mut unlinked = self.unlinked.lock().unwrap_or_else(PoisonError::into_inner);
        unlinked.push_back((Instant::now(), handle));
    }

    /// What waits for [`Self::do_chores`]: also removed files whose time has come. Never blocks.
    pub(super) fn chores(&self) -> Option<Chores> {
        let mut chores =
            std::mem::take(&mut *self.chores.lock().unwrap_or_else(PoisonError::into_inner));
        let mut unlinked = self.unlinked.lock().unwrap_or_else(PoisonError::into_inner);
        while unlinked.front().is_some_and(|(since, _)| since.elapsed() >= UNLINKED_KEPT) {
            let Some((_, handle)) = unlinked.pop_front() else { break };
            match self.cache.remove_unused(&handle) {
                Unused::InUse => unlinked.push_back((Instant::now(), handle)),
                // Its data goes with it: nothing of it has to become stable.
                Unused::Gone(file) => chores.close.extend(file),
            }
        }
        (!chores.close.is_empty() || !chores.settle.is_empty()).then_some(chores)
    }

    /// Close and settle. May block.
    pub(super) fn do_chores(&self, chores: Chores) {
        drop(chores.close);
        chores.settle.iter().for_each(|file| self.settle(file));
    }

    /// A sync for COMMITs begins.
    pub(super) fn count_commit_sync(&self) {
        self.commit_syncs.fetch_add(1, Ordering::Relaxed);
    }

    /// How many syncs COMMITs have cost so far: fewer than there were COMMITs when they came together.
    pub fn commit_syncs(&self) -> u64 {
        self.commit_syncs.load(Ordering::Relaxed)
    }

    /// What clients compare to see foreign changes; `None` where programs on this machine interfere.
    pub(super) fn before(&self, attr: &Attributes) -> Option<Before> {
        (!self.settings.local_writers).then(|| attr.into())
    }

    /// The object as it is now, for the attributes after an operation.
    pub(super) fn after(&self, file: &OpenFile) -> Around {
        stat(&file.path).map_or_else(|_| Around::default(), |about| Around::after(about.attributes))
    }

    /// Change something in `directory`, alone among the lanes, with the attributes around it.
    pub(super) fn change_directory<T>(
        &self,
        directory: &OpenFile,
        around: &mut Around,
        change: impl FnOnce(&Stat) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let _alone = self.locks.lock(directory.inode);
        let quiet = directory.quiet_since();
        let before = stat(&directory.path)?;
        around.before = self.before(&before.attributes);
        around.after = Some(before.attributes);
        if directory.kind != FileKind::Directory {
            return Err(BackendError::new(ErrorKind::NotDirectory, "directory"));
        }
        let result = change(&before);
        around.after = stat(&directory.path).ok().map(|about| about.attributes);
        if !directory.stayed_quiet(quiet) {
            around.before = None;
        }
        result
    }

    /// Make a change of names or attributes durable, if the export wants that.
    pub(super) fn make_durable(&self, file: &OpenFile) -> Result<(), BackendError> {
        if !self.settings.metadata_sync {
            return Ok(());
        }
        if file.can_fsync() {
            return self.sync_object(file);
        }
        // No descriptor of such an object can be had without side effects.
        rustix::fs::syncfs(&self.root)
            .map_err(|errno| BackendError::from_io(errno.into(), "syncfs"))
    }

    /// fsync; a failure may mean that data was lost, so the verifier changes.
    pub(super) fn sync_object(&self, file: &OpenFile) -> Result<(), BackendError> {
        let injected = self.fail_next_sync.swap(false, Ordering::SeqCst);
        let synced =
            if injected { Err(BackendError::from_errno(libc::EIO, "fsync")) } else { file.fsync() };
        if let Err(error) = &synced
            && was_tried(error)
        {
            self.verifier.rotate("fsync failed");
        }
        synced
    }
}

/// Whether a sync that failed was made at all: if not, no error of writing back was taken from the kernel. One
/// that was made reports such errors whatever their number, a shortage of memory too.
fn was_tried(error: &BackendError) -> bool {
    error.operation == "fsync" || error.kind != ErrorKind::Later
}

fn decode_failed(error: io::Error) -> BackendError {
    let kind = match error.raw_os_error() {
        Some(libc::ESTALE | libc::ENOENT) => ErrorKind::Stale,
        Some(libc::EINVAL | libc::EOVERFLOW) => ErrorKind::BadHandle,
        Some(libc::EPERM) => ErrorKind::ServerFault,
        _ => return BackendError::from_io(error, "open_by_handle_at"),
    };
    BackendError { kind, operation: "open_by_handle_at", source: Some(error) }
}

fn pack(scheme: &Scheme, fd: impl AsFd, about: &Stat) -> Result<ObjectHandle, BackendError> {
    match scheme {
        Scheme::Native => sys::name_to_handle(fd)
            .map_err(|error| BackendError::from_io(error, "name_to_handle_at"))
            .and_then(|handle| pack_native(&handle)),
        Scheme::Substitute(_) => pack_substitute(Substitute::of(about)),
    }
}

fn choose_scheme(root: &OwnedFd, path: &Path) -> Scheme {
    let tried = sys::name_to_handle(root)
        .and_then(|handle| sys::open_by_handle(root, &handle, libc::O_PATH));
    match tried {
        Ok(_) => {
            tracing::info!(path = %path.display(), "file handles are the file system's own and persistent");
            Scheme::Native
        }
        Err(error) => {
            tracing::warn!(
                path = %path.display(), %error,
                "file handles are valid only while this process runs; give the gateway \
                 CAP_DAC_READ_SEARCH and a file system with handles for persistent ones"
            );
            Scheme::Substitute(Paths::default())
        }
    }
}

fn links_max(root: &OwnedFd) -> u32 {
    const EXT4: u64 = 0xef53;
    const BTRFS: u64 = 0x9123_683e;
    match rustix::fs::fstatfs(root).map(|fs| u64::from_ne_bytes(fs.f_type.to_ne_bytes())) {
        Ok(EXT4) => 65_000,
        Ok(BTRFS) => 65_535,
        _ => 32_767,
    }
}

impl Backend for LocalBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            hard_links: true,
            symlinks: true,
            special_files: true,
            set_times: true,
            unstable_writes: true,
            read_only: self.settings.read_only,
            file_bytes_max: i64::MAX.unsigned_abs(),
            name_bytes_max: NAME_BYTES_MAX as u32,
            links_max: self.links_max,
            time_granularity: Timestamp { seconds: 0, nanos: 1 },
        }
    }

    fn root(&self) -> ObjectHandle {
        self.root_file.handle
    }

    fn attach(self: Arc<Self>, lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
        Ok(Box::new(LocalLane::new(self, lane)))
    }
}
