//! Size classes over a part of the arena.
//!
//! A lane owns a pool and takes from it; anybody may drop a lease, on any thread. No piece is ever allocated
//! after start: an empty class answers `None`, and the asker lines up ([`Pool::line_up`]) and tries again when
//! [`Pool::on_release`] calls.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Arena, lease::Lease, line::Place};

/// Pages that O_DIRECT may need around an unaligned request, at both ends.
pub const SLACK_BYTES: usize = 8 << 10;

/// Alignment of every piece: a page, which satisfies any drive's O_DIRECT demands.
pub const ALIGN_BYTES: usize = 4 << 10;

/// Sizes of the pieces, smallest first: an inline message, then payloads with room for [`SLACK_BYTES`].
pub const CLASS_BYTES: [usize; 4] =
    [4 << 10, (64 << 10) + SLACK_BYTES, (256 << 10) + SLACK_BYTES, (1 << 20) + SLACK_BYTES];

/// Pieces of each class that there are at least.
const PIECES_MIN: usize = 2;

/// How many pieces of each class a pool has, in the order of [`CLASS_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLayout {
    /// Pieces for each class.
    pub counts: [usize; CLASS_BYTES.len()],
}

impl PoolLayout {
    /// Divide `bytes` among the classes: an eighth for messages, an eighth each for the two middle
    /// classes, the rest for the largest, and at least two of each.
    pub fn within(bytes: usize) -> Self {
        let parts = Self::parts(bytes);
        let pieces = |class| usize::max(parts[class] / CLASS_BYTES[class], PIECES_MIN);
        Self { counts: std::array::from_fn(pieces) }
    }

    /// How [`Self::within`] divides `bytes`.
    fn parts(bytes: usize) -> [usize; CLASS_BYTES.len()] {
        let eighth = bytes / 8;
        [eighth, eighth, eighth, bytes - 3 * eighth]
    }

    /// Whether `bytes` are too few for some class, so that [`Self::within`] takes more than that: the size of
    /// the pieces that lack most, and how many bytes are enough for all.
    pub fn shortage(bytes: usize) -> Option<(usize, usize)> {
        let parts = Self::parts(bytes);
        let short =
            (0..CLASS_BYTES.len()).filter(|&class| parts[class] < PIECES_MIN * CLASS_BYTES[class]);
        let needed = |class: usize| {
            let eighths = if class == CLASS_BYTES.len() - 1 { 5 } else { 1 };
            (CLASS_BYTES[class], (PIECES_MIN * CLASS_BYTES[class] * 8).div_ceil(eighths))
        };
        short.map(needed).max_by_key(|(_, needed)| *needed)
    }

    /// Memory that the layout needs, in bytes.
    pub fn bytes(&self) -> usize {
        self.counts.iter().zip(CLASS_BYTES).map(|(n, b)| n * b).sum()
    }
}

/// What a pool has and how often it ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolStats {
    /// Pieces for each class.
    pub total: [usize; CLASS_BYTES.len()],
    /// Pieces not in anybody's hand.
    pub free: [usize; CLASS_BYTES.len()],
    /// How many stand in the line for each class.
    pub waiting: [usize; CLASS_BYTES.len()],
    /// Requests that were answered `None`.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Free {
    lists: [Vec<Piece>; CLASS_BYTES.len()],
    /// Numbers of those who stand in line.
    lines: [BTreeSet<u64>; CLASS_BYTES.len()],
    next_number: u64,
    refused: u64,
}

impl Free {
    /// Somebody waits for what there is.
    fn has_for_the_next(&self, class: usize) -> bool {
        !self.lists[class].is_empty() && !self.lines[class].is_empty()
    }
}

/// A piece of the arena: which chunk, where in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub chunk: u16,
    pub offset: usize,
}

type ReleaseHook = Box<dyn Fn() + Send + Sync>;

/// The free pieces of one lane.
pub struct Pool {
    arena: Arc<Arena>,
    layout: PoolLayout,
    free: Mutex<Free>,
    starved: AtomicBool,
    hook: OnceLock<ReleaseHook>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Carves an arena into pools, front to back; made once, at start.
#[derive(Debug)]
pub struct Carver {
    arena: Arc<Arena>,
    chunk: usize,
    offset: usize,
    sizes: Vec<usize>,
}

impl Carver {
    /// Start at the first byte of `arena`.
    pub fn new(arena: Arc<Arena>) -> Self {
        let sizes = arena.chunk_sizes().collect();
        Self { arena, chunk: 0, offset: 0, sizes }
    }

    /// Cut the next pool. It has fewer pieces than asked when the arena ends first (see [`PoolStats`]).
    pub fn pool(&mut self, layout: PoolLayout) -> Arc<Pool> {
        let mut free = Free::default();
        let mut got = PoolLayout { counts: [0; CLASS_BYTES.len()] };
        for (class, bytes) in CLASS_BYTES.into_iter().enumerate() {
            while got.counts[class] < layout.counts[class] {
                let Some(piece) = self.piece(bytes) else { break };
                free.lists[class].push(piece);
                got.counts[class] += 1;
            }
        }
        Arc::new(Pool {
            arena: self.arena.clone(),
            layout: got,
            free: Mutex::new(free),
            starved: AtomicBool::new(false),
            hook: OnceLock::new(),
        })
    }

    fn piece(&mut self, bytes: usize) -> Option<Piece> {
        debug_assert_eq!(bytes % ALIGN_BYTES, 0, "pieces are whole pages");
        while self.chunk < self.sizes.len() {
            if self.offset + bytes <= self.sizes[self.chunk] {
                let piece = Piece { chunk: self.chunk as u16, offset: self.offset };
                self.offset += bytes;
                return Some(piece);
            }
            self.chunk += 1;
            self.offset = 0;
        }
        None
    }
}

impl Pool {
    /// A pool with an arena of its own: for tests and tools.
    pub fn standalone(bytes: usize) -> Arc<Self> {
        let layout = PoolLayout::within(bytes);
        let arena = Arena::map(layout.bytes()).expect("memory for a test pool");
        Carver::new(arena).pool(layout)
    }

    /// The arena that the pieces lie in.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The smallest class whose pieces have `bytes`; classes that the pool has nothing of do not count.
    pub fn class(&self, bytes: usize) -> Option<usize> {
        let mut classes = CLASS_BYTES.iter().zip(self.layout.counts);
        classes.position(|(&size, pieces)| pieces > 0 && size >= bytes)
    }

    /// A piece of at least `bytes`, from the smallest class that fits, or `None` (larger classes are not touched
    /// for small requests: a flood of messages must not eat the payload memory). Nobody overtakes those who
    /// stand in line.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        let class = self.class(bytes)?;
        let mut free = self.lock();
        let first = free.lines[class].is_empty();
        let Some(piece) = first.then(|| free.lists[class].pop()).flatten() else {
            self.refuse(&mut free);
            return None;
        };
        drop(free);
        Some(self.lease(class, piece))
    }

    fn refuse(&self, free: &mut Free) {
        free.refused += 1;
        self.starved.store(true, Ordering::Release);
    }

    /// Like [`Self::take`], for whoever can do without: `None` unless more than `left` pieces of the class
    /// remain for the others. Nobody is called back for it.
    pub fn take_leaving(self: &Arc<Self>, bytes: usize, left: usize) -> Option<Lease> {
        let class = self.class(bytes)?;
        let mut free = self.lock();
        let spare = free.lines[class].is_empty() && free.lists[class].len() > left;
        let piece = spare.then(|| free.lists[class].pop()).flatten()?;
        drop(free);
        Some(self.lease(class, piece))
    }

    /// Line up for a piece of at least `bytes`. `None`: there is none so large, however long one waits.
    pub fn line_up(self: &Arc<Self>, bytes: usize) -> Option<Place> {
        let class = self.class(bytes)?;
        let mut free = self.lock();
        free.next_number += 1;
        let number = free.next_number;
        free.lines[class].insert(number);
        drop(free);
        Some(Place::new(self.clone(), class, number))
    }

    pub(crate) fn stand(&self, class: usize, number: u64) {
        self.lock().lines[class].insert(number);
    }

    /// Leave the line. If others wait for what there is, it may be their turn now.
    pub(crate) fn leave(&self, class: usize, number: u64) {
        let mut free = self.lock();
        free.lines[class].remove(&number);
        let pass_on = free.has_for_the_next(class);
        drop(free);
        if pass_on {
            self.call_back();
        }
    }

    /// A piece for the one with this number, which then leaves the line.
    pub(crate) fn take_in_turn(self: &Arc<Self>, class: usize, number: u64) -> Option<Lease> {
        let mut free = self.lock();
        let first = free.lines[class].first() == Some(&number);
        let Some(piece) = first.then(|| free.lists[class].pop()).flatten() else {
            self.refuse(&mut free);
            return None;
        };
        free.lines[class].remove(&number);
        let pass_on = free.has_for_the_next(class);
        drop(free);
        if pass_on {
            self.call_back();
        }
        Some(self.lease(class, piece))
    }

    fn call_back(&self) {
        if let Some(hook) = self.hook.get() {
            hook();
        }
    }

    fn lease(self: &Arc<Self>, class: usize, piece: Piece) -> Lease {
        let size = CLASS_BYTES[class];
        let start = self.arena.address(usize::from(piece.chunk), piece.offset, size);
        Lease::new(self.clone(), class as u8, piece, start, size)
    }

    /// Call `hook` when a piece comes back after somebody was refused, or the next in line may have one. Set
    /// once, at start.
    pub fn on_release(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.hook.set(Box::new(hook));
    }

    /// Whether somebody was refused, and nothing has come back since.
    pub fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Acquire)
    }

    /// What there is.
    pub fn stats(&self) -> PoolStats {
        let free = self.lock();
        PoolStats {
            total: self.layout.counts,
            free: std::array::from_fn(|class| free.lists[class].len()),
            waiting: std::array::from_fn(|class| free.lines[class].len()),
            refused: free.refused,
        }
    }

    pub(crate) fn give_back(&self, class: u8, piece: Piece) {
        self.lock().lists[usize::from(class)].push(piece);
        if self.starved.swap(false, Ordering::AcqRel) {
            self.call_back();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn gives_the_smallest_class_and_takes_back() {
        let pool = Pool::standalone(16 << 20);
        let before = pool.stats();
        let small = pool.take(100).unwrap();
        let large = pool.take((1 << 20) + 1).unwrap();
        assert_eq!(small.capacity(), CLASS_BYTES[0]);
        assert_eq!(large.capacity(), CLASS_BYTES[3]);
        assert_ne!(pool.stats().free, before.free);
        drop((small, large));
        assert_eq!(pool.stats().free, before.free);
    }

    #[test]
    fn a_shortage_names_the_size_and_what_is_enough() {
        for bytes in [0, 1 << 20, 3 << 20, 4 << 20] {
            let (class, enough) = PoolLayout::shortage(bytes).unwrap();
            assert!(CLASS_BYTES.contains(&class) && enough > bytes, "{bytes}: {class}, {enough}");
            assert_eq!(PoolLayout::shortage(enough), None);
            assert!(PoolLayout::within(enough).bytes() <= enough);
            assert!(PoolLayout::shortage(enough - 8).is_some(), "no more than is needed");
        }
        assert_eq!(PoolLayout::shortage(16 << 20), None);
    }

    #[test]
    fn too_large_is_refused_not_a_panic() {
        assert!(Pool::standalone(4 << 20).take(2 << 20).is_none());
    }

    #[test]
    fn release_after_starvation_calls_the_hook_once() {
        let pool = Pool::standalone(8 << 20);
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        pool.on_release(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        let mut held = Vec::new();
        while let Some(lease) = pool.take(1 << 20) {
            held.push(lease);
        }
        held.clear();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn whoever_can_do_without_leaves_some() {
        let pool = Pool::standalone(8 << 20);
        let mut held = Vec::new();
        while let Some(lease) = pool.take_leaving(1 << 20, 2) {
            held.push(lease);
        }
        assert_eq!(pool.stats().free[3], 2);
        assert_eq!(pool.stats().refused, 0);
        assert!(pool.take(1 << 20).is_some());
    }

    #[test]
    fn pieces_do_not_overlap() {
        let pool = Pool::standalone(8 << 20);
        let mut spans = Vec::new();
        let mut held = Vec::new();
        for bytes in [1, 64 << 10, 256 << 10, 1 << 20] {
            while let Some(lease) = pool.take(bytes) {
                let start = lease.as_ptr() as usize;
                assert_eq!(start % ALIGN_BYTES, 0);
                spans.push((start, start + lease.capacity()));
                held.push(lease);
            }
        }
        spans.sort_unstable();
        assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0));
    }
}
