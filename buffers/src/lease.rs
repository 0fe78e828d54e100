//! A piece of the arena in somebody's hand.

#![allow(unsafe_code)]

use std::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::Arc,
};

use bytes::{Buf, Bytes};

use crate::pool::{Piece, Pool};

/// Sole access to one piece. It returns to its pool when it is dropped, on whichever thread that happens.
///
/// Leases are not zeroed: what counts is always the length that travels with them. Debug builds overwrite a
/// piece when it comes back, so that a stale read shows.
pub struct Lease {
    pool: Arc<Pool>,
    class: u8,
    piece: Piece,
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a lease is the only access to its piece (the pool keeps each piece in exactly one place), and the
// memory itself is ordinary process memory that the `Arc<Pool>` keeps mapped.
unsafe impl Send for Lease {}
// SAFETY: `&Lease` gives shared read access only, as `&[u8]` does.
unsafe impl Sync for Lease {}

impl Lease {
    pub(crate) fn new(
        pool: Arc<Pool>,
        class: u8,
        piece: Piece,
        start: NonNull<u8>,
        capacity: usize,
    ) -> Self {
        Self { pool, class, piece, start, capacity }
    }

    /// Usable bytes.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Index of the arena chunk that the piece lies in.
    pub fn chunk(&self) -> u16 {
        self.piece.chunk
    }

    /// Offset of the piece in its chunk, in bytes.
    pub fn chunk_offset(&self) -> usize {
        self.piece.offset
    }

    /// The pool that it goes back to.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Turn `start..start + len` into shared, read-only bytes without a copy. The piece returns to the pool
    /// when the last of them is dropped.
    ///
    /// # Panics
    /// When the range does not lie inside the lease.
    pub fn freeze(self, start: usize, len: usize) -> Bytes {
        let fits = len <= self.capacity && start <= self.capacity - len;
        assert!(fits, "{start} + {len} bytes do not lie in a piece of {}", self.capacity);
        if len == 0 {
            return Bytes::new();
        }
        // In place: `slice` would make a second reference and drop the first, with an atomic operation for each.
        let mut bytes = Bytes::from_owner(Owner(self));
        bytes.truncate(start + len);
        bytes.advance(start);
        bytes
    }
}

struct Owner(Lease);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + capacity` is mapped as long as `pool` lives, initialised (anonymous memory
        // starts as zeros), and nobody else has access to this piece.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.capacity) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            let poisoned = self.capacity.min(4096);
            self[..poisoned].fill(0xdb);
        }
        self.pool.give_back(self.class, self.piece);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("capacity", &self.capacity)
            .field("chunk", &self.piece.chunk)
            .field("offset", &self.piece.offset)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::Pool;

    #[test]
    fn frozen_bytes_keep_the_piece_and_give_it_back() {
        let pool = Pool::standalone(8 << 20);
        let before = pool.stats().free;
        let mut lease = pool.take(100).unwrap();
        lease[..5].copy_from_slice(b"hello");
        let bytes = lease.freeze(0, 5);
        let tail = bytes.slice(3..);
        drop(bytes);
        assert_eq!(&tail[..], b"lo");
        assert!(pool.arena().locate(&tail).is_some());
        assert_ne!(pool.stats().free, before);
        drop(tail);
        assert_eq!(pool.stats().free, before);
    }

    #[test]
    fn frozen_bytes_are_the_range_and_nothing_keeps_no_piece() {
        let pool = Pool::standalone(8 << 20);
        let before = pool.stats().free;
        let mut lease = pool.take(100).unwrap();
        lease[..8].copy_from_slice(b"01234567");
        assert_eq!(lease.freeze(2, 5), b"23456"[..]);
        let lease = pool.take(100).unwrap();
        let end = lease.capacity();
        let empty = lease.freeze(end, 0);
        assert!(empty.is_empty());
        assert_eq!(pool.stats().free, before, "also while the empty one lives");
        for (start, len) in [(0, end + 1), (1, end), (end + 1, 0), (usize::MAX, 2), (2, usize::MAX)]
        {
            let lease = pool.take(100).unwrap();
            let frozen =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lease.freeze(start, len)));
            assert!(frozen.is_err(), "{start} {len}");
        }
        assert_eq!(pool.stats().free, before);
    }

    #[test]
    fn a_lease_may_die_on_another_thread() {
        let pool = Pool::standalone(8 << 20);
        let before = pool.stats().free;
        let lease = pool.take(1 << 20).unwrap();
        std::thread::spawn(move || drop(lease)).join().unwrap();
        assert_eq!(pool.stats().free, before);
    }
}
