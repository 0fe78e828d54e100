//! CREATE (RFC 1813 section 3.3.8): a regular file, made as the caller in one system call with its mode, so
//! that default ACLs and set-gid directories have their effect.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{
    attr::{Attributes, Changes, FileKind, SetTime},
    blocking::creds,
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{CreateHow, Outcome},
};

use super::{
    attr::stat,
    backend::{Arounds, LocalBackend},
    exclusive,
    open_file::OpenFile,
    set_attributes::check_initial,
};

/// Mode of a file that nobody gave one.
const MODE_DEFAULT: u32 = 0o644;

fn exists() -> BackendError {
    BackendError::new(ErrorKind::Exists, "create")
}

impl LocalBackend {
    /// CREATE.
    pub(super) fn create(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        how: CreateHow,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let changes = match how {
            CreateHow::Unchecked(changes) | CreateHow::Guarded(changes) => changes,
            // The client sets the mode next; until then the file is its owner's alone.
            CreateHow::Exclusive(_) => Changes { mode: Some(0), ..Changes::default() },
        };
        check_initial(&changes)?;
        let (file, more) =
            self.change_directory(directory, &mut around.first, |_| {
                match open_new(who, directory, name, changes.mode.unwrap_or(MODE_DEFAULT))? {
                    Some(fd) => self.finish_new(who, directory, name, fd, how),
                    None => self.use_existing(who, directory, name, how),
                }
            })?;
        if more {
            self.make_durable(&file)?;
        }
        self.make_durable(directory)?;
        let attributes = stat(&file.path).ok().map(|about| about.attributes);
        Ok(Outcome::Created { object: file.handle, attributes })
    }

    /// A file was made: give it what open could not. Says whether that was anything.
    fn finish_new(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        fd: OwnedFd,
        how: CreateHow,
    ) -> Result<(Arc<OpenFile>, bool), BackendError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| BackendError::from_io(errno.into(), "open"))?;
        let (file, about) = self.adopt(opened, directory, name, true)?;
        let more = match how {
            CreateHow::Exclusive(verifier) => {
                if let Err(error) = exclusive::keep(&file, &fd, verifier) {
                    // Without its verifier the file would be in the way of the next try.
                    let _ = rustix::fs::unlinkat(&directory.path, name, AtFlags::empty());
                    self.unlinked(file.handle);
                    return Err(error);
                }
                true
            }
            CreateHow::Unchecked(changes) | CreateHow::Guarded(changes) => {
                self.apply_initial(who, &file, &about.attributes, &changes)?
            }
        };
        file.adopt_writer(fd);
        Ok((file, more))
    }

    /// What a creating operation asks for besides the mode. Says whether that was anything.
    pub(super) fn apply_initial(
        &self,
        who: &Arc<Identity>,
        file: &OpenFile,
        attr: &Attributes,
        changes: &Changes,
    ) -> Result<bool, BackendError> {
        // Clients send the ids that they think the object gets; only the superuser can give others.
        let other = |id: Option<u32>, is: u32| id.filter(|id| who.uid == 0 && *id != is);
        let more = Changes {
            mode: None,
            uid: other(changes.uid, attr.uid),
            gid: other(changes.gid, attr.gid),
            size: changes.size.filter(|size| *size != 0 && attr.kind == FileKind::Regular),
            accessed: changes.accessed,
            modified: changes.modified,
        };
        let now = |time| if time == SetTime::Now { SetTime::Keep } else { time };
        let more = Changes { accessed: now(more.accessed), modified: now(more.modified), ..more };
        if more.is_empty() {
            return Ok(false);
        }
        // Others can find the object by now.
        let _changing = file.changing();
        self.apply(who, file, attr, &more)?;
        Ok(true)
    }

    /// The name is taken.
    fn use_existing(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        how: CreateHow,
    ) -> Result<(Arc<OpenFile>, bool), BackendError> {
        if matches!(how, CreateHow::Guarded(_)) {
            return Err(exists());
        }
        let fd = self.child_as(who, directory, name)?;
        let (file, about) = self.adopt(fd, directory, name, true)?;
        if file.kind != FileKind::Regular {
            return Err(exists());
        }
        match how {
            CreateHow::Unchecked(Changes { size: Some(size), .. }) => {
                let changing = file.changing();
                self.set_size(who, &file, &about.attributes, size)?;
                drop(changing);
                Ok((file, true))
            }
            CreateHow::Unchecked(_) => Ok((file, false)),
            CreateHow::Exclusive(verifier)
                if exclusive::is_kept(&file, &about.attributes, verifier)? =>
            {
                Ok((file, true))
            }
            _ => Err(exists()),
        }
    }
}

/// Make the file as the caller; `None` when the name is taken.
fn open_new(
    who: &Identity,
    directory: &OpenFile,
    name: &[u8],
    mode: u32,
) -> Result<Option<OwnedFd>, BackendError> {
    let flags = OFlags::CREATE
        | OFlags::EXCL
        | OFlags::RDWR
        | OFlags::NOFOLLOW
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let opened = creds::with(who, || rustix::fs::openat(&directory.path, name, flags, mode))
        .map_err(|error| BackendError::from_io(error, "setfsuid"))?;
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(BackendError::from_io(errno.into(), "openat")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::LocalSettings;

    /// Attributes from before an operation are given only when nothing came between. What changes a file
    /// under the lock of a directory has to show, or SETATTR of that file would give wrong ones.
    #[test]
    fn bug_names_that_changed_a_file_did_not_show_to_setattr() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("f"), b"contents").unwrap();
        std::fs::write(place.path().join("g"), b"").unwrap();
        let backend = LocalBackend::open(LocalSettings::new(place.path())).unwrap();
        let (root, who) = (backend.root_file.clone(), Arc::new(Identity::root()));
        let mut around = Arounds::default();
        let truncate = CreateHow::Unchecked(Changes { size: Some(0), ..Changes::default() });
        let mut create = |name: &[u8]| {
            let done = backend.create(&who, &root, name, truncate, &mut around).unwrap();
            let Outcome::Created { object, .. } = done else { panic!("{done:?}") };
            backend.resolve(&object).unwrap()
        };
        let file = create(b"f");
        let changed = |file: &OpenFile, change: &mut dyn FnMut()| {
            let quiet = file.quiet_since();
            assert!(file.stayed_quiet(quiet));
            change();
            assert!(file.quiet_since().is_some(), "it is over");
            !file.stayed_quiet(quiet)
        };
        assert!(changed(&file, &mut || drop(create(b"f"))), "truncated");
        let other = create(b"g");
        let mut around = Arounds::default();
        assert!(changed(&file, &mut || {
            backend.link(&who, &file, &root, b"h", &mut around).unwrap();
        }));
        assert!(changed(&file, &mut || {
            backend.remove(&who, &root, b"h", AtFlags::empty(), &mut around).unwrap();
        }));
        let quiet = other.quiet_since();
        assert!(changed(&file, &mut || {
            let (from, to) = ((&*root, &b"f"[..]), (&*root, &b"g"[..]));
            backend.rename(&who, from, to, &mut around).unwrap();
        }));
        assert!(!other.stayed_quiet(quiet), "replaced");
        assert!(around.first.before.is_some(), "nobody else changed the directory");
    }
}
