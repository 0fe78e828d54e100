//! The replies, shared by all lanes.
//!
//! A repeated call finds its first instance either done, and gets the same results again, or still being
//! carried out, and then waits for them: every call is answered, because a client over RDMA counts on one
//! message for each credit. What is kept are the results as XDR, never a transport's framing of them; so a
//! call that is repeated over another transport, or with other chunks, is answered in the new form.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rpc_rdma::{
    rpc::Call,
    service::{Peer, Ticket},
};

use super::{Key, KeyHasher};
use crate::dispatch::{inbox::Inbox, shared::Limits};

/// Longest results that are kept, in bytes. Those of all procedures concerned are far shorter.
pub const REPLY_BYTES_MAX: usize = 4 << 10;
/// How long replies are kept at least, unless there are too many.
pub const LIFETIME_MIN: Duration = Duration::from_secs(120);
/// Most repetitions of one call that wait for it.
pub const WAITERS_MAX: usize = 8;
const SHARDS: usize = 16;
/// What an entry takes besides its results, roughly.
const ENTRY_BYTES: usize = 256;

/// A repeated call that waits for the first.
#[derive(Debug, Clone)]
pub struct Waiter {
    /// Inbox of its lane.
    pub inbox: Arc<Inbox>,
    /// Its mark.
    pub ticket: Ticket,
}

/// What to do with a call.
#[derive(Debug)]
pub enum Admission {
    /// Carry it out, and report with [`ReplyCache::finish`].
    New,
    /// Carry it out; there is no room to remember it.
    Uncached,
    /// It waits for its first instance. If that made too many wait, the longest waiting is handed back and
    /// must be answered.
    Joined(Option<Waiter>),
    /// Answer with these results.
    Replay(Bytes),
}

#[derive(Debug)]
enum State {
    Running(VecDeque<Waiter>),
    Done { body: Bytes, at: Instant, order: u64 },
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Key, State>,
    by_use: BTreeMap<u64, Key>,
    next_order: u64,
    bytes: usize,
}

/// The cache.
#[derive(Debug)]
pub struct ReplyCache {
    hasher: KeyHasher,
    shards: [Mutex<Shard>; SHARDS],
    shard_entries_max: usize,
    shard_bytes_max: usize,
    lifetime: Duration,
}

impl ReplyCache {
    /// An empty cache.
    pub fn new(limits: &Limits) -> Self {
        Self {
            hasher: KeyHasher::default(),
            shards: std::array::from_fn(|_| Mutex::default()),
            shard_entries_max: limits.cached_replies_max.div_ceil(SHARDS),
            shard_bytes_max: limits.cached_reply_bytes_max.div_ceil(SHARDS),
            lifetime: limits.cached_reply_lifetime.max(LIFETIME_MIN),
        }
    }

    /// The key of a call.
    pub fn key(&self, peer: &Peer, call: &Call) -> Key {
        self.hasher.key(peer, call)
    }

    /// A call has come. `waiter` answers it if its first instance is still being carried out.
    pub fn begin(&self, key: Key, waiter: Waiter, now: Instant) -> Admission {
        let mut shard = self.shard(&key);
        shard.expire(now, self.lifetime);
        if let Some(state) = shard.entries.get_mut(&key) {
            match state {
                State::Running(waiters) => {
                    waiters.push_back(waiter);
                    let surplus = waiters.len() > WAITERS_MAX;
                    return Admission::Joined(if surplus { waiters.pop_front() } else { None });
                }
                State::Done { body, .. } => {
                    let body = body.clone();
                    shard.touch(&key);
                    return Admission::Replay(body);
                }
            }
        }
        shard.make_room(self.shard_entries_max, self.shard_bytes_max);
        if shard.entries.len() >= self.shard_entries_max {
            return Admission::Uncached;
        }
        shard.entries.insert(key, State::Running(VecDeque::new()));
        Admission::New
    }

    /// A call has been carried out, with these results. `None`: it was not, so that the next instance is to
    /// be carried out. Returns who waits for the results.
    pub fn finish(&self, key: Key, body: Option<Bytes>, now: Instant) -> VecDeque<Waiter> {
        let mut shard = self.shard(&key);
        let waiters = match shard.entries.remove(&key) {
            Some(State::Running(waiters)) => waiters,
            Some(done @ State::Done { .. }) => {
                debug_assert!(false, "a call finishes once");
                shard.entries.insert(key, done);
                return VecDeque::new();
            }
            None => return VecDeque::new(),
        };
        if let Some(body) = body.filter(|body| body.len() <= REPLY_BYTES_MAX) {
            shard.insert_done(key, body, now);
            shard.make_room(usize::MAX, self.shard_bytes_max);
        }
        waiters
    }

    /// Replies that are kept or awaited.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the kept replies take.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes).sum()
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[(key.spread() % SHARDS as u64) as usize])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    fn insert_done(&mut self, key: Key, body: Bytes, at: Instant) {
        let order = self.take_order(key);
        self.bytes += body.len() + ENTRY_BYTES;
        self.entries.insert(key, State::Done { body, at, order });
    }

    fn take_order(&mut self, key: Key) -> u64 {
        let order = self.next_order;
        self.next_order += 1;
        self.by_use.insert(order, key);
        order
    }

    /// Make it the last to go.
    fn touch(&mut self, key: &Key) {
        let new = self.take_order(*key);
        if let Some(State::Done { order, .. }) = self.entries.get_mut(key) {
            self.by_use.remove(order);
            *order = new;
        }
    }

    /// Remove the longest unused replies while they are too old.
    fn expire(&mut self, now: Instant, lifetime: Duration) {
        while let Some(key) = self.by_use.first_key_value().map(|(_, key)| *key) {
            let Some(State::Done { at, .. }) = self.entries.get(&key) else { break };
            if now.saturating_duration_since(*at) <= lifetime {
                break;
            }
            self.evict_first();
        }
    }

    /// Remove the longest unused replies until there is room for one more.
    fn make_room(&mut self, entries_max: usize, bytes_max: usize) {
        while (self.entries.len() >= entries_max || self.bytes > bytes_max) && self.evict_first() {}
    }

    fn evict_first(&mut self) -> bool {
        let Some((_, key)) = self.by_use.pop_first() else { return false };
        if let Some(State::Done { body, .. }) = self.entries.remove(&key) {
            self.bytes -= body.len() + ENTRY_BYTES;
        }
        true
    }
}
