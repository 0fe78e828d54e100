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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use rpc_rdma::{rpc::call, service::Transport, xdr::Writer};

    use super::*;

    const BODY: Bytes = Bytes::from_static(b"\0\0\0\0\0\0\0\0");

    fn cache(entries: usize, bytes: usize) -> ReplyCache {
        ReplyCache::new(&Limits {
            cached_replies_max: entries,
            cached_reply_bytes_max: bytes,
            ..Limits::default()
        })
    }

    fn key(cache: &ReplyCache, xid: u32) -> Key {
        let mut writer = Writer::default();
        // The arguments differ with the xid, so that the keys spread over the shards.
        for word in [xid, 0, 2, 100_003, 3, 12, 0, 0, 0, 0, xid] {
            writer.u32(word);
        }
        let peer = Peer { address: "10.0.0.1:1".parse().unwrap(), transport: Transport::Tcp };
        cache.key(&peer, &call::decode(writer.finish()).unwrap())
    }

    fn waiter(ticket: u64) -> Waiter {
        let inbox = Arc::new(Inbox::new(Waker::noop().clone()));
        Waiter { inbox, ticket: Ticket(ticket) }
    }

    fn is_new(admission: &Admission) -> bool {
        matches!(admission, Admission::New)
    }

    #[test]
    fn entries_and_bytes_are_bounded() {
        let now = Instant::now();
        for (entries, bytes) in [(64, 1 << 20), (1 << 20, 16 << 10)] {
            let cache = cache(entries, bytes);
            for xid in 0..5000 {
                let key = key(&cache, xid);
                assert!(is_new(&cache.begin(key, waiter(1), now)));
                assert!(cache.finish(key, Some(BODY), now).is_empty());
                assert!(cache.len() <= entries && cache.bytes() <= bytes);
            }
            assert!(!cache.is_empty());
        }
    }

    #[test]
    fn running_calls_are_never_forgotten_and_no_room_is_no_failure() {
        let now = Instant::now();
        let cache = cache(SHARDS, 1 << 20);
        let mut running = Vec::new();
        let mut uncached = 0;
        for xid in 0..500 {
            let key = key(&cache, xid);
            match cache.begin(key, waiter(1), now) {
                Admission::New => running.push(key),
                Admission::Uncached => uncached += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(running.len() <= SHARDS && uncached > 0);
        for key in running {
            assert!(matches!(cache.begin(key, waiter(2), now), Admission::Joined(None)));
            assert_eq!(cache.finish(key, Some(BODY), now).len(), 1);
            assert!(
                matches!(cache.begin(key, waiter(3), now), Admission::Replay(body) if body == BODY)
            );
        }
    }

    #[test]
    fn the_longest_unused_goes_first() {
        let now = Instant::now();
        let mut shard = Shard::default();
        let cache = cache(16, 1 << 20);
        let keys: Vec<Key> = (0..3).map(|xid| key(&cache, xid)).collect();
        keys.iter().for_each(|key| shard.insert_done(*key, BODY, now));
        shard.touch(&keys[0]);
        shard.make_room(3, usize::MAX);
        assert!(!shard.entries.contains_key(&keys[1]));
        assert!(shard.entries.contains_key(&keys[0]) && shard.entries.contains_key(&keys[2]));
        assert_eq!((shard.by_use.len(), shard.bytes), (2, 2 * (BODY.len() + ENTRY_BYTES)));
    }

    #[test]
    fn kept_for_the_lifetime_and_no_longer() {
        let cache = cache(1024, 1 << 20);
        let start = Instant::now();
        let key = key(&cache, 1);
        assert!(is_new(&cache.begin(key, waiter(1), start)));
        cache.finish(key, Some(BODY), start);
        let later = start + LIFETIME_MIN;
        assert!(matches!(cache.begin(key, waiter(1), later), Admission::Replay(_)));
        let much_later = start + Limits::default().cached_reply_lifetime + Duration::from_secs(1);
        assert!(is_new(&cache.begin(key, waiter(1), much_later)));
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn what_was_put_off_or_is_too_long_is_carried_out_again() {
        let now = Instant::now();
        let cache = cache(1024, 1 << 20);
        let key = key(&cache, 1);
        let long = Bytes::from(vec![0; REPLY_BYTES_MAX + 1]);
        for body in [None, Some(long)] {
            assert!(is_new(&cache.begin(key, waiter(1), now)));
            assert!(matches!(cache.begin(key, waiter(2), now), Admission::Joined(None)));
            assert_eq!(cache.finish(key, body, now).len(), 1);
            assert!(cache.is_empty());
        }
    }

    #[test]
    fn too_many_waiters_hand_the_first_back() {
        let now = Instant::now();
        let cache = cache(1024, 1 << 20);
        let key = key(&cache, 1);
        assert!(is_new(&cache.begin(key, waiter(0), now)));
        for ticket in 1..=WAITERS_MAX as u64 {
            assert!(matches!(cache.begin(key, waiter(ticket), now), Admission::Joined(None)));
        }
        let Admission::Joined(Some(first)) = cache.begin(key, waiter(99), now) else { panic!() };
        assert_eq!(first.ticket, Ticket(1));
        let left = cache.finish(key, Some(BODY), now);
        assert_eq!((left.len(), left.back().map(|w| w.ticket)), (WAITERS_MAX, Some(Ticket(99))));
    }
}
