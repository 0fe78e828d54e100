//! Results word by word, made by hand from RFC 1813.

use bytes::Bytes;

use super::driver::{Server, at, read_args, sattr_mode, write_args};

/// The words of a handle as `nfs_fh3`.
fn handle_words(handle: &[u8]) -> Vec<u32> {
    let mut bytes = (handle.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(handle);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    super::driver::words(&bytes)
}

/// `fattr3` of an object as GETATTR gives it.
fn fattr(server: &mut Server, object: &[u8]) -> Vec<u32> {
    let words = server.nfs(1, |w| w.opaque(object)).words();
    assert_eq!((words[0], words.len()), (0, 22));
    words[1..].to_vec()
}

/// `pre_op_attr` of an object now.
fn pre(server: &mut Server, object: &[u8]) -> Vec<u32> {
    let a = fattr(server, object);
    vec![1, a[5], a[6], a[17], a[18], a[19], a[20]]
}

fn post(attributes: &[u32]) -> Vec<u32> {
    [&[1], attributes].concat()
}

fn present(server: &mut Server, object: &[u8]) -> Vec<u32> {
    post(&fattr(server, object))
}

#[test]
fn getattr_of_a_directory_and_a_file() {
    let mut server = Server::new();
    let root = server.root(1);
    let a = fattr(&mut server, &root);
    assert_eq!(a[..5], [2, 0o1777, 2, 0, 0]);
    assert_eq!(a[11..13], [0x4151_5544, 1], "fsid from the export's id");
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.write(&file, 0, b"12345"), 0);
    let a = fattr(&mut server, &file);
    assert_eq!(a[..7], [1, 0o644, 1, 1000, 1000, 0, 5]);
    assert_eq!(a[9..11], [0, 0], "no device");
    assert_eq!(a[15], 1_000_000, "seconds of the test's clock");
}

#[test]
fn lookup_and_access_and_read() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    server.write(&file, 0, b"12345");
    let looked_up = server.nfs(3, |w| at(w, &root, b"f")).words();
    let (f, r) = (present(&mut server, &file), present(&mut server, &root));
    assert_eq!(looked_up, [&[0], &handle_words(&file)[..], &f, &r].concat());
    let missing = server.nfs(3, |w| at(w, &root, b"g")).words();
    assert_eq!(missing, [&[2], &r[..]].concat(), "directory attributes also on NOENT");
    let access = server.nfs(4, |w| {
        w.opaque(&file);
        w.u32(0x1f);
    });
    assert_eq!(access.words(), [&[0], &f[..], &[0x0d]].concat());
    let read = server.nfs(6, |w| read_args(w, &file, 1, 3)).words();
    let f = present(&mut server, &file);
    assert_eq!(read, [&[0], &f[..], &[3, 0, 3, 0x3233_3400]].concat());
}

#[test]
fn write_and_commit_and_setattr() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    let before = pre(&mut server, &file);
    let written = server.nfs(7, |w| write_args(w, &file, 0, b"12345")).words();
    let after = present(&mut server, &file);
    let n = written.len() - 2;
    assert_eq!(written[..n], [&[0], &before[..], &after, &[5, 0]].concat());
    let committed = server.nfs(21, |w| read_args(w, &file, 0, 0)).words();
    assert_eq!(committed[0], 0);
    assert_eq!(committed[committed.len() - 2..], written[n..], "one verifier");
    let before = pre(&mut server, &file);
    let set = server.nfs(2, |w| {
        w.opaque(&file);
        sattr_mode(w, 0o600);
        w.u32(0);
    });
    let after = present(&mut server, &file);
    assert_eq!(after[2], 0o600);
    assert_eq!(set.words(), [&[0], &before[..], &after].concat());
}

#[test]
fn creations_give_handle_attributes_and_wcc() {
    let mut server = Server::new();
    let root = server.root(1);
    for (procedure, name) in [(8, b"file"), (9, b"dirs"), (10, b"link"), (11, b"node")] {
        let before = pre(&mut server, &root);
        let results = server.nfs(procedure, |w| {
            at(w, &root, name);
            match procedure {
                8 => w.u32(1),
                11 => w.u32(6),
                _ => {}
            }
            sattr_mode(w, 0o700);
            if procedure == 10 {
                w.payload(Bytes::from_static(b"target"));
            }
        });
        let object = server.lookup(&root, name).unwrap();
        let handle = handle_words(&object);
        let (new, after) = (present(&mut server, &object), present(&mut server, &root));
        let expected = [&[0, 1], &handle[..], &new, &before, &after].concat();
        assert_eq!(results.words(), expected, "procedure {procedure}");
        assert_eq!(new[1], [1, 2, 5, 6][procedure as usize - 8], "type");
    }
}

#[test]
fn readlink_and_readdir() {
    let mut server = Server::new();
    let root = server.root(1);
    let made = server.nfs(10, |w| {
        at(w, &root, b"link");
        sattr_mode(w, 0o777);
        w.payload(Bytes::from_static(b"abcde"));
    });
    let link = made.created().unwrap();
    let target = server.nfs(5, |w| w.opaque(&link)).words();
    let l = present(&mut server, &link);
    assert_eq!(target, [&[0], &l[..], &[5, 0x6162_6364, 0x6500_0000]].concat());
    let listing = server.nfs(16, |w| {
        w.opaque(&root);
        w.u64(0);
        w.u64(0);
        w.u32(4096);
    });
    let words = listing.words();
    let r = present(&mut server, &root);
    assert_eq!(words[..25], [&[0], &r[..], &[0, 0]].concat());
    // ".", "..", "link": value_follows, file id, name, cookie.
    let root_id = [r[14], r[15]];
    assert_eq!(words[25..30], [1, root_id[0], root_id[1], 1, 0x2e00_0000]);
    assert_eq!(words[32..37], [1, root_id[0], root_id[1], 2, 0x2e2e_0000]);
    assert_eq!(words[39..44], [1, l[14], l[15], 4, u32::from_be_bytes(*b"link")]);
    assert_eq!(words[46..], [0, 1], "end of the list and of the directory");
}

#[test]
fn fsinfo_fsstat_pathconf() {
    let mut server = Server::new();
    let root = server.root(1);
    let r = present(&mut server, &root);
    let info = server.nfs(19, |w| w.opaque(&root)).words();
    assert_eq!(info[..23], [&[0], &r[..]].concat());
    let (mib, page) = (1 << 20, 4096);
    assert_eq!(info[23..30], [mib, mib, page, mib, mib, page, 64 << 10]);
    assert!(u64::from(info[30]) << 32 | u64::from(info[31]) <= i64::MAX as u64);
    assert_eq!(info[32..], [0, 1, 0x1b], "granularity and properties");
    let stat = server.nfs(18, |w| w.opaque(&root)).words();
    assert_eq!(stat.len(), 1 + 22 + 12 + 1);
    assert_eq!(u64::from(stat[23]) << 32 | u64::from(stat[24]), 1 << 30);
    assert_eq!(stat.last(), Some(&0));
    let conf = server.nfs(20, |w| w.opaque(&root)).words();
    assert_eq!(conf[24..], [255, 1, 1, 0, 1]);
    assert_ne!(conf[23], 0, "some links are allowed");
}
