//! How many bytes somebody may hold at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A limit in bytes that many holders share (one for each connection, one for each export).
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0) })
    }

    /// Take `bytes`, or `None` when that would exceed the limit. A request larger than the whole limit is
    /// let through when nobody holds anything, so that it waits but never waits for ever.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let fits = |held: usize| {
            let after = held.checked_add(bytes)?;
            (after <= self.limit || held == 0).then_some(after)
        };
        self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).ok()?;
        Some(Permit { budget: self.clone(), bytes })
    }

    /// Bytes that are held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Bytes taken from a [`Budget`]; dropping it gives them back.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Permit {
    /// How many bytes it stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_limit_and_gives_back() {
        let budget = Budget::new(100);
        let first = budget.take(60).unwrap();
        assert!(budget.take(41).is_none());
        let second = budget.take(40).unwrap();
        assert_eq!(budget.held(), 100);
        drop(first);
        assert_eq!(budget.held(), 40);
        drop(second);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn one_oversized_request_passes_alone() {
        let budget = Budget::new(10);
        let alone = budget.take(50).unwrap();
        assert!(budget.take(1).is_none());
        drop(alone);
        assert!(budget.take(1).is_some());
    }
}
