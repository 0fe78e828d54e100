//! GETATTR, SETATTR, ACCESS, FSSTAT.

use backends::{
    ErrorKind, FileKind, Operation, Outcome, Timestamp,
    attr::{Changes, SetTime},
    local::{LocalBackend, LocalSettings},
    op::AccessMask,
};

use crate::lane::{TestLane, settings};

const SOME: Changes = Changes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    accessed: SetTime::Keep,
    modified: SetTime::Keep,
};

#[test]
fn attributes_are_the_file_systems() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o640);
    lane.write(file, 0, b"12345");
    let attr = lane.attributes(file);
    assert_eq!((attr.kind, attr.mode, attr.size, attr.links), (FileKind::Regular, 0o640, 5, 1));
    assert_eq!((attr.uid, attr.gid), (lane.who.uid, lane.who.gid));
    let root_attr = lane.attributes(lane.root());
    assert_eq!(root_attr.kind, FileKind::Directory);
    assert_ne!(root_attr.file_id, attr.file_id);
}

#[test]
fn set_everything_and_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o640);
    lane.write(file, 0, b"12345");
    let who = lane.who.clone();
    let time = Timestamp { seconds: 1_000_000_000, nanos: 123_456_789 };
    let changes = Changes {
        mode: Some(0o604),
        size: Some(3),
        accessed: SetTime::To(time),
        modified: SetTime::To(time),
        ..SOME
    };
    lane.set(&who, file, changes).unwrap();
    let attr = lane.attributes(file);
    assert_eq!((attr.mode, attr.size, attr.accessed, attr.modified), (0o604, 3, time, time));
    lane.set(&who, file, SOME).unwrap();
    assert_eq!(lane.attributes(file), attr);
    lane.set(&who, file, Changes { modified: SetTime::Now, ..SOME }).unwrap();
    let now = lane.attributes(file);
    assert!(now.modified > time && now.accessed == time);
    lane.set(&who, file, Changes { size: Some(6 << 30), ..SOME }).unwrap();
    assert_eq!(lane.attributes(file).size, 6 << 30);
}

#[test]
fn nonsense_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o640);
    let who = lane.who.clone();
    let odd = SetTime::To(Timestamp { seconds: 1, nanos: 1_000_000_000 });
    let mut refused = |changes| lane.set(&who, file, changes).unwrap_err();
    assert_eq!(refused(Changes { modified: odd, ..SOME }), ErrorKind::Invalid);
    assert_eq!(refused(Changes { uid: Some(u32::MAX), ..SOME }), ErrorKind::Invalid);
    assert_eq!(refused(Changes { size: Some(u64::MAX), ..SOME }), ErrorKind::TooLarge);
    let root = lane.root();
    let size = Changes { size: Some(0), ..SOME };
    assert_eq!(lane.set(&who, root, size).unwrap_err(), ErrorKind::IsDirectory);
}

#[test]
fn the_guard_compares_the_change_time() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let object = lane.create(b"f", 0o640);
    let changed = lane.attributes(object).changed;
    let changes = Changes { mode: Some(0o600), ..SOME };
    let other = Timestamp { seconds: changed.seconds - 1, ..changed };
    let refused = lane.run(Operation::SetAttributes { object, changes, guard: Some(other) });
    assert_eq!(refused.result.unwrap_err().kind, ErrorKind::NotSync);
    assert_eq!(refused.first.after.unwrap().mode, 0o640);
    let done = lane.run(Operation::SetAttributes { object, changes, guard: Some(changed) });
    done.result.unwrap();
    assert_eq!(done.first.after.unwrap().mode, 0o600);
    assert_eq!(done.first.before.unwrap().changed, changed);
}

#[test]
fn local_writers_mean_no_attributes_from_before() {
    let root = tempfile::tempdir().unwrap();
    let backend =
        LocalBackend::open(LocalSettings { local_writers: true, ..settings(root.path()) }).unwrap();
    let mut lane = TestLane::on(backend, true);
    let object = lane.create(b"f", 0o640);
    let changes = Changes { mode: Some(0o600), ..SOME };
    let done = lane.run(Operation::SetAttributes { object, changes, guard: None });
    assert!(done.first.before.is_none() && done.first.after.is_some());
}

#[test]
fn access_gives_no_more_than_asked() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o700);
    let ask = |lane: &mut TestLane, object, mask| match lane
        .run(Operation::Access { object, mask: AccessMask(mask) })
        .result
        .unwrap()
    {
        Outcome::Access { granted } => granted.0,
        other => panic!("{other:?}"),
    };
    assert_eq!(ask(&mut lane, file, 0), 0);
    assert_eq!(ask(&mut lane, file, AccessMask::READ), AccessMask::READ);
    let all = AccessMask::READ | AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::EXECUTE;
    assert_eq!(ask(&mut lane, file, u32::MAX), all);
    let directory = lane.root();
    let all = AccessMask::READ
        | AccessMask::LOOKUP
        | AccessMask::MODIFY
        | AccessMask::EXTEND
        | AccessMask::DELETE;
    assert_eq!(ask(&mut lane, directory, u32::MAX), all);
}

#[test]
fn space_is_counted_in_bytes() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let object = lane.root();
    let done = lane.run(Operation::FileSystemSpace { object });
    let Ok(Outcome::Space(space)) = done.result else { panic!("{done:?}") };
    assert!(space.total > 1 << 20 && space.free >= space.available);
    assert!(space.files_total >= space.files_free);
}

#[test]
fn a_read_only_export_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("f"), b"x").unwrap();
    let backend =
        LocalBackend::open(LocalSettings { read_only: true, ..settings(root.path()) }).unwrap();
    let mut lane = TestLane::on(backend, true);
    let directory = lane.root();
    let file = lane.lookup(directory, b"f").unwrap();
    let who = lane.who.clone();
    let changes = Changes { mode: Some(0), ..SOME };
    assert_eq!(lane.set(&who, file, changes).unwrap_err(), ErrorKind::ReadOnly);
    assert_eq!(&lane.read(file, 0, 10).0[..], b"x");
}

#[test]
fn a_missing_directory_is_named_in_the_error() {
    let error = LocalBackend::open(LocalSettings::new("/no/such/place")).unwrap_err();
    assert!(error.to_string().contains("/no/such/place"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = LocalBackend::open(LocalSettings::new(file.path())).unwrap_err();
    assert!(error.to_string().contains("not a directory"), "{error}");
}
