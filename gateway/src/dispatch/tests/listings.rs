//! READDIR and READDIRPLUS of large directories through small windows.

use std::collections::HashMap;

use rpc_rdma::{service::ReplyBudget, xdr::Reader};

use super::driver::{ROOMY, Results, Server, post_op};

#[derive(Debug, Default)]
struct Page {
    names: Vec<(Vec<u8>, u64)>,
    end: bool,
}

fn decode(results: &Results, plus: bool) -> Result<Page, u32> {
    let mut reader = results.reader();
    let status = reader.u32("status").unwrap();
    let attributes = post_op(&mut reader);
    if status != 0 {
        return Err(status);
    }
    assert!(attributes.is_some());
    assert_eq!(reader.fixed::<8>("verifier"), Ok([0; 8]), "constant verifier");
    let mut page = Page::default();
    while reader.bool("entry follows").unwrap() {
        page.names.push(entry(&mut reader, plus));
    }
    page.end = reader.bool("eof").unwrap();
    assert_eq!(reader.remaining(), 0);
    Ok(page)
}

fn entry(reader: &mut Reader<'_>, plus: bool) -> (Vec<u8>, u64) {
    let file_id = reader.u64("file id").unwrap();
    assert_ne!(file_id, 0);
    let name = reader.opaque(255, "name").unwrap().to_vec();
    let cookie = reader.u64("cookie").unwrap();
    if plus {
        let attributes = post_op(reader).unwrap();
        assert_eq!(u64::from(attributes[13]) << 32 | u64::from(attributes[14]), file_id);
        assert!(reader.bool("handle follows").unwrap());
        assert!(!reader.opaque(64, "handle").unwrap().is_empty());
    }
    (name, cookie)
}

fn page(server: &mut Server, plus: bool, cookie: u64, names: u32, count: u32) -> Result<Page, u32> {
    let root = server.root(1);
    let results = server.nfs(if plus { 17 } else { 16 }, |w| {
        w.opaque(&root);
        w.u64(cookie);
        // Some other verifier than ours: any is taken.
        w.u64(0x1234);
        if plus {
            w.u32(names);
        }
        w.u32(count);
    });
    let body = results.rope.len() - 28;
    assert!(body <= count.max(96) as usize, "{body} bytes for a count of {count}");
    assert!(results.rope.len() <= server.budget.message_bytes_max);
    decode(&results, plus)
}

fn list(server: &mut Server, plus: bool, names: u32, count: u32) -> HashMap<Vec<u8>, usize> {
    let mut seen = HashMap::new();
    let mut cookie = 0;
    loop {
        let page = page(server, plus, cookie, names, count).unwrap();
        assert!(!page.names.is_empty(), "a page without entries before the end");
        for (name, next) in page.names {
            *seen.entry(name).or_insert(0) += 1;
            cookie = next;
        }
        if page.end {
            return seen;
        }
    }
}

fn filled(files: usize) -> Server {
    let mut server = Server::new();
    let root = server.root(1);
    for n in 0..files {
        let name = format!("{}{n}", "x".repeat(n % 40));
        server.create(&root, name.as_bytes()).unwrap();
    }
    server
}

#[test]
fn five_thousand_entries_without_loss_or_duplicate() {
    let mut server = filled(5000);
    let windows = [(false, 0, 4096), (false, 0, 65536), (true, 1024, 4096), (true, 0, 32768)];
    for (plus, names, count) in windows {
        let seen = list(&mut server, plus, names, count);
        assert_eq!(seen.len(), 5002, "with . and ..");
        assert!(seen.values().all(|times| *times == 1));
    }
    // The transport has less room than the client asks for.
    server.budget = ReplyBudget { message_bytes_max: 1024, direct_bytes_max: None };
    for plus in [false, true] {
        let seen = list(&mut server, plus, 0, 1 << 20);
        assert!(seen.len() == 5002 && seen.values().all(|times| *times == 1));
    }
}

/// maxcount below minimum panics (usize underflow); empty page with eof=false loops.
#[test]
fn every_count_gives_entries_or_toosmall() {
    let mut server = filled(3);
    for plus in [false, true] {
        for count in (0..600).chain([u32::MAX - 7, u32::MAX]) {
            match page(&mut server, plus, 0, 1, count) {
                Ok(page) => assert!(!page.names.is_empty()),
                Err(status) => assert_eq!(status, 10005, "count {count}"),
            }
        }
        for message_bytes_max in 0..600 {
            server.budget = ReplyBudget { message_bytes_max, direct_bytes_max: None };
            let root = server.root(1);
            let results = server.nfs(if plus { 17 } else { 16 }, |w| {
                w.opaque(&root);
                w.u64(0);
                w.u64(0);
                if plus {
                    w.u32(0);
                }
                w.u32(4096);
            });
            assert!([0, 10005, 10006].contains(&results.status()), "{message_bytes_max}");
        }
        server.budget = ROOMY;
    }
}

#[test]
fn dircount_bounds_the_names() {
    let mut server = filled(100);
    let all = page(&mut server, true, 0, 0, 65536).unwrap().names.len();
    let few = page(&mut server, true, 0, 200, 65536).unwrap().names.len();
    assert!(all > 50 && (1..8).contains(&few), "{all} {few}");
    // A hint: the first entry is given however small it is.
    assert_eq!(page(&mut server, true, 0, 1, 65536).unwrap().names.len(), 1);
}

/// Entry missed or duplicated when unlinking during listing; mtime cookie verifier => BAD_COOKIE during
/// rm -r.
#[test]
fn removing_while_listing_misses_nothing() {
    let mut server = filled(300);
    let root = server.root(1);
    let mut removed = 0;
    let mut cookie = 0;
    loop {
        let page = page(&mut server, false, cookie, 0, 512).unwrap();
        for (name, next) in page.names {
            cookie = next;
            if name != b"." && name != b".." {
                assert_eq!(server.nfs(12, |w| super::driver::at(w, &root, &name)).status(), 0);
                removed += 1;
            }
        }
        if page.end {
            break;
        }
    }
    assert_eq!(removed, 300);
    assert_eq!(list(&mut server, false, 0, 4096).len(), 2);
}

#[test]
fn not_a_directory() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    let results = server.nfs(16, |w| {
        w.opaque(&file);
        w.u64(0);
        w.u64(0);
        w.u32(4096);
    });
    assert_eq!(results.status(), 20);
}
