//! Reads without buffer memory.

use buffers::Pool;

use super::driver::{Gated, NFS, Results, Server, read_args, settings, table};

#[test]
fn reads_wait_in_order_and_never_fail() {
    let backend = Gated::new();
    let mut server = Server::serving(vec![(settings(1, "/data"), backend.clone())]);
    let pool = Pool::standalone(8 << 20);
    let (exports, shared) = (server.exports.clone(), server.shared.clone());
    server = Server::lane(exports, shared, pool);
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.write(&file, 0, b"data"), 0);
    let total = server.pool.stats().total[3];
    backend.open(false);
    let tickets: Vec<_> = (0..3 * total)
        .map(|_| {
            let message = server.message(NFS, 3, 6, |w| read_args(w, &file, 0, 1 << 20));
            let (ticket, reply) = server.hand_over(message);
            assert!(reply.is_none());
            ticket
        })
        .collect();
    assert_eq!(server.shared.metrics.starved_reads.get(), 2 * total as u64);
    assert!(server.turn().is_empty());
    // Other calls go on meanwhile.
    backend.open(true);
    let mut got = Vec::new();
    for _ in 0..4 {
        // Each turn's replies are dropped, as if sent, and their memory comes back.
        for (ticket, reply) in server.turn() {
            assert_eq!(Results::of(reply).data(), (b"data".to_vec(), true));
            got.push(ticket);
        }
    }
    assert_eq!(got, tickets);
    assert_eq!(server.pool.stats().free, server.pool.stats().total);
    assert_eq!(server.lane.in_flight(), 0);
}

#[test]
fn bug_a_waiting_read_went_to_the_export_that_a_reload_put_in_its_place() {
    let (first, second) = (Gated::new(), Gated::new());
    let mut server = Server::serving(vec![(settings(1, "/first"), first.clone())]);
    let (exports, shared) = (server.exports.clone(), server.shared.clone());
    server = Server::lane(exports, shared, Pool::standalone(8 << 20));
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    assert_eq!(server.write(&file, 0, b"first"), 0);
    // Another client of the lane has all the memory.
    let pool = server.pool.clone();
    let taken: Vec<_> = std::iter::from_fn(|| pool.take(1 << 20)).collect();
    let message = server.message(NFS, 3, 6, |w| read_args(w, &file, 0, 1 << 20));
    let (ticket, reply) = server.hand_over(message);
    assert!(reply.is_none() && server.turn().is_empty());
    server.exports.replace(table(vec![(settings(2, "/second"), second.clone())])).unwrap();
    assert!(server.turn().is_empty());
    drop(taken);
    let mut replies = server.turn();
    replies.extend(server.turn());
    assert_eq!((first.executed("read"), second.executed("read")), (1, 0));
    assert_eq!(replies.len(), 1);
    let (answered, reply) = replies.remove(0);
    assert_eq!(answered, ticket);
    assert_eq!(Results::of(reply).data(), (b"first".to_vec(), true));
    assert_eq!(server.lane.in_flight(), 0);
    // The lane has let go of the first export.
    assert_eq!(std::sync::Arc::strong_count(&first), 1);
}
