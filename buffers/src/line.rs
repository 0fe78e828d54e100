//! Who waits for a piece: first come, first served for each size, whoever it is.
//!
//! Several parts of a lane take from its pool, and each keeps a queue of its own. If each simply tried whenever
//! it has its turn, the one that is asked first would get every piece that comes back, and the others nothing
//! for as long as it has somebody waiting. So each who waits has a [`Place`] in the pool's own line, and only the
//! first in it gets a piece.

use std::{fmt, sync::Arc};

use crate::{Lease, pool::Pool};

/// A place in the line for a piece of one size. Dropping it leaves the line.
///
/// Whoever may not take a piece now for other reasons (it holds its share) steps aside, so that the others do
/// not wait for it, and keeps its number.
pub struct Place {
    pool: Arc<Pool>,
    class: usize,
    number: u64,
    stands: bool,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("class", &self.class)
            .field("number", &self.number)
            .field("stands", &self.stands)
            .finish_non_exhaustive()
    }
}

impl Place {
    pub(crate) fn new(pool: Arc<Pool>, class: usize, number: u64) -> Self {
        Self { pool, class, number, stands: true }
    }

    /// The size of the piece, as an index into [`CLASS_BYTES`](crate::pool::CLASS_BYTES).
    pub fn class(&self) -> usize {
        self.class
    }

    /// The piece, if this is the first in the line and there is one. `None`: the pool calls back when it is
    /// worth trying again ([`Pool::on_release`]). After a piece the place is of no more use.
    pub fn take(&mut self) -> Option<Lease> {
        self.stand();
        let lease = self.pool.take_in_turn(self.class, self.number)?;
        self.stands = false;
        Some(lease)
    }

    /// Stand in the line again, where the place was.
    pub fn stand(&mut self) {
        if !std::mem::replace(&mut self.stands, true) {
            self.pool.stand(self.class, self.number);
        }
    }

    /// Let the others pass until the next [`Self::take`] or [`Self::stand`].
    pub fn step_aside(&mut self) {
        if std::mem::replace(&mut self.stands, false) {
            self.pool.leave(self.class, self.number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.step_aside();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LARGE: usize = 1 << 20;

    /// A pool without large pieces left, those, and how often it has called.
    fn dry() -> (Arc<Pool>, Vec<Lease>, Arc<AtomicUsize>) {
        let pool = Pool::standalone(8 << 20);
        let held = std::iter::from_fn(|| pool.take(LARGE)).collect();
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        pool.on_release(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        (pool, held, calls)
    }

    #[test]
    fn the_first_in_the_line_gets_it_whoever_asks_first() {
        let (pool, mut held, _) = dry();
        let [mut first, mut second] = [(); 2].map(|()| pool.line_up(LARGE).unwrap());
        assert_eq!(pool.stats().waiting[first.class()], 2);
        held.pop();
        assert!(second.take().is_none(), "not its turn");
        assert!(pool.take(LARGE).is_none() && pool.take_leaving(LARGE, 0).is_none(), "nor theirs");
        let lease = first.take().unwrap();
        assert!(second.take().is_none(), "there was one");
        drop(lease);
        assert!(second.take().is_some());
        assert_eq!(pool.stats().waiting, [0; 4]);
        assert!(pool.take(LARGE).is_some());
        // Sizes do not wait for each other.
        assert!(pool.take(100).is_some());
    }

    #[test]
    fn who_steps_aside_keeps_its_number_and_wakes_the_next() {
        let (pool, mut held, calls) = dry();
        let [mut first, mut second, third] = [(); 3].map(|()| pool.line_up(LARGE).unwrap());
        held.pop();
        let before = calls.load(Ordering::SeqCst);
        assert!(second.take().is_none());
        first.step_aside();
        assert_eq!(calls.load(Ordering::SeqCst), before + 1, "somebody else may go on");
        let lease = second.take().unwrap();
        first.stand();
        drop(third);
        let mut late = pool.line_up(LARGE).unwrap();
        drop(lease);
        assert!(late.take().is_none());
        assert!(first.take().is_some());
    }

    #[test]
    fn the_next_is_woken_when_there_is_a_piece_for_it_as_well() {
        let (pool, mut held, calls) = dry();
        let [mut first, mut second] = [(); 2].map(|()| pool.line_up(LARGE).unwrap());
        held.truncate(held.len() - 2);
        assert!(second.take().is_none());
        let before = calls.load(Ordering::SeqCst);
        let lease = first.take().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), before + 1);
        let other = second.take().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), before + 1, "nobody waits any more");
        drop((lease, other));
    }

    #[test]
    fn bug_one_could_line_up_for_a_size_that_there_is_none_of() {
        let pool = Pool::standalone(8 << 20);
        assert!(pool.line_up(usize::MAX).is_none());
    }
}
