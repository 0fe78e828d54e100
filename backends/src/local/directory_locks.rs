//! Locks that keep mutations of one directory apart, so that the attributes sampled before one of them are
//! truly those before it. One table for all lanes; taken only on threads that may block.

use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 256;

/// The table, keyed by inode number. Two inodes may share a lock.
#[derive(Debug)]
pub struct DirectoryLocks(Vec<Mutex<()>>);

impl Default for DirectoryLocks {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

fn shard(inode: u64) -> usize {
    (inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SHARDS
}

impl DirectoryLocks {
    fn take(&self, shard: usize) -> MutexGuard<'_, ()> {
        // The lock guards nothing but time, so a panic inside leaves nothing half done.
        self.0[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lock one inode.
    pub fn lock(&self, inode: u64) -> MutexGuard<'_, ()> {
        self.take(shard(inode))
    }

    /// Lock two inodes, in an order that cannot deadlock.
    pub fn lock_two(&self, a: u64, b: u64) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (low, high) = (shard(a).min(shard(b)), shard(a).max(shard(b)));
        let first = self.take(low);
        let second = (low != high).then(|| self.take(high));
        (first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_orders_do_not_deadlock() {
        let locks = DirectoryLocks::default();
        std::thread::scope(|scope| {
            for flip in [false, true] {
                let locks = &locks;
                scope.spawn(move || {
                    for n in 0..2_000 {
                        let (a, b) = if flip { (n + 1, n) } else { (n, n + 1) };
                        let _both = locks.lock_two(a, b);
                    }
                });
            }
        });
        let _same = locks.lock_two(5, 5);
    }
}
