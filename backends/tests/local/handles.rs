//! What handles promise.

use backends::{ErrorKind, ObjectHandle, Operation};

use crate::lane::TestLane;

#[test]
fn handles_survive_a_restart_and_a_rename() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o644);
    lane.write(file, 0, b"kept");
    let persistent = lane.backend.has_persistent_handles();
    let top = lane.root();
    drop(lane);
    std::fs::rename(root.path().join("f"), root.path().join("g")).unwrap();
    let mut lane = TestLane::buffered(root.path());
    assert_eq!(lane.root(), top);
    if persistent {
        assert_eq!(&lane.read(file, 0, 10).0[..], b"kept");
    }
    assert_eq!(lane.lookup(top, b"g").unwrap(), file);
}

#[test]
fn a_removed_file_is_stale_also_when_its_inode_is_used_again() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o644);
    let id = lane.attributes(file).file_id;
    drop(lane);
    std::fs::remove_file(root.path().join("f")).unwrap();
    let mut lane = TestLane::buffered(root.path());
    // Make files until the number comes again, as it does on most file systems.
    for n in 0..200 {
        let name = format!("new-{n}");
        let new = lane.create(name.as_bytes(), 0o644);
        assert_ne!(new, file);
        if lane.attributes(new).file_id == id {
            break;
        }
    }
    let done = lane.run(Operation::GetAttributes { object: file });
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Stale);
}

#[test]
fn garbage_is_refused_and_harms_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let top = lane.root();
    for len in 0..=44usize {
        for fill in [0u8, 1, 2, 0x7f, 0xff] {
            let Some(object) = ObjectHandle::new(&vec![fill; len]) else { continue };
            if object == top {
                continue;
            }
            let done = lane.run(Operation::GetAttributes { object });
            let kind = done.result.unwrap_err().kind;
            assert!(matches!(kind, ErrorKind::BadHandle | ErrorKind::Stale), "{kind:?} {len}");
        }
    }
    let mut changed = top.as_bytes().to_vec();
    *changed.last_mut().unwrap() ^= 0x55;
    let object = ObjectHandle::new(&changed).unwrap();
    assert!(lane.run(Operation::GetAttributes { object }).result.is_err());
    lane.attributes(top);
}

#[test]
fn a_removed_directory_goes_stale() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.make_directory(b"d", 0o755);
    std::fs::remove_dir(root.path().join("d")).unwrap();
    assert_eq!(lane.lookup(directory, b"x").unwrap_err(), ErrorKind::NotFound);
    drop(lane);
    let mut lane = TestLane::buffered(root.path());
    assert_eq!(lane.lookup(directory, b"x").unwrap_err(), ErrorKind::Stale);
}
