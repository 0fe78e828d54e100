//! Names by which objects are found again where the file system's handles cannot be used.
//!
//! The table knows, for each inode that a client has seen, its directory and its name there. An object is
//! found by walking its names down from the root, and is taken only if inode number and birth time agree.
//! What another program renames is lost until a client looks it up again (`Stale`), and so is everything
//! when the process ends: this is the mode for development, for single users and for file systems
//! without handles.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::error::{BackendError, ErrorKind};

use super::{
    attr::{Stat, stat},
    handle::Substitute,
};

/// Names that are remembered at most; about 150 bytes each.
const NAMES_MAX: usize = 2_000_000;
/// Deepest directory that can be found again.
const DEPTH_MAX: usize = 1024;

#[derive(Debug, Clone)]
struct Known {
    directory: u64,
    name: Bytes,
}

/// The table, by inode number.
#[derive(Debug, Default)]
pub struct Paths(Mutex<HashMap<u64, Known>>);

impl Paths {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `inode` was seen as `name` in `directory`.
    pub fn learn(&self, directory: u64, name: &[u8], inode: u64) {
        let mut names = self.lock();
        if names.len() >= NAMES_MAX && !names.contains_key(&inode) {
            // Handles without a name become stale, so forget few, and say so.
            tracing::warn!("the table of names is full; some handles of this export become stale");
            let some: Vec<u64> = names.keys().take(NAMES_MAX / 16).copied().collect();
            for inode in some {
                names.remove(&inode);
            }
        }
        names.insert(inode, Known { directory, name: Bytes::copy_from_slice(name) });
    }

    /// Names from below the root down to `inode`; empty for the root itself.
    fn walk(&self, root: u64, inode: u64) -> Option<Vec<Bytes>> {
        let names = self.lock();
        let mut path = Vec::new();
        let mut at = inode;
        while at != root {
            if path.len() >= DEPTH_MAX {
                return None;
            }
            let known = names.get(&at)?;
            path.push(known.name.clone());
            at = known.directory;
        }
        path.reverse();
        Some(path)
    }

    /// Find an object again.
    ///
    /// # Errors
    /// `Stale` when its names lead elsewhere or nowhere.
    pub fn open(
        &self,
        root: &OwnedFd,
        root_inode: u64,
        wanted: Substitute,
    ) -> Result<(OwnedFd, Stat), BackendError> {
        let stale = || BackendError::new(ErrorKind::Stale, "handle");
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let names = self.walk(root_inode, wanted.inode).ok_or_else(stale)?;
        let mut at = rustix::fs::openat(root, c".", flags, Mode::empty()).map_err(open_failed)?;
        for name in &names {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
            at = rustix::fs::openat2(&at, &name[..], flags, Mode::empty(), resolve)
                .map_err(open_failed)?;
        }
        let found = stat(&at)?;
        if Substitute::of(&found) == wanted { Ok((at, found)) } else { Err(stale()) }
    }
}

fn open_failed(errno: rustix::io::Errno) -> BackendError {
    let error = BackendError::from_io(errno.into(), "openat2");
    match error.kind {
        ErrorKind::NotFound | ErrorKind::NotDirectory | ErrorKind::Invalid => {
            BackendError { kind: ErrorKind::Stale, ..error }
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_down_from_the_root() {
        let paths = Paths::default();
        paths.learn(1, b"a", 2);
        paths.learn(2, b"b", 3);
        assert_eq!(paths.walk(1, 3).unwrap(), [&b"a"[..], b"b"]);
        assert_eq!(paths.walk(1, 1).unwrap().len(), 0);
        assert!(paths.walk(1, 99).is_none());
    }

    #[test]
    fn a_circle_of_names_ends() {
        let paths = Paths::default();
        paths.learn(2, b"a", 3);
        paths.learn(3, b"b", 2);
        assert!(paths.walk(1, 2).is_none());
    }
}
