//! Reads without buffer memory.

use buffers::Pool;

use super::driver::{Gated, NFS, Results, Server, read_args, settings};

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
