//! REMOVE, RMDIR, RENAME and LINK (RFC 1813 sections 3.3.12 to 3.3.15): what happens to names.

use std::{os::fd::AsRawFd, path::PathBuf, sync::Arc};

use rustix::fs::{AtFlags, CWD};

use crate::{
    attr::{Around, FileKind},
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    identity::Identity,
    op::Outcome,
};

use super::{
    attr::{Stat, stat},
    backend::{Arounds, LocalBackend},
    lookup::open_child,
    open_file::{Changing, OpenFile},
    set_attributes::as_caller,
};

/// An object that is about to lose a name, perhaps its last.
struct Doomed {
    fd: std::os::fd::OwnedFd,
    about: Stat,
    handle: ObjectHandle,
    /// It as others have it open: its attributes change, too.
    held: Option<Arc<OpenFile>>,
}

impl Doomed {
    fn changing(doomed: Option<&Self>) -> Option<Changing<'_>> {
        doomed?.held.as_deref().map(OpenFile::changing)
    }
}

/// A name in use by the system (a mount point) is a refusal, not a thing that passes.
fn busy_is_access(error: BackendError) -> BackendError {
    let busy = error.source.as_ref().is_some_and(|e| e.raw_os_error() == Some(libc::EBUSY));
    if busy { BackendError { kind: ErrorKind::Access, ..error } } else { error }
}

impl LocalBackend {
    fn doomed(&self, directory: &OpenFile, name: &[u8]) -> Option<Doomed> {
        let fd = open_child(directory, name, false).ok()?;
        let about = stat(&fd).ok()?;
        let handle = self.handle_of(&fd, &about, directory, name).ok()?;
        let held = self.cache.peek(&handle);
        Some(Doomed { fd, about, handle, held })
    }

    fn bury(&self, doomed: Option<Doomed>) {
        let Some(doomed) = doomed else { return };
        let gone = match stat(&doomed.fd) {
            Ok(about) => {
                about.attributes.links == 0 || doomed.about.attributes.kind == FileKind::Directory
            }
            Err(_) => true,
        };
        if gone {
            self.unlinked(doomed.handle);
        }
    }

    /// REMOVE and RMDIR.
    pub(super) fn remove(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        flags: AtFlags,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        self.change_directory(directory, &mut around.first, |_| {
            let doomed = self.doomed(directory, name);
            let changing = Doomed::changing(doomed.as_ref());
            as_caller(who, "unlinkat", || rustix::fs::unlinkat(&directory.path, name, flags))
                .map_err(busy_is_access)?;
            drop(changing);
            self.bury(doomed);
            Ok(())
        })?;
        self.make_durable(directory)?;
        Ok(Outcome::Done)
    }

    /// RENAME.
    pub(super) fn rename(
        &self,
        who: &Arc<Identity>,
        from: (&OpenFile, &[u8]),
        to: (&OpenFile, &[u8]),
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let ((from, from_name), (to, to_name)) = (from, to);
        let both = self.locks.lock_two(from.inode, to.inode);
        let (from_quiet, to_quiet) = (from.quiet_since(), to.quiet_since());
        let (from_before, to_before) = (stat(&from.path)?, stat(&to.path)?);
        around.first = Around::after(from_before.attributes);
        around.second = Around::after(to_before.attributes);
        if from.kind != FileKind::Directory || to.kind != FileKind::Directory {
            return Err(BackendError::new(ErrorKind::NotDirectory, "rename"));
        }
        let moved = self.doomed(from, from_name);
        let replaced = self.doomed(to, to_name);
        let changing = [&moved, &replaced].map(|doomed| Doomed::changing(doomed.as_ref()));
        let renamed = as_caller(who, "renameat", || {
            rustix::fs::renameat(&from.path, from_name, &to.path, to_name)
        });
        drop(changing);
        around.first = self.after(from);
        if from.stayed_quiet(from_quiet) {
            around.first.before = self.before(&from_before.attributes);
        }
        around.second = self.after(to);
        if to.stayed_quiet(to_quiet) {
            around.second.before = self.before(&to_before.attributes);
        }
        drop(both);
        renamed.map_err(busy_is_access)?;
        if let Some(moved) = &moved {
            self.renamed(moved.about.attributes.file_id, to, to_name);
        }
        let same = |moved: &Doomed, other: &Doomed| moved.handle == other.handle;
        let replaced = replaced.filter(|other| !moved.as_ref().is_some_and(|m| same(m, other)));
        self.bury(replaced);
        self.make_durable(to)?;
        if from.handle != to.handle {
            self.make_durable(from)?;
        }
        Ok(Outcome::Done)
    }

    /// LINK. The object is given by its descriptor, so nothing can be put in its place meanwhile.
    pub(super) fn link(
        &self,
        who: &Arc<Identity>,
        file: &OpenFile,
        directory: &OpenFile,
        name: &[u8],
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        around.first = self.after(file);
        if file.kind == FileKind::Directory {
            around.second = self.after(directory);
            return Err(BackendError::new(ErrorKind::IsDirectory, "link"));
        }
        let made = self.change_directory(directory, &mut around.second, |_| {
            let path = PathBuf::from(format!("/proc/self/fd/{}", file.path.as_raw_fd()));
            let _changing = file.changing();
            as_caller(who, "linkat", || {
                rustix::fs::linkat(CWD, path, &directory.path, name, AtFlags::SYMLINK_FOLLOW)
            })
        });
        around.first = self.after(file);
        made?;
        self.renamed(file.inode, directory, name);
        self.make_durable(directory)?;
        Ok(Outcome::Done)
    }
}
