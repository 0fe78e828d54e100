//! READDIR.

use std::{collections::HashSet, os::unix::ffi::OsStrExt};

use backends::ErrorKind;

use crate::lane::TestLane;

#[test]
fn dots_are_listed_and_the_root_is_its_own_parent() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let top = lane.root();
    let (entries, end) = lane.page(top, 0, true, 10_000).unwrap();
    assert!(end);
    let id = lane.attributes(top).file_id;
    let find = |name: &[u8]| entries.iter().find(|entry| &entry.name[..] == name).unwrap();
    assert_eq!((find(b".").file_id, find(b"..").file_id), (id, id));
    assert_eq!(find(b"..").object.unwrap().0, top);
    let directory = lane.make_directory(b"d", 0o755);
    let (entries, _) = lane.page(directory, 0, false, 10_000).unwrap();
    let parent = entries.iter().find(|entry| &entry.name[..] == b"..").unwrap();
    assert_eq!(parent.file_id, id);
    assert!(entries.iter().all(|entry| entry.cookie > 2 && entry.object.is_none()));
}

#[test]
fn plus_gives_the_handles_that_lookup_gives() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let top = lane.root();
    let file = lane.create(b"\xffodd", 0o644);
    let directory = lane.make_directory(b"d", 0o755);
    let (entries, _) = lane.page(top, 0, true, 10_000).unwrap();
    for (name, handle) in [(&b"\xffodd"[..], file), (b"d", directory)] {
        let entry = entries.iter().find(|entry| &entry.name[..] == name).unwrap();
        let (object, attr) = entry.object.unwrap();
        assert_eq!(object, handle);
        assert_eq!(attr.file_id, entry.file_id);
        assert_eq!(lane.attributes(object), attr);
    }
}

#[test]
fn five_thousand_entries_while_others_are_removed() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..5_000 {
        std::fs::write(root.path().join(format!("entry-{n:05}")), b"").unwrap();
    }
    let mut lane = TestLane::buffered(root.path());
    let top = lane.root();
    let mut seen = HashSet::new();
    let mut removed = HashSet::new();
    let mut cookie = 0;
    loop {
        let (entries, end) = lane.page(top, cookie, false, 4_000).unwrap();
        assert!(!entries.is_empty() || end);
        for entry in &entries {
            assert!(seen.insert(entry.name.clone()), "twice: {:?}", entry.name);
        }
        // What has been listed is removed, as `rm -r` does; the rest must still come.
        for entry in entries.iter().filter(|entry| entry.name.starts_with(b"entry")) {
            let name = std::ffi::OsStr::from_bytes(&entry.name);
            std::fs::remove_file(root.path().join(name)).unwrap();
            removed.insert(entry.name.clone());
        }
        if end {
            break;
        }
        cookie = entries.last().unwrap().cookie;
    }
    assert_eq!(removed.len(), 5_000);
    assert_eq!(seen.len(), 5_002);
}

#[test]
fn cookies_work_in_another_run() {
    let root = tempfile::tempdir().unwrap();
    for n in 0..300 {
        std::fs::write(root.path().join(format!("entry-{n:05}")), b"").unwrap();
    }
    let mut first = TestLane::buffered(root.path());
    let top = first.root();
    let (head, end) = first.page(top, 0, false, 3_000).unwrap();
    assert!(!end);
    let cookie = head.last().unwrap().cookie;
    let (tail, end) = first.page(top, cookie, false, 1 << 20).unwrap();
    assert!(end);
    assert_eq!(head.len() + tail.len(), 302);
    drop(first);
    let mut second = TestLane::buffered(root.path());
    let top = second.root();
    assert_eq!(second.page(top, cookie, false, 1 << 20).unwrap().0, tail);
}

#[test]
fn limits_of_a_page() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let top = lane.root();
    for bytes in [0, 1, 24] {
        assert_eq!(lane.page(top, 0, false, bytes).unwrap_err(), ErrorKind::TooSmall);
    }
    let (entries, end) = lane.page(top, 0, false, 24 + 2).unwrap();
    assert!(entries.len() == 1 && !end);
    for cookie in [1, 2] {
        assert_eq!(lane.page(top, cookie, false, 1000).unwrap_err(), ErrorKind::BadCookie);
    }
    let file = lane.create(b"f", 0o644);
    assert_eq!(lane.page(file, 0, false, 1000).unwrap_err(), ErrorKind::NotDirectory);
}
