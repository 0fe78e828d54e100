//! The rules of owner, group and mode bits, for backends that have no kernel to check them.
//!
//! The rules are those that a Linux file server applies: POSIX permission classes, the superuser's
//! override, the owner's override for data (a client checks at open(2) and must be able to go on after a
//! chmod, RFC 1813 section 4.4), the sticky bit, and the loss of set-id bits.

use crate::{
    attr::{Attributes, Changes, FileKind, SetTime},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::AccessMask,
};

/// Permission to read, as in the lowest class of a mode.
pub const READ: u32 = 4;
/// Permission to write.
pub const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub const EXECUTE: u32 = 1;

/// Set-user-id bit.
pub const SET_UID: u32 = 0o4000;
/// Set-group-id bit.
pub const SET_GID: u32 = 0o2000;
/// Sticky bit.
pub const STICKY: u32 = 0o1000;
/// All bits that a mode may have.
pub const MODE_BITS: u32 = 0o7777;

const GROUP_EXECUTE: u32 = 0o010;

/// Whether the caller is the superuser.
pub fn is_root(who: &Identity) -> bool {
    who.uid == 0
}

/// Whether the caller may act as the owner.
pub fn is_owner(who: &Identity, attr: &Attributes) -> bool {
    is_root(who) || who.uid == attr.uid
}

/// The rights ([`READ`], [`WRITE`], [`EXECUTE`]) that the mode gives to the caller.
pub fn granted(who: &Identity, attr: &Attributes) -> u32 {
    if is_root(who) {
        let runs = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
        return READ | WRITE | if runs { EXECUTE } else { 0 };
    }
    let class = if who.uid == attr.uid {
        attr.mode >> 6
    } else if who.in_group(attr.gid) {
        attr.mode >> 3
    } else {
        attr.mode
    };
    class & 7
}

/// Fail with `Access` unless the mode gives all of `rights`.
///
/// # Errors
/// `Access`.
pub fn require(
    who: &Identity,
    attr: &Attributes,
    rights: u32,
    step: &'static str,
) -> Result<(), BackendError> {
    allow(granted(who, attr) & rights == rights, ErrorKind::Access, step)
}

/// Fail with `Access` unless the caller may read the file's data: by the mode, as its owner, or because the
/// file can be executed (a client reads the program in order to run it).
///
/// # Errors
/// `Access`.
pub fn require_read(
    who: &Identity,
    attr: &Attributes,
    step: &'static str,
) -> Result<(), BackendError> {
    let allowed = is_owner(who, attr) || granted(who, attr) & (READ | EXECUTE) != 0;
    allow(allowed, ErrorKind::Access, step)
}

/// Fail with `Access` unless the caller may write the file's data: by the mode or as its owner.
///
/// # Errors
/// `Access`.
pub fn require_write(
    who: &Identity,
    attr: &Attributes,
    step: &'static str,
) -> Result<(), BackendError> {
    let allowed = is_owner(who, attr) || granted(who, attr) & WRITE != 0;
    allow(allowed, ErrorKind::Access, step)
}

/// Fail unless the caller may take `victim` out of `directory`: write and search permission, and in a
/// sticky directory the ownership of one of the two.
///
/// # Errors
/// `Access`, or `NotOwner` because of the sticky bit.
pub fn require_delete(
    who: &Identity,
    directory: &Attributes,
    victim: &Attributes,
    step: &'static str,
) -> Result<(), BackendError> {
    require(who, directory, WRITE | EXECUTE, step)?;
    let sticky = directory.mode & STICKY != 0;
    let allowed = !sticky || is_owner(who, victim) || is_owner(who, directory);
    allow(allowed, ErrorKind::NotOwner, step)
}

/// Fail unless the caller may make another name for `target`: its owner may; others only for a plain file
/// that they can read and write and that carries no set-id privilege. This is Linux's
/// `fs.protected_hardlinks`, on by default in every distribution.
///
/// # Errors
/// `NotOwner`.
pub fn require_link(
    who: &Identity,
    target: &Attributes,
    step: &'static str,
) -> Result<(), BackendError> {
    let privileged = target.mode & SET_UID != 0
        || target.mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
    let plain = target.kind == FileKind::Regular && !privileged;
    let both = granted(who, target) & (READ | WRITE) == READ | WRITE;
    allow(is_owner(who, target) || (plain && both), ErrorKind::NotOwner, step)
}

/// The part of `changes` that means something for this object: the mode of a symbolic link does not.
pub fn meaningful(attr: &Attributes, changes: &Changes) -> Changes {
    let mode = changes.mode.filter(|_| attr.kind != FileKind::Symlink);
    Changes { mode, ..*changes }
}

/// Fail unless the caller may apply `changes` to an existing object.
///
/// # Errors
/// `NotOwner` or `Access`.
pub fn require_changes(
    who: &Identity,
    attr: &Attributes,
    changes: &Changes,
    step: &'static str,
) -> Result<(), BackendError> {
    let owner = is_owner(who, attr);
    if changes.mode.is_some() {
        allow(owner, ErrorKind::NotOwner, step)?;
    }
    if let Some(uid) = changes.uid {
        let kept = owner && uid == attr.uid;
        allow(is_root(who) || kept, ErrorKind::NotOwner, step)?;
    }
    if let Some(gid) = changes.gid {
        let own = owner && (who.in_group(gid) || gid == attr.gid);
        allow(is_root(who) || own, ErrorKind::NotOwner, step)?;
    }
    if changes.size.is_some() {
        require_write(who, attr, step)?;
    }
    for time in [changes.accessed, changes.modified] {
        match time {
            SetTime::Keep => {}
            SetTime::Now => require_write(who, attr, step)?,
            SetTime::To(_) => allow(owner, ErrorKind::NotOwner, step)?,
        }
    }
    Ok(())
}

/// Fail unless the caller may create an object that belongs to the owner and group in `changes`.
///
/// # Errors
/// `NotOwner`.
pub fn require_creation(
    who: &Identity,
    changes: &Changes,
    inherited_gid: u32,
    step: &'static str,
) -> Result<(), BackendError> {
    let uid = changes.uid.is_none_or(|uid| uid == who.uid);
    let gid = changes.gid.is_none_or(|gid| gid == inherited_gid || who.in_group(gid));
    allow(is_root(who) || (uid && gid), ErrorKind::NotOwner, step)
}

/// Which of the asked rights the caller has (RFC 1813 section 3.3.4). Whether a name can be deleted is a
/// right on the directory, so DELETE is never granted on anything else.
pub fn access(who: &Identity, attr: &Attributes, asked: AccessMask) -> AccessMask {
    let rights = granted(who, attr);
    let change = AccessMask::MODIFY | AccessMask::EXTEND;
    let mut mask = if rights & READ != 0 { AccessMask::READ } else { 0 };
    if attr.kind == FileKind::Directory {
        if rights & EXECUTE != 0 {
            mask |= AccessMask::LOOKUP;
        }
        if rights & (WRITE | EXECUTE) == WRITE | EXECUTE {
            mask |= change | AccessMask::DELETE;
        }
    } else {
        if rights & WRITE != 0 {
            mask |= change;
        }
        if rights & EXECUTE != 0 && attr.kind == FileKind::Regular {
            mask |= AccessMask::EXECUTE;
        }
    }
    AccessMask(mask & asked.0)
}

/// The mode after somebody wrote to or cut a regular file: set-id bits go unless it was the superuser.
pub fn mode_after_write(who: &Identity, attr: &Attributes) -> u32 {
    if is_root(who) || attr.kind != FileKind::Regular {
        return attr.mode;
    }
    let group_gone = attr.mode & GROUP_EXECUTE != 0 || !who.in_group(attr.gid);
    attr.mode & !SET_UID & if group_gone { !SET_GID } else { !0 }
}

/// The mode after the owner or group was set: set-id bits go, whoever did it, except on directories. SET_GID
/// without group execution means mandatory locking, not privilege, and stays with the superuser.
pub fn mode_after_chown(who: &Identity, attr: &Attributes) -> u32 {
    if attr.kind == FileKind::Directory {
        return attr.mode;
    }
    let stranger = !is_root(who) && !who.in_group(attr.gid);
    let group_gone = attr.mode & GROUP_EXECUTE != 0 || stranger;
    attr.mode & !SET_UID & if group_gone { !SET_GID } else { !0 }
}

/// The mode that a chmod to `mode` results in: without SET_GID when the caller is not in the file's group.
pub fn mode_after_chmod(who: &Identity, gid: u32, mode: u32) -> u32 {
    let keep = is_root(who) || who.in_group(gid);
    mode & MODE_BITS & if keep { !0 } else { !SET_GID }
}

fn allow(allowed: bool, kind: ErrorKind, step: &'static str) -> Result<(), BackendError> {
    if allowed { Ok(()) } else { Err(BackendError::new(kind, step)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{Device, Timestamp};

    fn object(kind: FileKind, mode: u32) -> Attributes {
        let time = Timestamp::default();
        Attributes {
            kind,
            mode,
            links: 1,
            uid: 10,
            gid: 20,
            size: 0,
            used: 0,
            device: Device::default(),
            file_id: 1,
            accessed: time,
            modified: time,
            changed: time,
        }
    }

    fn kind(result: Result<(), BackendError>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind)
    }

    #[test]
    fn the_first_class_that_matches_decides() {
        let attr = object(FileKind::Regular, 0o047);
        assert_eq!(granted(&Identity::new(10, 20), &attr), 0);
        assert_eq!(granted(&Identity::new(11, 20), &attr), READ);
        assert_eq!(granted(&Identity::new(11, 21), &attr), 7);
        let member = Identity { uid: 11, gid: 21, groups: [20].into() };
        assert_eq!(granted(&member, &attr), READ);
    }

    #[test]
    fn root_reads_and_writes_but_does_not_execute_plain_files() {
        let root = Identity::root();
        assert_eq!(granted(&root, &object(FileKind::Regular, 0)), READ | WRITE);
        assert_eq!(granted(&root, &object(FileKind::Regular, 0o001)), 7);
        assert_eq!(granted(&root, &object(FileKind::Directory, 0)), 7);
    }

    #[test]
    fn the_owner_writes_a_file_of_mode_zero() {
        let attr = object(FileKind::Regular, 0);
        assert_eq!(kind(require_write(&Identity::new(10, 1), &attr, "t")), None);
        assert_eq!(kind(require_read(&Identity::new(10, 1), &attr, "t")), None);
        let other = Identity::new(11, 20);
        assert_eq!(kind(require_write(&other, &attr, "t")), Some(ErrorKind::Access));
        assert_eq!(access(&Identity::new(10, 1), &attr, AccessMask(0x3f)).0, 0);
    }

    #[test]
    fn sticky_directories_protect_the_files_of_others() {
        let directory = object(FileKind::Directory, 0o1777);
        let victim = Attributes { uid: 11, ..object(FileKind::Regular, 0o666) };
        let by = |uid| kind(require_delete(&Identity::new(uid, 1), &directory, &victim, "t"));
        assert_eq!(by(12), Some(ErrorKind::NotOwner));
        assert_eq!((by(11), by(10), by(0)), (None, None, None));
    }

    #[test]
    fn set_id_bits_go_when_others_write() {
        let attr = object(FileKind::Regular, 0o6775);
        assert_eq!(mode_after_write(&Identity::new(11, 20), &attr), 0o775);
        assert_eq!(mode_after_write(&Identity::root(), &attr), 0o6775);
        assert_eq!(mode_after_chown(&Identity::root(), &attr), 0o775);
        assert_eq!(mode_after_chown(&Identity::root(), &object(FileKind::Regular, 0o2664)), 0o2664);
        assert_eq!(mode_after_chmod(&Identity::new(10, 1), 20, 0o2755), 0o755);
    }

    #[test]
    fn times_of_the_client_need_ownership_and_the_servers_only_write_permission() {
        let attr = object(FileKind::Regular, 0o666);
        let other = Identity::new(11, 21);
        let now = Changes { modified: SetTime::Now, ..Changes::default() };
        let given = Changes { modified: SetTime::To(Timestamp::default()), ..Changes::default() };
        assert_eq!(kind(require_changes(&other, &attr, &now, "t")), None);
        assert_eq!(kind(require_changes(&other, &attr, &given, "t")), Some(ErrorKind::NotOwner));
    }

    #[test]
    fn files_are_not_given_away() {
        let attr = object(FileKind::Regular, 0o666);
        let owner = Identity { uid: 10, gid: 20, groups: [30].into() };
        let to = |uid, gid| {
            let changes = Changes { uid, gid, ..Changes::default() };
            kind(require_changes(&owner, &attr, &changes, "t"))
        };
        assert_eq!(to(Some(10), Some(30)), None);
        assert_eq!(to(Some(11), None), Some(ErrorKind::NotOwner));
        assert_eq!(to(None, Some(31)), Some(ErrorKind::NotOwner));
    }

    #[test]
    fn delete_is_a_right_on_directories() {
        let all = AccessMask(0x3f);
        let owner = Identity::new(10, 20);
        assert_eq!(access(&owner, &object(FileKind::Directory, 0o700), all).0, 0x1f);
        assert_eq!(access(&owner, &object(FileKind::Regular, 0o700), all).0, 0x2d);
        assert_eq!(access(&owner, &object(FileKind::Directory, 0o600), all).0, 0x01);
    }
}
