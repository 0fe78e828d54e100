//! LOOKUP and how names are resolved: one component, strictly inside its directory, no symbolic link
//! followed, no mount entered.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::{
    attr::{Around, FileKind},
    blocking::creds,
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::Outcome,
};

use super::{
    attr::stat,
    backend::{Arounds, LocalBackend},
    open_file::OpenFile,
    permission::{self, EXECUTE},
};

/// Directories between an object and the export's root at most.
const DEPTH_MAX: usize = 4096;

fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS
}

/// Open `name` in `directory` as `O_PATH`, with the rights of whoever this thread acts as. With
/// `cached_only` the call fails with EAGAIN rather than block.
pub(super) fn open_child(
    directory: &OpenFile,
    name: &[u8],
    cached_only: bool,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = if cached_only { inside() | ResolveFlags::CACHED } else { inside() };
    let mut tries = if cached_only { 1 } else { 8 };
    loop {
        // EAGAIN without CACHED: something was renamed meanwhile.
        match rustix::fs::openat2(&directory.path, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries > 1 => tries -= 1,
            other => return other,
        }
    }
}

pub(super) fn lookup_failed(errno: Errno) -> BackendError {
    let error = BackendError::from_io(errno.into(), "openat2");
    match errno {
        // A mount inside the export: not ours to enter.
        Errno::XDEV => BackendError { kind: ErrorKind::Access, ..error },
        _ => error,
    }
}

impl LocalBackend {
    /// The object `name` in `directory`. With `cached_only`: `Later` with EAGAIN inside when it would block.
    pub(super) fn lookup(
        &self,
        who: &Arc<Identity>,
        directory: &Arc<OpenFile>,
        name: &[u8],
        cached_only: bool,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let about = stat(&directory.path)?;
        around.first = Around::after(about.attributes);
        if directory.kind != FileKind::Directory {
            return Err(BackendError::new(ErrorKind::NotDirectory, "lookup"));
        }
        permission::require(directory, &about.attributes, who, EXECUTE)?;
        let found = |file: Arc<OpenFile>, attributes| {
            Ok(Outcome::Found { object: file.handle, attributes })
        };
        match name {
            b"." => return found(directory.clone(), about.attributes),
            b".." if about.same_object(&self.root_stat) => {
                return found(directory.clone(), about.attributes);
            }
            b".." => {
                let (file, about) = self.parent(directory)?;
                return found(file, about.attributes);
            }
            _ => {}
        }
        // The right to search was checked above, as the caller.
        let fd = open_child(directory, name, cached_only).map_err(lookup_failed)?;
        let (file, about) = self.adopt(fd, directory, name, !cached_only)?;
        found(file, about.attributes)
    }

    /// The directory above `directory`, which is not the root. A directory that was moved out of the export
    /// has no parent for its clients.
    fn parent(
        &self,
        directory: &OpenFile,
    ) -> Result<(Arc<OpenFile>, super::attr::Stat), BackendError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fail = |errno: Errno| BackendError::from_io(errno.into(), "openat");
        let up = |from: &OwnedFd| {
            rustix::fs::openat2(from, c"..", flags, Mode::empty(), ResolveFlags::NO_XDEV)
        };
        let parent = up(&directory.path).map_err(fail)?;
        let mut about = stat(&parent)?;
        let mut at = up(&parent);
        for _ in 0..DEPTH_MAX {
            if about.same_object(&self.root_stat) {
                return self.adopt_parent(parent);
            }
            let next = at.map_err(lookup_failed)?;
            let next_about = stat(&next)?;
            if next_about.same_object(&about) {
                break;
            }
            at = up(&next);
            about = next_about;
        }
        Err(BackendError::new(ErrorKind::Access, "lookup"))
    }

    fn adopt_parent(
        &self,
        fd: OwnedFd,
    ) -> Result<(Arc<OpenFile>, super::attr::Stat), BackendError> {
        let about = stat(&fd)?;
        if about.same_object(&self.root_stat) {
            return Ok((self.root_file.clone(), about));
        }
        self.adopt_known(fd, about)
    }

    /// Open `name` as the caller: for operations that work on what a name means.
    pub(super) fn child_as(
        &self,
        who: &Identity,
        directory: &OpenFile,
        name: &[u8],
    ) -> Result<OwnedFd, BackendError> {
        creds::with(who, || open_child(directory, name, false))
            .map_err(|error| BackendError::from_io(error, "setfsuid"))?
            .map_err(lookup_failed)
    }
}
