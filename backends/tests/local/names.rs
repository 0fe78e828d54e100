//! LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, os::unix::fs::MetadataExt};

use backends::{
    Completion, ErrorKind, FileKind, ObjectHandle, Operation, Outcome,
    attr::{Changes, SetTime, Timestamp},
    local::{LocalBackend, LocalSettings},
    op::{CreateHow, NodeKind},
};
use bytes::Bytes;

use crate::lane::{TestLane, settings};

fn mode(mode: u32) -> Changes {
    Changes { mode: Some(mode), ..Changes::default() }
}

fn name(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(name)
}

fn created(done: Completion) -> ObjectHandle {
    match done.result {
        Ok(Outcome::Created { object, attributes }) => {
            assert!(attributes.is_some());
            object
        }
        other => panic!("{other:?}"),
    }
}

fn kind(done: Completion) -> ErrorKind {
    done.result.unwrap_err().kind
}

#[test]
fn names_are_bytes() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let odd: &[u8] = b"\xff\xfe not UTF-8 \x80\n";
    let file = lane.create(odd, 0o644);
    let directory = lane.root();
    assert_eq!(lane.lookup(directory, odd).unwrap(), file);
    assert!(root.path().join(OsStr::from_bytes(odd)).exists());
    let long = [b'n'; 255];
    lane.create(&long, 0o644);
    assert!(lane.lookup(directory, &long).is_ok());
    assert_eq!(lane.lookup(directory, &[b'n'; 256]), Err(ErrorKind::NameTooLong));
    assert_eq!(lane.lookup(directory, b"none"), Err(ErrorKind::NotFound));
    assert_eq!(lane.lookup(file, b"x"), Err(ErrorKind::NotDirectory));
}

#[test]
fn lookup_gives_the_directory_also_when_it_fails() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let done = lane.run(Operation::Lookup { directory: lane.root(), name: name(b"none") });
    assert_eq!(done.first.after.unwrap().kind, FileKind::Directory);
    assert_eq!(kind(done), ErrorKind::NotFound);
}

#[test]
fn dots_stay_inside_the_export() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("export");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    let mut lane = TestLane::buffered(&root);
    let top = lane.root();
    assert_eq!(lane.lookup(top, b"..").unwrap(), top);
    assert_eq!(lane.lookup(top, b".").unwrap(), top);
    let a = lane.lookup(top, b"a").unwrap();
    let b = lane.lookup(a, b"b").unwrap();
    assert_eq!(lane.lookup(b, b"..").unwrap(), a);
    assert_eq!(lane.lookup(a, b"..").unwrap(), top);
    // Moved out of the export under our feet: its parent is none of the client's business.
    std::fs::rename(root.join("a/b"), outer.path().join("b")).unwrap();
    assert_eq!(lane.lookup(b, b"..").unwrap_err(), ErrorKind::Access);
}

#[test]
fn links_are_not_followed() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("export");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(outer.path().join("secret"), b"secret").unwrap();
    let mut lane = TestLane::buffered(&root);
    let directory = lane.root();
    let made = lane.run(Operation::MakeSymlink {
        directory,
        name: name(b"l"),
        target: name(b"../secret"),
        changes: Changes::default(),
    });
    let link = created(made);
    assert_eq!(lane.lookup(directory, b"l").unwrap(), link);
    assert_eq!(lane.attributes(link).kind, FileKind::Symlink);
    let done = lane.run(Operation::ReadLink { object: link });
    let Ok(Outcome::LinkTarget { target }) = done.result else { panic!("{done:?}") };
    assert_eq!(&target[..], b"../secret");
    assert_eq!(lane.lookup(link, b"x"), Err(ErrorKind::NotDirectory));
    let who = lane.who.clone();
    for how in [CreateHow::Unchecked(mode(0o644)), CreateHow::Exclusive([1; 8])] {
        assert_eq!(lane.try_create(&who, directory, b"l", how), Err(ErrorKind::Exists));
    }
    assert_eq!(std::fs::read(outer.path().join("secret")).unwrap(), b"secret");
    let file = lane.create(b"f", 0o644);
    assert_eq!(kind(lane.run(Operation::ReadLink { object: file })), ErrorKind::Invalid);
}

#[test]
fn create_in_its_three_ways() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let (who, directory) = (lane.who.clone(), lane.root());
    let file = lane.create(b"f", 0o640);
    lane.write(file, 0, b"12345");
    let guarded = CreateHow::Guarded(mode(0o777));
    assert_eq!(lane.try_create(&who, directory, b"f", guarded), Err(ErrorKind::Exists));
    // The mode of an existing file stays, only the size is set.
    let open = CreateHow::Unchecked(mode(0o777));
    assert_eq!(lane.try_create(&who, directory, b"f", open).unwrap(), file);
    assert_eq!((lane.attributes(file).mode, lane.attributes(file).size), (0o640, 5));
    let cut = CreateHow::Unchecked(Changes { size: Some(0), ..mode(0o777) });
    assert_eq!(lane.try_create(&who, directory, b"f", cut).unwrap(), file);
    assert_eq!((lane.attributes(file).mode, lane.attributes(file).size), (0o640, 0));
    lane.make_directory(b"d", 0o755);
    assert_eq!(lane.try_create(&who, directory, b"d", open), Err(ErrorKind::Exists));
}

#[test]
fn a_new_file_gets_times_and_size() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let (who, directory) = (lane.who.clone(), lane.root());
    let time = Timestamp { seconds: 5, nanos: 6 };
    let changes = Changes { size: Some(77), modified: SetTime::To(time), ..mode(0o1755) };
    let file = lane.try_create(&who, directory, b"f", CreateHow::Guarded(changes)).unwrap();
    let attr = lane.attributes(file);
    assert_eq!((attr.size, attr.modified, attr.mode), (77, time, 0o1755));
}

#[test]
fn an_exclusive_create_can_be_repeated_after_a_restart() {
    for place in ["/tmp", "/dev/shm"] {
        let Ok(root) = tempfile::tempdir_in(place) else { continue };
        let verifier = [0xff, 0x80, 0, 1, 0xfe, 0x7f, 2, 0x81];
        let other = [0xff, 0x80, 0, 1, 0xfe, 0x7f, 2, 0x80];
        let mut lane = TestLane::buffered(root.path());
        let (who, directory) = (lane.who.clone(), lane.root());
        let exclusive = CreateHow::Exclusive(verifier);
        let file = lane.try_create(&who, directory, b"f", exclusive).unwrap();
        assert_eq!(lane.try_create(&who, directory, b"f", exclusive).unwrap(), file);
        drop(lane);
        let mut lane = TestLane::buffered(root.path());
        let directory = lane.root();
        let again = lane.try_create(&who, directory, b"f", exclusive).unwrap();
        assert_eq!(again, file);
        let foreign = CreateHow::Exclusive(other);
        assert_eq!(lane.try_create(&who, directory, b"f", foreign), Err(ErrorKind::Exists));
        // The client's next step; the file must still be able to grow.
        let changes = Changes { accessed: SetTime::Now, modified: SetTime::Now, ..mode(0o644) };
        lane.set(&who, again, changes).unwrap();
        lane.write(again, 0, b"grows");
        assert_eq!(lane.attributes(again).size, 5);
    }
}

#[test]
fn directories_come_and_go() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.root();
    let d = lane.make_directory(b"d", 0o2771);
    assert_eq!(lane.attributes(d).mode, 0o2771);
    let again = Operation::MakeDirectory { directory, name: name(b"d"), changes: mode(0o700) };
    assert_eq!(kind(lane.run(again)), ErrorKind::Exists);
    lane.create(b"f", 0o644);
    let remove = |n: &[u8]| Operation::Remove { directory, name: name(n) };
    let remove_directory = |n: &[u8]| Operation::RemoveDirectory { directory, name: name(n) };
    assert_eq!(kind(lane.run(remove(b"d"))), ErrorKind::IsDirectory);
    assert_eq!(kind(lane.run(remove_directory(b"f"))), ErrorKind::NotDirectory);
    std::fs::write(root.path().join("d/x"), b"").unwrap();
    assert_eq!(kind(lane.run(remove_directory(b"d"))), ErrorKind::NotEmpty);
    std::fs::remove_file(root.path().join("d/x")).unwrap();
    let done = lane.run(remove_directory(b"d"));
    done.result.unwrap();
    let (before, after) = (done.first.before.unwrap(), done.first.after.unwrap());
    assert!(after.changed >= before.changed);
    lane.run(remove(b"f")).result.unwrap();
    assert_eq!(kind(lane.run(remove(b"f"))), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn attributes_before_and_after_chain_from_operation_to_operation() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.root();
    let mut last = lane.attributes(directory);
    for n in 0..20u8 {
        let how = CreateHow::Guarded(mode(0o600));
        let done = lane.run(Operation::Create { directory, name: name(&[b'a' + n]), how });
        assert_eq!(done.first.before.unwrap(), (&last).into());
        last = done.first.after.unwrap();
    }
    let how = CreateHow::Guarded(mode(0o600));
    let failed = lane.run(Operation::Create { directory, name: name(b"a"), how });
    assert_eq!(failed.first.before.unwrap(), (&last).into());
    assert_eq!(failed.first.after.unwrap().changed, last.changed);
}

#[test]
fn nodes_are_made_and_never_opened() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.root();
    for (n, node, wanted) in
        [(&b"p"[..], NodeKind::Fifo, FileKind::Fifo), (b"s", NodeKind::Socket, FileKind::Socket)]
    {
        let made =
            lane.run(Operation::MakeNode { directory, name: name(n), node, changes: mode(0o640) });
        let object = created(made);
        let attr = lane.attributes(object);
        assert_eq!((attr.kind, attr.mode), (wanted, 0o640));
        // Reading a pipe would wait for a writer for ever.
        let who = lane.who.clone();
        assert_eq!(lane.read_as(&who, object, 0, 1).unwrap_err(), ErrorKind::Invalid);
        assert_eq!(lane.commit(object).unwrap_err(), ErrorKind::Invalid);
        let changes = Changes { modified: SetTime::Now, ..mode(0o600) };
        lane.set(&who, object, changes).unwrap();
        assert_eq!(lane.attributes(object).mode, 0o600);
    }
}

#[test]
fn rename_moves_and_replaces() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.root();
    let d = lane.make_directory(b"d", 0o755);
    let file = lane.create(b"a", 0o644);
    let victim = lane.create(b"b", 0o644);
    let rename = |to, from_name: &[u8], to_name: &[u8]| Operation::Rename {
        from: directory,
        from_name: name(from_name),
        to,
        to_name: name(to_name),
    };
    let done = lane.run(rename(directory, b"a", b"b"));
    done.result.unwrap();
    assert_eq!(done.first.before, done.second.before);
    assert_eq!(lane.lookup(directory, b"b").unwrap(), file);
    assert_eq!(lane.attributes(victim).links, 0);
    let done = lane.run(rename(d, b"b", b"c"));
    done.result.unwrap();
    assert_ne!(done.first.after.unwrap().file_id, done.second.after.unwrap().file_id);
    // The handle has moved along.
    assert_eq!(lane.lookup(d, b"c").unwrap(), file);
    assert_eq!(lane.attributes(file).links, 1);
    assert_eq!(kind(lane.run(rename(d, b"none", b"x"))), ErrorKind::NotFound);
    lane.make_directory(b"e", 0o755);
    assert_eq!(kind(lane.run(rename(directory, b"e", b"d"))), ErrorKind::NotEmpty);
    assert_eq!(kind(lane.run(rename(d, b"d", b"inside"))), ErrorKind::Invalid);
    assert_eq!(kind(lane.run(rename(file, b"e", b"x"))), ErrorKind::NotDirectory);
}

#[test]
fn links_count() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.root();
    let object = lane.create(b"a", 0o644);
    let link = |object, n: &[u8]| Operation::Link { object, directory, name: name(n) };
    let done = lane.run(link(object, b"b"));
    done.result.unwrap();
    assert_eq!(done.first.after.unwrap().links, 2);
    assert!(done.second.before.is_some());
    assert_eq!(lane.lookup(directory, b"b").unwrap(), object);
    assert_eq!(kind(lane.run(link(object, b"b"))), ErrorKind::Exists);
    let d = lane.make_directory(b"d", 0o755);
    assert_eq!(kind(lane.run(link(d, b"e"))), ErrorKind::IsDirectory);
    // Renaming one name of an object to another does nothing.
    let same = Operation::Rename {
        from: directory,
        from_name: name(b"a"),
        to: directory,
        to_name: name(b"b"),
    };
    lane.run(same).result.unwrap();
    assert_eq!(lane.attributes(object).links, 2);
    lane.run(Operation::Remove { directory, name: name(b"a") }).result.unwrap();
    assert_eq!(lane.attributes(object).links, 1);
    let ino = std::fs::metadata(root.path().join("b")).unwrap().ino();
    assert_eq!(lane.attributes(object).file_id, ino);
}

#[test]
fn durable_metadata_does_the_same() {
    let root = tempfile::tempdir().unwrap();
    let durable = LocalSettings { metadata_sync: true, ..settings(root.path()) };
    let mut lane = TestLane::on(LocalBackend::open(durable).unwrap(), true);
    let directory = lane.root();
    let file = lane.create(b"a", 0o644);
    lane.make_directory(b"d", 0o755);
    let who = lane.who.clone();
    lane.set(&who, file, mode(0o600)).unwrap();
    let made = lane.run(Operation::MakeSymlink {
        directory,
        name: name(b"l"),
        target: name(b"t"),
        changes: Changes::default(),
    });
    let link = created(made);
    let now = Changes { modified: SetTime::Now, ..Changes::default() };
    lane.set(&who, link, now).unwrap();
    lane.run(Operation::Remove { directory, name: name(b"a") }).result.unwrap();
    let verifier = lane.backend.verifier().sample();
    lane.backend.inject_sync_failure();
    let failed = lane.run(Operation::Remove { directory, name: name(b"l") });
    assert_eq!(kind(failed), ErrorKind::Io);
    assert_ne!(lane.backend.verifier().sample(), verifier);
}
