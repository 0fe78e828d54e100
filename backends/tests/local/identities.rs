//! Whose rights count. These tests say something only where they run as root.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use backends::{
    ErrorKind, Identity, Operation, Outcome,
    attr::{Changes, SetTime},
    local::IoMode,
    op::{AccessMask, CreateHow, Stability},
};
use bytes::Bytes;

use crate::lane::{TestLane, Way, can_switch};

fn user(uid: u32, groups: &[u32]) -> Arc<Identity> {
    Arc::new(Identity { uid, gid: uid, groups: groups.into() })
}

fn mode(mode: u32) -> Changes {
    Changes { mode: Some(mode), ..Changes::default() }
}

fn open_root(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn each(test: impl Fn(TestLane)) {
    if !can_switch() {
        return;
    }
    for ring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        open_root(root.path());
        test(TestLane::new(root.path(), Way { ring, io_mode: IoMode::Buffered }));
    }
}

#[test]
fn new_objects_belong_to_the_caller() {
    each(|mut lane| {
        let (alice, top) = (user(5001, &[]), lane.root());
        let how = CreateHow::Guarded(mode(0o600));
        let file = lane.try_create(&alice, top, b"f", how).unwrap();
        let attr = lane.attributes(file);
        assert_eq!((attr.uid, attr.gid), (5001, 5001));
        let other = Changes { uid: Some(1), gid: Some(1), ..mode(0o600) };
        let how = CreateHow::Guarded(other);
        let file = lane.try_create(&alice, top, b"g", how).unwrap();
        assert_eq!(lane.attributes(file).uid, 5001);
    });
}

#[test]
fn others_are_kept_out_and_the_owner_is_not() {
    each(|mut lane| {
        let (alice, bob, top) = (user(5001, &[]), user(5002, &[]), lane.root());
        let how = CreateHow::Guarded(mode(0o600));
        let file = lane.try_create(&alice, top, b"f", how).unwrap();
        let data = Bytes::from_static(b"private");
        lane.write_as(&alice, file, 0, data.clone(), Stability::Unstable).unwrap();
        assert_eq!(lane.read_as(&bob, file, 0, 10).unwrap_err(), ErrorKind::Access);
        let refused = lane.write_as(&bob, file, 0, data.clone(), Stability::Unstable);
        assert_eq!(refused.unwrap_err(), ErrorKind::Access);
        let commit = Operation::Commit { object: file, offset: 0, count: 0 };
        assert_eq!(lane.run_as(&bob, commit).result.unwrap_err().kind, ErrorKind::Access);
        assert_eq!(lane.set(&bob, file, mode(0o777)).unwrap_err(), ErrorKind::NotOwner);
        let size = Changes { size: Some(0), ..Changes::default() };
        assert_eq!(lane.set(&bob, file, size).unwrap_err(), ErrorKind::Access);
        // The owner reads and writes whatever the mode has become (it may have the file open).
        lane.set(&alice, file, mode(0)).unwrap();
        assert_eq!(&lane.read_as(&alice, file, 0, 10).unwrap().0[..], b"private");
        lane.write_as(&alice, file, 0, data, Stability::Unstable).unwrap();
        lane.set(&alice, file, size).unwrap();
        // ACCESS is honest all the same.
        let mask = AccessMask(AccessMask::READ | AccessMask::MODIFY);
        let done = lane.run_as(&alice, Operation::Access { object: file, mask });
        let Ok(Outcome::Access { granted }) = done.result else { panic!("{done:?}") };
        assert_eq!(granted.0, 0);
        // A change of mode counts at once, although files stay open.
        lane.set(&alice, file, mode(0o644)).unwrap();
        assert!(lane.read_as(&bob, file, 0, 10).is_ok());
        lane.set(&alice, file, mode(0o640)).unwrap();
        assert_eq!(lane.read_as(&bob, file, 0, 10).unwrap_err(), ErrorKind::Access);
    });
}

/// An ACL that gives user 5002 the rights `bits`; whatever they are, the mode stays 0670.
fn acl_for_bob(path: &Path, bits: u16) -> bool {
    let mut acl = 2u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, rights, id) in
        [(1u16, 6u16, none), (2, bits, 5002), (4, 0, none), (0x10, 7, none), (0x20, 0, none)]
    {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&rights.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, c"system.posix_acl_access", &acl, flags).is_ok()
}

#[test]
fn bug_a_right_taken_away_within_a_tick_of_the_clock_was_still_granted() {
    if !can_switch() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    open_root(root.path());
    let mut lane = TestLane::new(root.path(), Way { ring: true, io_mode: IoMode::Buffered });
    let (alice, bob, top) = (user(5001, &[]), user(5002, &[]), lane.root());
    let how = CreateHow::Guarded(mode(0o670));
    let file = lane.try_create(&alice, top, b"f", how).unwrap();
    let path = root.path().join("f");
    // Often enough that two changes meet within a tick.
    for round in 0..50 {
        if !acl_for_bob(&path, 6) {
            return; // no ACLs here
        }
        assert!(lane.read_as(&bob, file, 0, 10).is_ok());
        assert!(acl_for_bob(&path, 0));
        let refused = lane.read_as(&bob, file, 0, 10);
        assert_eq!(refused.unwrap_err(), ErrorKind::Access, "round {round}");
    }
}

#[test]
fn programs_can_be_read_by_who_may_run_them() {
    each(|mut lane| {
        let (alice, bob, top) = (user(5001, &[]), user(5002, &[]), lane.root());
        let how = CreateHow::Guarded(mode(0o711));
        let file = lane.try_create(&alice, top, b"program", how).unwrap();
        assert!(lane.read_as(&bob, file, 0, 10).is_ok());
    });
}

#[test]
fn groups_count_and_do_not_leak_to_the_next_request() {
    each(|mut lane| {
        let (owner, top) = (lane.who.clone(), lane.root());
        let file = lane.create(b"f", 0o060);
        lane.set(&owner, file, Changes { gid: Some(700), ..Changes::default() }).unwrap();
        lane.set(&owner, file, mode(0o060)).unwrap();
        let (member, stranger) = (user(5001, &[600, 700]), user(5001, &[]));
        for _ in 0..20 {
            assert!(lane.read_as(&member, file, 0, 1).is_ok());
            assert_eq!(lane.read_as(&stranger, file, 0, 1).unwrap_err(), ErrorKind::Access);
        }
        // The same on the pool, whose threads go from one caller to the next.
        let directory = lane.make_directory(b"d", 0o070);
        lane.set(&owner, directory, Changes { gid: Some(700), ..Changes::default() }).unwrap();
        for n in 0..20u8 {
            let how = CreateHow::Guarded(mode(0o600));
            assert!(lane.try_create(&member, directory, &[b'a' + n], how).is_ok());
            let refused = lane.try_create(&stranger, directory, &[b'A' + n], how);
            assert_eq!(refused.unwrap_err(), ErrorKind::Access);
        }
        let _ = top;
    });
}

#[test]
fn set_user_id_does_not_survive_a_write_by_another() {
    each(|mut lane| {
        let (alice, bob, top) = (user(5001, &[]), user(5002, &[]), lane.root());
        let how = CreateHow::Guarded(mode(0o4777));
        let file = lane.try_create(&alice, top, b"f", how).unwrap();
        assert_eq!(lane.attributes(file).mode, 0o4777);
        let data = Bytes::from_static(b"evil");
        lane.write_as(&bob, file, 0, data, Stability::Unstable).unwrap();
        assert_eq!(lane.attributes(file).mode, 0o777);
        lane.set(&alice, file, mode(0o4777)).unwrap();
        lane.set(&bob, file, Changes { size: Some(1), ..Changes::default() }).unwrap();
        assert_eq!(lane.attributes(file).mode, 0o777);
    });
}

#[test]
fn directories_need_search_and_write_permission() {
    each(|mut lane| {
        let (alice, bob, top) = (user(5001, &[]), user(5002, &[]), lane.root());
        let name = Bytes::from_static(b"d");
        let make = Operation::MakeDirectory { directory: top, name, changes: mode(0o700) };
        let Ok(Outcome::Created { object: directory, .. }) = lane.run_as(&alice, make).result
        else {
            panic!()
        };
        let how = CreateHow::Guarded(mode(0o666));
        lane.try_create(&alice, directory, b"f", how).unwrap();
        let name = Bytes::from_static(b"f");
        let lookup = Operation::Lookup { directory, name: name.clone() };
        assert_eq!(lane.run_as(&bob, lookup).result.unwrap_err().kind, ErrorKind::Access);
        let refused = lane.try_create(&bob, directory, b"g", how);
        assert_eq!(refused.unwrap_err(), ErrorKind::Access);
        let remove = Operation::Remove { directory, name };
        assert_eq!(lane.run_as(&bob, remove).result.unwrap_err().kind, ErrorKind::Access);
        let asked = backends::op::ReadDirectory {
            directory,
            cookie: 0,
            plus: true,
            name_bytes_max: 1000,
            entries_max: 10,
        };
        let list = Operation::ReadDirectory(asked);
        assert_eq!(lane.run_as(&bob, list).result.unwrap_err().kind, ErrorKind::Access);
        // May be listed but not searched: names come, attributes do not.
        lane.set(&alice, directory, mode(0o744)).unwrap();
        let done = lane.run_as(&bob, Operation::ReadDirectory(asked));
        let Ok(Outcome::Entries { entries, .. }) = done.result else { panic!("{done:?}") };
        let entry = entries.iter().find(|entry| &entry.name[..] == b"f").unwrap();
        assert!(entry.object.is_none());
    });
}

#[test]
fn the_servers_time_needs_only_write_permission() {
    each(|mut lane| {
        let (alice, bob, top) = (user(5001, &[]), user(5002, &[]), lane.root());
        let how = CreateHow::Guarded(mode(0o666));
        let file = lane.try_create(&alice, top, b"f", how).unwrap();
        let now = Changes { modified: SetTime::Now, ..Changes::default() };
        lane.set(&bob, file, now).unwrap();
        let both = Changes { accessed: SetTime::Now, ..now };
        lane.set(&bob, file, both).unwrap();
        let then = Changes { modified: SetTime::To(Default::default()), ..Changes::default() };
        assert_eq!(lane.set(&bob, file, then).unwrap_err(), ErrorKind::NotOwner);
        lane.set(&alice, file, mode(0o644)).unwrap();
        let refused = lane.set(&bob, file, now).unwrap_err();
        assert!(matches!(refused, ErrorKind::Access | ErrorKind::NotOwner));
    });
}

#[test]
fn a_set_group_id_directory_gives_its_group() {
    each(|mut lane| {
        let (root, alice) = (lane.who.clone(), user(5001, &[]));
        let directory = lane.make_directory(b"d", 0o777);
        lane.set(&root, directory, Changes { gid: Some(700), ..Changes::default() }).unwrap();
        lane.set(&root, directory, mode(0o2777)).unwrap();
        let how = CreateHow::Guarded(mode(0o600));
        let file = lane.try_create(&alice, directory, b"f", how).unwrap();
        assert_eq!(lane.attributes(file).gid, 700);
    });
}
