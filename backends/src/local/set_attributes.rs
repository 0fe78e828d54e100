//! SETATTR (RFC 1813 section 3.3.2). The kernel decides as the caller; two things go beyond it: the owner of
//! a file may set its size whatever the mode says, and the server's time may be set with write permission
//! alone.

use std::{os::fd::AsRawFd, path::PathBuf, sync::Arc};

use rustix::{
    fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid},
    io::Errno,
};

use crate::{
    attr::{Around, Attributes, Changes, FileKind, SetTime, Timestamp},
    blocking::creds,
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::Outcome,
};

use super::{
    attr::{stat, timespec},
    backend::{Arounds, LocalBackend},
    open_file::{OpenFile, Purpose},
    permission::{self, WRITE},
};

/// Carry out a system call as the caller.
pub(super) fn as_caller<T>(
    who: &Identity,
    operation: &'static str,
    call: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, BackendError> {
    creds::with(who, call)
        .map_err(|error| BackendError::from_io(error, "setfsuid"))?
        .map_err(|errno| BackendError::from_io(errno.into(), operation))
}

impl LocalBackend {
    /// SETATTR.
    pub(super) fn set_attributes(
        &self,
        who: &Arc<Identity>,
        file: &OpenFile,
        changes: &Changes,
        guard: Option<Timestamp>,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let alone = self.locks.lock(file.inode);
        let quiet = file.quiet_since();
        let before = stat(&file.path)?.attributes;
        around.first = Around::after(before);
        check(changes)?;
        if guard.is_some_and(|guard| guard != before.changed) {
            return Err(BackendError::new(ErrorKind::NotSync, "setattr"));
        }
        let applied = self.apply(who, file, &before, changes);
        around.first = self.after(file);
        if file.stayed_quiet(quiet) {
            around.first.before = self.before(&before);
        }
        drop(alone);
        applied?;
        if !changes.is_empty() {
            self.make_durable(file)?;
        }
        Ok(Outcome::Done)
    }

    /// Make the changes as the caller: size, owners, mode, times. A later one must not undo an earlier one:
    /// a change of owner clears set-id bits, everything changes times.
    pub(super) fn apply(
        &self,
        who: &Arc<Identity>,
        file: &OpenFile,
        attr: &Attributes,
        changes: &Changes,
    ) -> Result<(), BackendError> {
        if let Some(size) = changes.size {
            self.set_size(who, file, attr, size)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            as_caller(who, "fchownat", || set_owners(file, changes.uid, changes.gid))?;
        }
        // The mode of a symbolic link means nothing, and Linux cannot set it.
        if let Some(mode) = changes.mode
            && attr.kind != FileKind::Symlink
        {
            as_caller(who, "fchmod", || set_mode(file, mode))?;
        }
        set_times(who, file, changes)
    }

    /// Set the size of a file: its owner may, whatever the mode.
    pub(super) fn set_size(
        &self,
        who: &Arc<Identity>,
        file: &OpenFile,
        attr: &Attributes,
        size: u64,
    ) -> Result<(), BackendError> {
        permission::require_write(file, attr, who)?;
        let fd = file.open(Purpose::Write)?;
        let fd = fd.ok_or_else(|| BackendError::new(ErrorKind::Invalid, "open"))?;
        // As the caller, so that set-id bits are cleared when they must be.
        as_caller(who, "ftruncate", || rustix::fs::ftruncate(&fd, size))?;
        // The zeroed rest of the last page is data too.
        file.set_dirty(true);
        Ok(())
    }
}

fn check(changes: &Changes) -> Result<(), BackendError> {
    let invalid = || Err(BackendError::new(ErrorKind::Invalid, "setattr"));
    for time in [changes.accessed, changes.modified] {
        if let SetTime::To(time) = time
            && time.nanos >= 1_000_000_000
        {
            return invalid();
        }
    }
    if changes.uid == Some(u32::MAX) || changes.gid == Some(u32::MAX) {
        return invalid();
    }
    if changes.size.is_some_and(|size| i64::try_from(size).is_err()) {
        return Err(BackendError::new(ErrorKind::TooLarge, "setattr"));
    }
    Ok(())
}

/// Check what a creating operation asks for, before anything is made.
pub(super) fn check_initial(changes: &Changes) -> Result<(), BackendError> {
    check(changes)
}

fn set_owners(file: &OpenFile, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(&file.path, c"", uid, gid, AtFlags::EMPTY_PATH)
}

pub(super) fn set_mode(file: &OpenFile, mode: u32) -> Result<(), Errno> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.path.as_raw_fd()));
    rustix::fs::chmod(path, Mode::from_raw_mode(mode & 0o7777))
}

fn set_times(who: &Arc<Identity>, file: &OpenFile, changes: &Changes) -> Result<(), BackendError> {
    let (accessed, modified) = (changes.accessed, changes.modified);
    if accessed == SetTime::Keep && modified == SetTime::Keep {
        return Ok(());
    }
    let times =
        Timestamps { last_access: argument(accessed), last_modification: argument(modified) };
    let set = || rustix::fs::utimensat(&file.path, c"", &times, AtFlags::EMPTY_PATH);
    let own_times = [accessed, modified].iter().any(|time| matches!(time, SetTime::To(_)));
    match as_caller(who, "utimensat", set) {
        // The kernel wants the owner when only one of the two is set, the protocol does not.
        Err(error) if !own_times && error.kind == ErrorKind::NotOwner => {
            let attr = stat(&file.path)?.attributes;
            permission::require(file, &attr, who, WRITE)?;
            set().map_err(|errno| BackendError::from_io(errno.into(), "utimensat"))
        }
        done => done,
    }
}

fn argument(time: SetTime) -> Timespec {
    match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(time) => timespec(time),
    }
}
