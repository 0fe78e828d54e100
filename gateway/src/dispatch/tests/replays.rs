//! Repeated calls.

use std::sync::Arc;

use buffers::Pool;
use rpc_rdma::{rpc::reply::ACCEPTED_BYTES, service::Transport, xdr::Rope};

use super::driver::{Gated, NFS, Results, Server, at, peer, sattr_mode, settings};

fn remove(server: &mut Server, name: &[u8]) -> Rope {
    let root = server.root(1);
    server.message(NFS, 3, 12, |w| at(w, &root, name))
}

/// v3 REMOVE retransmit returns ENOENT; DRC missed after reconnect because the ephemeral port was part of
/// the key.
#[test]
fn replay_after_reconnect_from_another_port_and_transport() {
    let mut server = Server::new();
    let root = server.root(1);
    server.create(&root, b"f").unwrap();
    let message = remove(&mut server, b"f");
    let first = server.exchange(message.clone());
    assert_eq!(Results::of(first.clone()).status(), 0);
    server.peer = peer("10.0.0.1:999");
    assert_eq!(server.exchange(message.clone()), first);
    server.peer.transport = Transport::Rdma;
    assert_eq!(server.exchange(message.clone()), first);
    assert_eq!(server.shared.metrics.replays.get(), 2);
    // Another client with the same message is no repetition.
    server.peer = peer("10.0.0.2:700");
    assert_eq!(Results::of(server.exchange(message)).status(), 2);
}

/// DRC drops legit new request (xid reuse without checksum).
#[test]
fn a_reused_xid_with_other_arguments_is_a_new_call() {
    let mut server = Server::new();
    let root = server.root(1);
    server.create(&root, b"a").unwrap();
    server.create(&root, b"b").unwrap();
    let first = remove(&mut server, b"a");
    let second = remove(&mut server, b"b");
    let mut reused = second.head.to_vec();
    reused[..4].copy_from_slice(&first.head[..4]);
    assert_eq!(Results::of(server.exchange(first)).status(), 0);
    assert_eq!(Results::of(server.exchange(Rope::inline(reused))).status(), 0);
    assert_eq!(server.lookup(&root, b"b"), Err(2));
}

#[test]
fn a_repetition_while_the_first_is_under_way_gets_the_same_reply_on_its_own_lane() {
    let backend = Gated::new();
    let mut one = Server::serving(vec![(settings(1, "/data"), backend.clone())]);
    let pool = Pool::standalone(8 << 20);
    let mut two = Server::lane(Arc::clone(&one.exports), Arc::clone(&one.shared), pool);
    let root = one.root(1);
    let message = one.message(NFS, 3, 9, |w| {
        at(w, &root, b"dir");
        sattr_mode(w, 0o755);
    });
    backend.open(false);
    let (first, none) = one.hand_over(message.clone());
    assert!(none.is_none());
    let (same_lane, none) = one.hand_over(message.clone());
    assert!(none.is_none());
    let (other_lane, none) = two.hand_over(message.clone());
    assert!(none.is_none());
    assert!(one.turn().is_empty() && two.turn().is_empty());
    backend.open(true);
    let mut replies = one.turn();
    replies.sort_by_key(|(ticket, _)| ticket.0);
    assert_eq!(replies.iter().map(|(t, _)| *t).collect::<Vec<_>>(), [first, same_lane]);
    let others = two.turn();
    assert_eq!(others.len(), 1);
    assert_eq!(others[0].0, other_lane);
    for (_, reply) in replies.iter().chain(&others) {
        assert_eq!(reply, &replies[0].1);
        assert_eq!(Results::of(reply.clone()).status(), 0);
    }
    assert_eq!(backend.executed("mkdir"), 1);
    assert_eq!(two.exchange(message), replies[0].1);
}

#[test]
fn every_repetition_is_answered_even_beyond_the_limit() {
    let backend = Gated::new();
    let mut server = Server::serving(vec![(settings(1, "/data"), backend.clone())]);
    backend.open(false);
    let message = remove(&mut server, b"none");
    let mut tickets: Vec<_> = (0..20).map(|_| server.hand_over(message.clone()).0).collect();
    let mut answered: Vec<_> = server.turn();
    assert_eq!(answered.len(), 20 - 1 - super::super::reply_cache::cache::WAITERS_MAX);
    backend.open(true);
    answered.extend(server.turn());
    answered.extend(server.turn());
    let mut got: Vec<_> = answered.iter().map(|(ticket, _)| *ticket).collect();
    got.sort_by_key(|ticket| ticket.0);
    tickets.sort_by_key(|ticket| ticket.0);
    assert_eq!(got, tickets);
    assert_eq!(backend.executed("remove"), 1);
}

#[test]
fn reads_and_writes_are_not_remembered() {
    let mut server = Server::new();
    let root = server.root(1);
    let file = server.create(&root, b"f").unwrap();
    let before = server.shared.reply_cache.len();
    server.write(&file, 0, b"data");
    server.read(&file, 0, 4);
    server.lookup(&root, b"f").unwrap();
    assert_eq!(server.shared.reply_cache.len(), before);
}

#[test]
fn failures_are_remembered_too() {
    let mut server = Server::new();
    let root = server.root(1);
    let message = remove(&mut server, b"late");
    let first = server.exchange(message.clone());
    assert_eq!(Results::of(first.clone()).status(), 2);
    server.create(&root, b"late").unwrap();
    assert_eq!(server.exchange(message), first);
    assert!(server.lookup(&root, b"late").is_ok());
    assert!(first.head.len() > ACCEPTED_BYTES);
}
