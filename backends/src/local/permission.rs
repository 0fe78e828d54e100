//! Who may do what with an object that is already open.
//!
//! The kernel decides: the thread takes the caller's identity and asks faccessat2(2), which knows modes, ACLs
//! and capabilities. The answer is remembered for as long as the object's change time, mode and owners
//! stay the same, but only once the change time lies far enough back that another change cannot bear the same
//! one (an ACL can change twice within a tick of the file system's clock, and none of them shows).
//!
//! Two rules come on top, as every NFS server has them, because clients check at open and then expect reads
//! and writes to work:
//!
//! * the owner of a file may always read and write it (it may have opened it before a chmod);
//! * who may execute a file may read it (clients load programs by READ).

use std::{
    sync::{Arc, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    attr::{Around, Attributes, FileKind, Timestamp},
    blocking::creds,
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::Operation,
};

use super::{attr::stat, open_file::OpenFile, sys};

/// Rights: the bits of access(2).
pub const READ: i32 = libc::R_OK;
/// Write.
pub const WRITE: i32 = libc::W_OK;
/// Execute, or search a directory.
pub const EXECUTE: i32 = libc::X_OK;

const GRANTS_MAX: usize = 8;

/// Longer than a tick of the clock that change times are taken from: 10 ms at 100 Hz.
const TICK_NANOS_MAX: i128 = 40_000_000;

/// Whether an object that is changed now gets another change time than `changed`.
fn is_settled(changed: Timestamp) -> bool {
    // (rustix's clock needs a vDSO and panics where there is none, as under some sandboxes and in user-mode Linux.)
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = |seconds: i128, nanos: u32| seconds * 1_000_000_000 + i128::from(nanos);
    let age = nanos(i128::from(now.as_secs()), now.subsec_nanos())
        - nanos(i128::from(changed.seconds), changed.nanos);
    age > TICK_NANOS_MAX
}

/// What one caller was found to be allowed.
#[derive(Debug, Clone)]
pub struct Grant {
    identity: Arc<Identity>,
    changed: Timestamp,
    mode: u32,
    owners: (u32, u32),
    known: i32,
    granted: i32,
}

impl Grant {
    fn new(identity: &Arc<Identity>, attr: &Attributes) -> Self {
        Self {
            identity: identity.clone(),
            changed: attr.changed,
            mode: attr.mode,
            owners: (attr.uid, attr.gid),
            known: 0,
            granted: 0,
        }
    }

    fn holds_for(&self, attr: &Attributes) -> bool {
        self.changed == attr.changed
            && self.mode == attr.mode
            && self.owners == (attr.uid, attr.gid)
    }

    fn is_of(&self, identity: &Arc<Identity>) -> bool {
        Arc::ptr_eq(&self.identity, identity) || self.identity == *identity
    }
}

fn denied() -> BackendError {
    BackendError::new(ErrorKind::Access, "permission")
}

/// Which of the rights in `wanted` the caller has. `attr` are the object's attributes now.
///
/// # Errors
/// When the question cannot be asked.
pub fn granted(
    file: &OpenFile,
    attr: &Attributes,
    identity: &Arc<Identity>,
    wanted: i32,
) -> Result<i32, BackendError> {
    let mut grants = file.grants.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_settled(attr.changed) {
        grants.clear();
        drop(grants);
        return ask(file, identity, wanted);
    }
    grants.retain(|grant| grant.holds_for(attr));
    let index = match grants.iter().position(|grant| grant.is_of(identity)) {
        Some(index) => index,
        None => {
            if grants.len() >= GRANTS_MAX {
                grants.remove(0);
            }
            grants.push(Grant::new(identity, attr));
            grants.len() - 1
        }
    };
    let Some(grant) = grants.get_mut(index) else { return Err(denied()) };
    let unknown = wanted & !grant.known;
    if unknown != 0 {
        let found = ask(file, identity, unknown)?;
        grant.known |= unknown;
        grant.granted |= found;
    }
    Ok(grant.granted & wanted)
}

fn ask(file: &OpenFile, identity: &Identity, wanted: i32) -> Result<i32, BackendError> {
    let asked = creds::with(identity, || {
        let mut found = 0;
        for right in [READ, WRITE, EXECUTE] {
            if wanted & right != 0 && sys::may_access(&file.path, right)? {
                found |= right;
            }
        }
        Ok(found)
    });
    asked.and_then(|found| found).map_err(|error| BackendError::from_io(error, "faccessat2"))
}

/// Whether the caller has all of `wanted`.
///
/// # Errors
/// `Access` if not.
pub fn require(
    file: &OpenFile,
    attr: &Attributes,
    identity: &Arc<Identity>,
    wanted: i32,
) -> Result<(), BackendError> {
    if granted(file, attr, identity, wanted)? == wanted { Ok(()) } else { Err(denied()) }
}

/// Whether the caller may read the file's data.
///
/// # Errors
/// `Access` if not; `IsDirectory`, `Invalid` for what has no data.
pub fn require_read(
    file: &OpenFile,
    attr: &Attributes,
    identity: &Arc<Identity>,
) -> Result<(), BackendError> {
    require_data(file)?;
    if attr.uid == identity.uid || granted(file, attr, identity, READ)? == READ {
        return Ok(());
    }
    require(file, attr, identity, EXECUTE)
}

/// Whether the caller may write the file's data.
///
/// # Errors
/// `Access` if not; `IsDirectory`, `Invalid` for what has no data.
pub fn require_write(
    file: &OpenFile,
    attr: &Attributes,
    identity: &Arc<Identity>,
) -> Result<(), BackendError> {
    require_data(file)?;
    if attr.uid == identity.uid {
        return Ok(());
    }
    require(file, attr, identity, WRITE)
}

/// Whether the caller may do a READ, WRITE or COMMIT. Returns the attributes that were looked at.
///
/// # Errors
/// As [`require_read`] and [`require_write`], with the attributes where known; `Later` when the question
/// would have to be asked as the caller and this thread cannot (see `creds::keep`).
#[allow(clippy::result_large_err)] // both parts go into the completion as they are
pub fn for_transfer(
    file: &OpenFile,
    operation: &Operation,
    identity: &Arc<Identity>,
) -> Result<Attributes, (BackendError, Around)> {
    let attr = stat(&file.path).map_err(|error| (error, Around::default()))?.attributes;
    let allowed = match operation {
        Operation::Read { .. } => require_read(file, &attr, identity),
        _ => require_write(file, &attr, identity),
    };
    allowed.map(|()| attr).map_err(|error| (error, Around::after(attr)))
}

fn require_data(file: &OpenFile) -> Result<(), BackendError> {
    match file.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(BackendError::new(ErrorKind::IsDirectory, "data")),
        _ => Err(BackendError::new(ErrorKind::Invalid, "data")),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::handle::ObjectHandle;

    #[test]
    fn bug_an_answer_was_remembered_while_the_next_change_could_bear_the_same_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, b"").unwrap();
        let fd = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
        let about = stat(&fd).unwrap();
        let file = OpenFile::new(ObjectHandle::new(b"f").unwrap(), fd, &about);
        let who = Arc::new(Identity::root());
        let remembered = |attr: &Attributes| {
            assert_eq!(granted(&file, attr, &who, READ).unwrap(), READ);
            file.grants.lock().unwrap().len()
        };
        // A clock that was set back makes no difference to the rule.
        let future = Timestamp { seconds: about.attributes.changed.seconds + 60, nanos: 0 };
        assert_eq!(remembered(&Attributes { changed: future, ..about.attributes }), 0);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(remembered(&about.attributes), 1);
        std::fs::write(&path, b"changed").unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let seconds = i64::try_from(now.as_secs()).unwrap();
        let changed = Timestamp { seconds, nanos: now.subsec_nanos() };
        assert_eq!(remembered(&Attributes { changed, ..about.attributes }), 0);
    }
}
