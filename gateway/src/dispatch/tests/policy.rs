//! Who may do what: exports, handles, squashing, reloads.

use std::sync::Arc;

use backends::Backend;
use rpc_rdma::service::Begun;

use super::driver::{
    Gated, MOUNT, NFS, Results, Server, at, memory, peer, sattr_mode, settings, table, write_args,
};
use crate::{
    exports::{ClientRules, ExportSettings, HandleKey, Rights, Squash},
    lifecycle::logging::tests::logged,
};

#[test]
fn read_only_export() {
    let backend = memory();
    let writable: Arc<dyn Backend> = backend.clone();
    let mut server = Server::serving(vec![
        (settings(1, "/rw"), writable),
        (ExportSettings { read_only: true, ..settings(2, "/ro") }, backend),
    ]);
    let [rw, ro] = [server.root(1), server.root(2)];
    let file = server.create(&rw, b"f").unwrap();
    let file_ro = server.lookup(&ro, b"f").unwrap();
    assert_ne!(file, file_ro);
    assert_eq!(server.read(&file_ro, 0, 10), (vec![], true));
    assert_eq!(server.nfs(7, |w| write_args(w, &file_ro, 0, b"x")).words(), [30, 0, 0]);
    assert_eq!(server.create(&ro, b"g"), Err(30));
    // ROFS comes before anything else that may be wrong.
    assert_eq!(server.create(&ro, b""), Err(30));
    assert_eq!(server.nfs(12, |w| at(w, &ro, b"f")).status(), 30);
    let access = server.nfs(4, |w| {
        w.opaque(&ro);
        w.u32(0x3f);
    });
    assert_eq!(access.words().last(), Some(&0x03));
    assert_eq!(server.nfs(21, |w| super::driver::read_args(w, &file_ro, 0, 0)).status(), 0);
}

/// RENAME/LINK ignored the destination export's policy.
#[test]
fn rename_and_link_across_exports() {
    let mut server = Server::serving(vec![
        (settings(1, "/a"), memory()),
        (settings(2, "/b"), memory()),
        (ExportSettings { read_only: true, ..settings(3, "/c") }, memory()),
        (ExportSettings { clients: ClientRules::default(), ..settings(4, "/d") }, memory()),
    ]);
    let roots: Vec<_> = (1..=4).map(|id| server.root(id)).collect();
    let file = server.create(&roots[0], b"f").unwrap();
    for (to, status) in [(1, 18), (2, 30), (3, 13)] {
        let renamed = server.nfs(14, |w| {
            at(w, &roots[0], b"f");
            at(w, &roots[to], b"g");
        });
        assert_eq!(renamed.words(), [status, 0, 0, 0, 0]);
        let linked = server.nfs(15, |w| {
            w.opaque(&file);
            at(w, &roots[to], b"g");
        });
        assert_eq!(linked.words(), [status, 0, 0, 0]);
    }
}

#[test]
fn handles_that_are_forged_cut_or_of_another_key() {
    let mut server = Server::new();
    let root = server.root(1);
    let mut getattr = |handle: &[u8]| server.nfs(1, |w| w.opaque(handle)).status();
    for position in 0..root.len() {
        let mut forged = root.to_vec();
        forged[position] ^= 1;
        assert_eq!(getattr(&forged), 10001, "byte {position}");
    }
    for len in 0..root.len() {
        assert_eq!(getattr(&root[..len]), 10001, "length {len}");
    }
    assert_eq!(getattr(&[0; 64]), 10001);
    let other =
        HandleKey::new([8; 16]).seal(1, &server.exports.load().by_id(1).unwrap().backend.root());
    assert_eq!(server.nfs(1, |w| w.opaque(other.as_bytes())).status(), 10001);
}

#[test]
fn a_removed_object_is_stale() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.nfs(12, |w| at(w, &root, b"f")).status(), 0);
    assert_eq!(server.nfs(1, |w| w.opaque(&file)).words(), [70]);
    assert_eq!(server.write(&file, 0, b"x"), 70);
}

#[test]
fn squashing() {
    let anonymous = (65534, 65534);
    let cases = [
        (Squash::None, (0, 0), (0, 0)),
        (Squash::Root, (0, 0), anonymous),
        (Squash::Root, (1000, 1001), (1000, 1001)),
        (Squash::All, (1000, 1001), anonymous),
    ];
    for (squash, caller, owner) in cases {
        let mut server =
            Server::serving(vec![(ExportSettings { squash, ..settings(1, "/data") }, memory())]);
        let root = server.root(1);
        server.ids = caller;
        let file = server.create(&root, b"f").unwrap();
        let attributes = server.nfs(1, |w| w.opaque(&file)).words();
        assert_eq!((attributes[4], attributes[5]), owner, "{squash:?} {caller:?}");
    }
}

#[test]
fn clients_are_checked_at_every_call() {
    let rules = ClientRules::new(vec![crate::exports::ClientRule {
        pattern: crate::exports::Pattern::Network(crate::exports::clients::Network::host(
            "10.0.0.1".parse().unwrap(),
        )),
        rights: Rights::ReadWrite,
    }]);
    let backend = memory();
    let mut server =
        Server::serving(vec![(ExportSettings { clients: rules, ..settings(1, "/data") }, backend)]);
    let root = server.root(1);
    assert_eq!(server.nfs(1, |w| w.opaque(&root)).status(), 0);
    server.peer = peer("10.0.0.9:700");
    assert_eq!(server.nfs(1, |w| w.opaque(&root)).words(), [13]);
    assert_eq!(server.mount(1, |w| w.opaque(b"/data")).words(), [13]);
    assert_eq!(server.mount(5, |_| {}).words(), [0]);
    // v4-mapped addresses break export ACL.
    server.peer = peer("[::ffff:10.0.0.1]:700");
    assert_eq!(server.nfs(1, |w| w.opaque(&root)).status(), 0);
}

#[test]
fn a_reload_takes_exports_away_and_brings_new_ones() {
    let gated = Gated::new();
    let kept = memory();
    let mut server = Server::serving(vec![
        (settings(1, "/gone"), gated.clone()),
        (settings(2, "/kept"), kept.clone()),
    ]);
    let [gone, kept_root] = [server.root(1), server.root(2)];
    gated.open(false);
    let message = server.message(NFS, 3, 9, |w| {
        at(w, &gone, b"dir");
        sattr_mode(w, 0o755);
    });
    let (ticket, _) = server.hand_over(message);
    server
        .exports
        .replace(table(vec![(settings(2, "/kept"), kept), (settings(3, "/new"), memory())]))
        .unwrap();
    // Gone at once for new calls; what is under way still finishes.
    assert_eq!(server.nfs(1, |w| w.opaque(&gone)).words(), [70]);
    assert_eq!(server.nfs(1, |w| w.opaque(&kept_root)).status(), 0);
    let new = server.root(3);
    server.create(&new, b"f").unwrap();
    gated.open(true);
    let replies = server.turn();
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].0, ticket);
    assert_eq!(Results::of(replies[0].1.clone()).status(), 0);
    assert_eq!(server.lane.in_flight(), 0);
    // The lane lets go of the backend: only the test holds it.
    assert_eq!(Arc::strong_count(&gated), 1);
}

/// PROG_UNAVAIL replaced by disconnect.
#[test]
fn probes_are_answered_and_null_takes_any_credential() {
    let mut server = Server::new();
    let mut reply = |program, version, procedure| {
        let message = server.message(program, version, procedure, |_| {});
        super::driver::words(&server.exchange(message).head)[5..].to_vec()
    };
    for program in [100_227, 100_021, 400_122, 100_024, 100_000] {
        assert_eq!(reply(program, 3, 0), [1]);
    }
    assert_eq!(reply(100_003, 4, 0), [2, 3, 3]);
    assert_eq!(reply(100_003, 2, 1), [2, 3, 3]);
    assert_eq!(reply(100_003, 3, 22), [3]);
    assert_eq!(reply(100_003, 3, 1), [4], "GETATTR without arguments");
    assert_eq!(reply(100_003, 3, 0), [0]);
    assert_eq!(reply(100_005, 3, 0), [0]);
    let none = [9, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = none.iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    let (_, reply) = server.hand_over(bytes.into());
    assert_eq!(super::driver::words(&reply.unwrap().head), [9, 1, 0, 0, 0, 0]);
}

#[test]
fn a_panic_in_a_backend_is_an_answer() {
    use backends::{Capabilities, Completion, LaneBackend, LaneResources, ObjectHandle, Request};

    #[derive(Debug)]
    struct Broken(Arc<backends::memory::MemoryBackend>);
    impl Backend for Broken {
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }
        fn root(&self) -> ObjectHandle {
            self.0.root()
        }
        fn attach(self: Arc<Self>, _: &LaneResources) -> std::io::Result<Box<dyn LaneBackend>> {
            Ok(Box::new(BrokenLane))
        }
    }
    #[derive(Debug)]
    struct BrokenLane;
    impl LaneBackend for BrokenLane {
        fn submit(&mut self, request: Request) -> Option<Completion> {
            panic!("cannot {}", request.operation.name());
        }
        fn completions(&mut self, _: &mut Vec<Completion>) {}
    }

    let mut server = Server::serving(vec![
        (settings(1, "/broken"), Arc::new(Broken(memory()))),
        (settings(2, "/sound"), memory()),
    ]);
    let [broken, sound] = [server.root(1), server.root(2)];
    assert_eq!(server.nfs(1, |w| w.opaque(&broken)).words(), [10006]);
    assert_eq!(server.mkdir(&broken, b"d"), Err(10006));
    assert!(server.mkdir(&sound, b"d").is_ok());
    assert_eq!(server.lane.in_flight(), 0);
    let message = server.message(NFS, 3, 0, |_| {});
    let call = rpc_rdma::rpc::call::decode(message).unwrap();
    use rpc_rdma::service::{Service, Ticket};
    let begun = server.lane.call(Ticket(u64::MAX), &server.peer, server.budget, call);
    assert!(matches!(begun, Begun::Reply(_)));
}

/// The totals said `calls=0` after a client had probed with NULL.
#[test]
fn every_call_is_counted() {
    let mut server = Server::new();
    let counted = |server: &Server| {
        let metrics = &server.shared.metrics;
        let nfs3: u64 = metrics.by_procedure().map(|(_, calls, _)| calls).sum();
        (nfs3, metrics.mount_calls.get(), metrics.unserved.get())
    };
    let before = counted(&server);
    let calls = [(NFS, 3, 0), (MOUNT, 3, 0), (NFS, 3, 22), (NFS, 4, 0), (100_227, 3, 0)];
    for (program, version, procedure) in calls {
        let message = server.message(program, version, procedure, |_| {});
        server.exchange(message);
    }
    assert_eq!(counted(&server), (before.0 + 1, before.1 + 1, before.2 + 3));
}

/// A client saw "access denied", and the gateway's log said nothing.
#[test]
fn a_refused_mount_is_in_the_log_with_its_reason() {
    for (path, status, reason) in [
        (&b"/d"[..], 13, "mount of /d refused to 10.0.0.1: it is not among the export's clients"),
        (b"/e\n", 2, "mount of /e\\n refused to 10.0.0.1: no export has this path"),
    ] {
        let closed = ExportSettings { clients: ClientRules::default(), ..settings(4, "/d") };
        let mut server = Server::serving(vec![(closed, memory())]);
        server.peer = peer("10.0.0.1:700");
        let log = logged(|| {
            for _ in 0..3 {
                assert_eq!(server.mount(1, |w| w.opaque(path)).status(), status);
            }
        });
        assert!(log.contains("WARN") && log.contains(reason), "{log}");
        assert_eq!(log.lines().count(), 1, "one line a second: {log}");
    }
}
