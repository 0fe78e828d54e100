//! Whole flows of a client.

use bytes::Bytes;
use rpc_rdma::service::ReplyBudget;

use super::driver::{Server, at, post_op, read_args, sattr_mode, wcc, write_args};

#[test]
fn mount_create_write_commit_read() {
    let mut server = Server::new();
    let root = server.root(1);
    let results = server.mount(1, |w| w.opaque(b"/data/"));
    let mut reader = results.reader();
    assert_eq!(reader.u32("status"), Ok(0));
    assert_eq!(reader.opaque(64, "handle").unwrap(), &root[..]);
    assert_eq!((reader.u32("flavors"), reader.u32("AUTH_SYS")), (Ok(1), Ok(1)));
    assert_eq!(reader.remaining(), 0);

    let file = server.create(&root, b"file").unwrap();
    assert_eq!(server.write(&file, 0, b"hello "), 0);
    assert_eq!(server.write(&file, 6, b"world"), 0);
    let verifier_of = |words: Vec<u32>| words[words.len() - 2..].to_vec();
    let written = server.nfs(7, |w| write_args(w, &file, 11, b"!"));
    let committed = server.nfs(21, |w| read_args(w, &file, 0, 0));
    assert_eq!((written.status(), committed.status()), (0, 0));
    assert_eq!(verifier_of(written.words()), verifier_of(committed.words()));
    assert_eq!(server.read(&file, 0, 100), (b"hello world!".to_vec(), true));
    assert_eq!(server.read(&file, 0, 12), (b"hello world!".to_vec(), true));
    assert_eq!(server.read(&file, 0, 11), (b"hello world".to_vec(), false));
    assert_eq!(server.read(&file, 5, 3), (b" wo".to_vec(), false));
    assert_eq!(server.read(&file, 500, 3), (vec![], true));
    assert_eq!(server.lane.in_flight(), 0);
}

#[test]
fn reads_at_the_end_of_the_number_line() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.write(&file, 0, b"data"), 0);
    for offset in [i64::MAX as u64 - 1, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX] {
        assert_eq!(server.read(&file, offset, u32::MAX), (vec![], true), "{offset}");
        assert_eq!(server.write(&file, offset, b"data"), 27, "{offset}");
        let committed = server.nfs(21, |w| read_args(w, &file, offset, u32::MAX));
        assert_eq!(committed.status(), 0, "COMMIT at {offset}");
    }
}

/// WRITE count != data length accepted.
#[test]
fn write_count_must_be_the_length_of_the_data() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    let results = server.nfs(7, |w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(5);
        w.u32(0);
        w.payload(Bytes::from_static(b"four"));
    });
    assert_eq!(results.words(), [22, 0, 0]);
    assert_eq!(server.read(&file, 0, 10), (vec![], true));
}

#[test]
fn a_read_is_cut_to_what_the_client_has_room_for() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.write(&file, 0, &[7; 10_000]), 0);
    server.budget = ReplyBudget { message_bytes_max: 1024, direct_bytes_max: None };
    let (data, eof) = server.read(&file, 0, 10_000);
    assert!(!eof && data.len() > 800 && data.len() % 4 == 0, "{}", data.len());
    server.budget = ReplyBudget { message_bytes_max: 1024, direct_bytes_max: Some(5000) };
    assert_eq!(server.read(&file, 0, 10_000).0.len(), 5000);
    server.budget = ReplyBudget { message_bytes_max: 1024, direct_bytes_max: Some(0) };
    // Not an empty answer, which would be asked again for ever.
    assert_eq!(server.nfs(6, |w| read_args(w, &file, 0, 10)).status(), 10006);
}

#[test]
fn nothing_is_done_when_the_reply_has_no_room() {
    let mut server = Server::new();
    let root = server.root(1);
    server.budget = ReplyBudget { message_bytes_max: 100, direct_bytes_max: None };
    assert_eq!(server.create(&root, b"f"), Err(10006));
    server.budget = ReplyBudget { message_bytes_max: 48, direct_bytes_max: None };
    assert_eq!(server.mount(1, |w| w.opaque(b"/data")).status(), 10006);
    assert!(server.shared.mounts.list().is_empty());
    server.budget = super::driver::ROOMY;
    assert_eq!(server.lookup(&root, b"f"), Err(2));
}

#[test]
fn exclusive_create_and_its_retry() {
    let mut server = Server::new();
    let root = server.root(1);
    let exclusive = |server: &mut Server, verifier: &[u8; 8]| {
        let results = server.nfs(8, |w| {
            at(w, &root, b"x");
            w.u32(2);
            w.fixed(verifier);
        });
        results.created()
    };
    let first = exclusive(&mut server, b"\xff2345678").unwrap();
    assert_eq!(exclusive(&mut server, b"\xff2345678"), Ok(first));
    assert_eq!(exclusive(&mut server, b"\xff2345679"), Err(17));
}

/// UNCHECKED create on existing file applies mode.
#[test]
fn unchecked_create_of_an_existing_file_leaves_its_mode() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.write(&file, 0, b"data"), 0);
    let results = server.nfs(8, |w| {
        at(w, &root, b"f");
        w.u32(0);
        // Mode 0777, size 0.
        for word in [1, 0o777, 0, 0, 1, 0, 0, 0, 0] {
            w.u32(word);
        }
    });
    assert_eq!(results.created(), Ok(file.clone()));
    let attributes = server.nfs(1, |w| w.opaque(&file)).words();
    assert_eq!((attributes[2], attributes[7]), (0o644, 0));
    let guarded = server.nfs(8, |w| {
        at(w, &root, b"f");
        w.u32(1);
        sattr_mode(w, 0o600);
    });
    assert_eq!(guarded.created(), Err(17));
}

#[test]
fn setattr_guard() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    let attributes = server.nfs(1, |w| w.opaque(&file)).words();
    let changed = [attributes[20], attributes[21]];
    let mut guarded = |seconds: u32, nanos: u32| {
        let results = server.nfs(2, |w| {
            w.opaque(&file);
            sattr_mode(w, 0o600);
            w.u32(1);
            w.u32(seconds);
            w.u32(nanos);
        });
        results.status()
    };
    assert_eq!(guarded(changed[0] + 1, changed[1]), 10002);
    assert_eq!(guarded(changed[0], 1_000_000_000), 22);
    assert_eq!(guarded(changed[0], changed[1]), 0);
    assert_eq!(guarded(changed[0], changed[1]), 10002);
}

#[test]
fn rename_link_symlink_mknod_remove() {
    let mut server = Server::new();
    let root = server.root(1);
    let dir = server.mkdir(&root, b"dir").unwrap();
    let file = server.create(&root, b"a").unwrap();
    let renamed = server.nfs(14, |w| {
        at(w, &root, b"a");
        at(w, &dir, b"b");
    });
    let mut reader = renamed.reader();
    assert_eq!(reader.u32("status"), Ok(0));
    assert_eq!((wcc(&mut reader), wcc(&mut reader)), ((true, true), (true, true)));
    assert_eq!(reader.remaining(), 0);
    assert_eq!(server.lookup(&root, b"a"), Err(2));
    assert_eq!(server.lookup(&dir, b"b"), Ok(file.clone()));

    let linked = server.nfs(15, |w| {
        w.opaque(&file);
        at(w, &root, b"hard");
    });
    let mut reader = linked.reader();
    assert_eq!(reader.u32("status"), Ok(0));
    assert_eq!(post_op(&mut reader).unwrap()[2], 2, "two links");
    assert_eq!(wcc(&mut reader), (true, true));
    assert_eq!(server.lookup(&root, b"hard"), Ok(file));

    let link = server.nfs(10, |w| {
        at(w, &root, b"soft");
        sattr_mode(w, 0o777);
        w.payload(Bytes::from_static(b"../\xfftarget"));
    });
    let link = link.created().unwrap();
    let target = server.nfs(5, |w| w.opaque(&link));
    let mut reader = target.reader();
    assert_eq!(reader.u32("status"), Ok(0));
    post_op(&mut reader);
    assert_eq!(&reader.payload(4095, "target").unwrap()[..], b"../\xfftarget");
    assert_eq!(server.nfs(5, |w| w.opaque(&dir)).status(), 22);

    let fifo = server.nfs(11, |w| {
        at(w, &root, b"fifo");
        w.u32(7);
        sattr_mode(w, 0o600);
    });
    assert_eq!(fifo.status(), 0);
    for bad in [0, 1, 2, 5, 8] {
        let results = server.nfs(11, |w| {
            at(w, &root, b"bad");
            w.u32(bad);
        });
        assert_eq!(results.words(), [10007, 0, 0], "type {bad}");
    }

    let mut remove =
        |procedure, name: &[u8]| server.nfs(procedure, |w| at(w, &root, name)).status();
    assert_eq!(remove(13, b"dir"), 66);
    assert_eq!(remove(13, b"fifo"), 20);
    assert!([1, 21].contains(&remove(12, b"dir")));
    assert_eq!((remove(12, b"."), remove(12, b"..")), (22, 17));
    assert_eq!((remove(13, b"."), remove(13, b"")), (22, 22));
    assert_eq!(remove(12, &[b'n'; 256]), 63);
    assert_eq!((remove(12, b"fifo"), remove(12, b"fifo")), (0, 2));
}

#[test]
fn dots() {
    let mut server = Server::new();
    let root = server.root(1);
    let dir = server.mkdir(&root, b"dir").unwrap();
    assert_eq!(server.lookup(&dir, b".."), Ok(root.clone()));
    assert_eq!(server.lookup(&dir, b"."), Ok(dir.clone()));
    // Subtree escape by ".." at the export root.
    assert_eq!(server.lookup(&root, b".."), Ok(root.clone()));
    assert_eq!(server.create(&root, b".."), Err(17));
    assert_eq!(server.mkdir(&root, b"."), Err(17));
    assert_eq!(server.lookup(&root, b"dir/x"), Err(22));
    assert_eq!(server.lookup(&root, b""), Err(22));
}

#[test]
fn access_grants_what_was_asked_and_no_deletion_of_files() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    let mut access = |object: &[u8], mask: u32| {
        let results = server.nfs(4, |w| {
            w.opaque(object);
            w.u32(mask);
        });
        *results.words().last().unwrap()
    };
    assert_eq!(access(&file, u32::MAX), 0x0d);
    assert_eq!(access(&file, 0x01), 0x01);
    assert_eq!(access(&root, u32::MAX), 0x1f);
}

#[test]
fn mount_walks_directories_only() {
    let mut server = Server::new();
    let root = server.root(1);
    let dir = server.mkdir(&root, b"dir").unwrap();
    let sub = server.mkdir(&dir, b"sub").unwrap();
    server.create(&dir, b"file").unwrap();
    let linked = server.nfs(10, |w| {
        at(w, &root, b"soft");
        sattr_mode(w, 0o777);
        w.payload(Bytes::from_static(b"dir"));
    });
    assert_eq!(linked.status(), 0);
    let mut mount = |path: &[u8]| {
        let results = server.mount(1, |w| w.opaque(path));
        let mut reader = results.reader();
        match reader.u32("status").unwrap() {
            0 => Ok(reader.shared(64, "handle").unwrap()),
            status => Err(status),
        }
    };
    assert_eq!(mount(b"/data/dir/sub"), Ok(sub));
    assert_eq!(mount(b"/data//dir/"), Ok(dir));
    assert_eq!(mount(b"/data/dir/file"), Err(20));
    assert_eq!(mount(b"/data/dir/file/x"), Err(20));
    assert_eq!(mount(b"/data/none"), Err(2));
    assert_eq!(mount(b"/else"), Err(2));
    // Symlink followed on the server in MNT path.
    assert_eq!(mount(b"/data/soft"), Err(20));
    assert_eq!(mount(b"/data/.."), Err(13));
    assert_eq!(mount(&[b'/'; 1025]), Err(63));
}

#[test]
fn mounts_are_listed_until_unmounted() {
    let mut server = Server::new();
    server.mount(1, |w| w.opaque(b"/data"));
    let dump = server.mount(2, |_| {});
    let mut reader = dump.reader();
    assert!(reader.bool("follows").unwrap());
    assert_eq!(reader.opaque(255, "client").unwrap(), b"10.0.0.1");
    assert_eq!(reader.opaque(1024, "path").unwrap(), b"/data");
    assert!(!reader.bool("follows").unwrap());
    assert!(server.mount(3, |w| w.opaque(b"/data")).words().is_empty());
    assert_eq!(server.mount(2, |_| {}).words(), [0]);
    server.mount(1, |w| w.opaque(b"/data"));
    assert!(server.mount(4, |_| {}).words().is_empty());
    assert_eq!(server.mount(2, |_| {}).words(), [0]);

    let exports = server.mount(5, |_| {});
    let mut reader = exports.reader();
    assert!(reader.bool("follows").unwrap());
    assert_eq!(reader.opaque(1024, "path").unwrap(), b"/data");
    assert!(reader.bool("group follows").unwrap());
    assert_eq!(reader.opaque(255, "group").unwrap(), b"*");
    assert_eq!((reader.bool("group follows"), reader.bool("follows")), (Ok(false), Ok(false)));
}
