//! The file system identity of one thread.
//!
//! Linux keeps fsuid, fsgid and supplementary groups for each thread. libc's wrappers change all threads of
//! the process, so everything here goes through raw system calls. `setfsuid` reports no error; what it did
//! is verified by a second call.
//!
//! Changing fsuid from 0 to something else drops the capabilities that override file permissions from the
//! thread's effective set, going back to 0 raises them again (capabilities(7)): no capability is touched by
//! hand. Supplementary groups stay as they were last set, because a thread with fsuid 0 does not need any;
//! they are compared, and set if different, whenever an identity is assumed, so one caller's groups never
//! serve another.
//!
//! A gateway without the right to switch (not root, or in a sandbox) does everything as its own user:
//! [`can_switch`] says so and [`assume`] then changes nothing.
#![allow(unsafe_code)]

use std::{
    cell::{Cell, RefCell},
    io,
    marker::PhantomData,
    sync::OnceLock,
};

use rustix::thread::CapabilitySet;

use crate::identity::{GROUPS_MAX, Identity};

/// What no user has: asking for it changes nothing and tells the present value.
const NO_ID: u32 = u32::MAX;

/// The user and group that owns nothing.
const NOBODY: u32 = 65_534;

thread_local! {
    /// Supplementary groups that this thread has, once we have set them.
    static GROUPS: RefCell<Option<Vec<u32>>> = const { RefCell::new(None) };
    /// This thread must stay what it is.
    static KEPT: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread never changes its credentials: [`assume`] answers EWOULDBLOCK instead, and the
/// work has to go to another thread.
///
/// Lanes need this. The kernel lets a thread post to an RDMA device by write(2) only while its credentials
/// are the very object that opened the device (`ib_safe_file_access`), and going there and back makes a new
/// object. Software devices (soft-RoCE) post that way.
pub fn keep() {
    KEPT.set(true);
}

/// Give up what an ordinary user's write must not have, on this thread: room beyond quotas and the blocks
/// reserved for the superuser. (Changing fsuid takes away only the capabilities about permissions.)
pub fn drop_resource_rights() {
    let Ok(mut sets) = rustix::thread::capabilities(None) else { return };
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    if let Err(error) = rustix::thread::set_capabilities(None, sets) {
        tracing::debug!(%error, "cannot give up CAP_SYS_RESOURCE");
    }
}

/// Become nobody for the rest of this thread's life: no user's rights, no capability that matters to files.
///
/// # Errors
/// When the kernel refuses; the thread must end then.
pub fn become_nobody() -> io::Result<()> {
    drop_resource_rights();
    set_groups(&[])?;
    set_fs_gid(NOBODY)?;
    set_fs_uid(NOBODY)
}
fn set_fs_uid(uid: u32) -> io::Result<()> {
    // SAFETY: plain integers, no memory; affects only this thread's credentials.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
    if fs_uid() == uid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn set_fs_gid(gid: u32) -> io::Result<()> {
    // SAFETY: as in `set_fs_uid`.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    if fs_gid() == gid { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: pointer and length describe a live slice of `gid_t`; the kernel only reads it.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// File system user id of this thread.
pub fn fs_uid() -> u32 {
    // SAFETY: an invalid id changes nothing; the call returns the present one.
    let uid = unsafe { libc::syscall(libc::SYS_setfsuid, NO_ID) };
    uid as u32
}

/// File system group id of this thread.
pub fn fs_gid() -> u32 {
    // SAFETY: an invalid id changes nothing; the call returns the present one.
    let gid = unsafe { libc::syscall(libc::SYS_setfsgid, NO_ID) };
    gid as u32
}

/// Whether this process can act as other users. Tried once, on a thread of its own, and remembered.
pub fn can_switch() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        std::thread::spawn(|| {
            // The trial thread ends here, so nothing has to be put back.
            fs_uid() == 0
                && set_groups(&[65_533]).is_ok()
                && set_fs_gid(65_534).is_ok()
                && set_fs_uid(65_534).is_ok()
                && set_fs_uid(0).is_ok()
        })
        .join()
        .unwrap_or(false)
    })
}

/// Whether this process is the machine's superuser and yet cannot act as others: whatever it does, it does
/// with all rights. (The root of a user namespace without other users is an ordinary user outside.)
pub fn is_stuck_as_root() -> bool {
    let all_users = || {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        map.split_whitespace().eq(["0", "0", "4294967295"])
    };
    fs_uid() == 0 && !can_switch() && all_users()
}

/// This thread acts as somebody until it is dropped. Never leaves the thread.
#[derive(Debug)]
#[must_use = "the identity ends when this is dropped"]
pub struct Assumed {
    home: Option<(u32, u32)>,
    stays_on_thread: PhantomData<*const ()>,
}

/// Act as `identity` on this thread.
///
/// # Errors
/// When the kernel refuses; the thread is then as it was. Identities do not nest.
pub fn assume(identity: &Identity) -> io::Result<Assumed> {
    if !can_switch() {
        return Ok(Assumed { home: None, stays_on_thread: PhantomData });
    }
    if identity.groups.len() > GROUPS_MAX || identity.uid == NO_ID || identity.gid == NO_ID {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    if KEPT.get() {
        // The superuser's groups give it nothing that it has not got anyway.
        if (identity.uid, identity.gid) == (0, 0) {
            return Ok(Assumed { home: None, stays_on_thread: PhantomData });
        }
        return Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK));
    }
    wear_groups(&identity.groups)?;
    if (identity.uid, identity.gid) == (0, 0) {
        // A thread at home is that already.
        return Ok(Assumed { home: None, stays_on_thread: PhantomData });
    }
    // From here on `Assumed` puts everything back, also when the next step fails.
    let assumed = Assumed { home: Some((0, 0)), stays_on_thread: PhantomData };
    set_fs_gid(identity.gid)?;
    set_fs_uid(identity.uid)?;
    Ok(assumed)
}

fn wear_groups(wanted: &[u32]) -> io::Result<()> {
    GROUPS.with_borrow_mut(|worn| {
        if worn.as_deref() == Some(wanted) {
            return Ok(());
        }
        // Unknown until the call has succeeded.
        *worn = None;
        set_groups(wanted)?;
        *worn = Some(wanted.to_vec());
        Ok(())
    })
}

impl Drop for Assumed {
    fn drop(&mut self) {
        let Some((uid, gid)) = self.home else { return };
        // User first: capabilities come back with fsuid 0, and setting the group may need them.
        if set_fs_uid(uid).is_err() || set_fs_gid(gid).is_err() {
            // A thread stuck in somebody's identity would serve others with it. There is no safe way on.
            tracing::error!("cannot leave the identity of a caller on this thread; aborting");
            std::process::abort();
        }
    }
}

/// Carry out `work` as `identity`.
///
/// # Errors
/// When the identity cannot be assumed.
pub fn with<T>(identity: &Identity, work: impl FnOnce() -> T) -> io::Result<T> {
    let _assumed = assume(identity)?;
    Ok(work())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_of_thread() -> Vec<u32> {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("Groups:")).unwrap();
        line.split_whitespace().skip(1).map(|gid| gid.parse().unwrap()).collect()
    }

    #[test]
    fn bug_rdma_post_refused_after_credentials_changed() {
        // A lane that had been somebody else for a moment could not post to soft-RoCE any more.
        let result = std::thread::spawn(|| {
            keep();
            (assume(&Identity::new(1000, 1000)).err(), assume(&Identity::root()).is_ok())
        });
        let (refused, root) = result.join().unwrap();
        if can_switch() {
            assert_eq!(refused.and_then(|error| error.raw_os_error()), Some(libc::EWOULDBLOCK));
        }
        assert!(root);
    }

    #[test]
    fn an_identity_is_worn_and_taken_off() {
        if !can_switch() {
            assert!(assume(&Identity::new(1, 1)).is_ok());
            return;
        }
        let who = Identity { uid: 1001, gid: 1002, groups: [7, 8].into() };
        let seen = with(&who, || (fs_uid(), fs_gid(), groups_of_thread())).unwrap();
        assert_eq!(seen, (1001, 1002, vec![7, 8]));
        assert_eq!((fs_uid(), fs_gid()), (0, 0));
    }

    #[test]
    fn groups_do_not_leak_to_the_next_caller() {
        if !can_switch() {
            return;
        }
        let rich = Identity { uid: 1001, gid: 1, groups: [50, 60].into() };
        with(&rich, || ()).unwrap();
        let poor = with(&Identity::new(1002, 2), groups_of_thread).unwrap();
        assert!(poor.is_empty());
    }

    #[test]
    fn a_panic_restores_the_thread() {
        if !can_switch() {
            return;
        }
        let caught = std::panic::catch_unwind(|| with(&Identity::new(1001, 1), || panic!("meant")));
        assert!(caught.is_err());
        assert_eq!((fs_uid(), fs_gid()), (0, 0));
    }

    #[test]
    fn other_threads_keep_their_identity() {
        if !can_switch() {
            return;
        }
        let _assumed = assume(&Identity { uid: 1001, gid: 1, groups: [9].into() }).unwrap();
        let other = std::thread::spawn(|| {
            // A thread starts with the credentials of the one that made it, so make it from a clean one.
            (fs_uid(), groups_of_thread())
        });
        assert_eq!(other.join().unwrap(), (1001, vec![9]));
        drop(_assumed);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let clean = std::thread::spawn(move || {
            wait.recv().unwrap();
            fs_uid()
        });
        let _again = assume(&Identity::new(1003, 1)).unwrap();
        go.send(()).unwrap();
        assert_eq!(clean.join().unwrap(), 0);
    }

    #[test]
    fn the_no_id_is_refused() {
        if can_switch() {
            assert!(assume(&Identity::new(u32::MAX, 1)).is_err());
            assert_eq!(fs_uid(), 0);
        }
    }
}
