//! Calls and replies that wait for a buffer: first come, first served for each size, so that nobody starves. The
//! pool's line sees to it that this also holds between them and others who take from the pool.

use std::{collections::VecDeque, sync::Arc};

use buffers::{Lease, Place, Pool, pool::CLASS_BYTES};

use super::links::LinkKey;
use crate::conn::CallId;

#[derive(Debug)]
struct Want {
    link: LinkKey,
    call: CallId,
    place: Place,
}

/// One queue for each size class: a call that waits for a megabyte does not hold up small ones.
#[derive(Debug)]
pub(super) struct LeaseQueue {
    pool: Arc<Pool>,
    queues: [VecDeque<Want>; CLASS_BYTES.len()],
}

impl LeaseQueue {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self { pool, queues: Default::default() }
    }

    /// Ask for a buffer. False when there is none that large, free or not.
    pub fn ask(&mut self, link: LinkKey, call: CallId, bytes: usize) -> bool {
        let Some(place) = self.pool.line_up(bytes) else { return false };
        let Some(queue) = self.queues.get_mut(place.class()) else { return false };
        queue.push_back(Want { link, call, place });
        true
    }

    /// The next one whose turn it is, with its buffer.
    pub fn serve(&mut self) -> Option<(LinkKey, CallId, Lease)> {
        for queue in &mut self.queues {
            if let Some(want) = queue.front_mut()
                && let Some(lease) = want.place.take()
            {
                let Want { link, call, .. } = *want;
                queue.pop_front();
                return Some((link, call, lease));
            }
        }
        None
    }

    /// Forget what a closed connection asked for.
    pub fn forget(&mut self, link: LinkKey) {
        self.queues.iter_mut().for_each(|queue| queue.retain(|want| want.link != link));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use buffers::{Arena, PoolLayout, pool::Carver};

    use super::*;

    #[test]
    fn serves_in_order_and_sizes_do_not_block_each_other() {
        let pool = Pool::standalone(8 << 20);
        let mut held = Vec::new();
        while let Some(lease) = pool.take(1 << 20) {
            held.push(lease);
        }
        let mut queue = LeaseQueue::new(pool);
        let [a, b] = [LinkKey::test(1), LinkKey::test(2)];
        assert!(queue.ask(a, CallId(1), 1 << 20));
        assert!(queue.ask(b, CallId(2), 1 << 20));
        assert!(queue.ask(b, CallId(3), 100));
        assert!(!queue.ask(b, CallId(4), usize::MAX));
        assert_eq!(queue.serve().unwrap().1, CallId(3));
        assert!(queue.serve().is_none());
        held.pop();
        let (link, call, lease) = queue.serve().unwrap();
        assert_eq!((link, call), (a, CallId(1)));
        drop(lease);
        queue.forget(b);
        assert_eq!(queue.len(), 0);
        assert!(queue.serve().is_none());
    }

    #[test]
    fn bug_one_waited_for_ever_for_a_size_that_the_pool_had_none_of() {
        let layout = PoolLayout { counts: [4, 1, 0, 0] };
        let pool = Carver::new(Arena::map(1 << 20).unwrap()).pool(layout);
        let mut queue = LeaseQueue::new(pool);
        let link = LinkKey::test(1);
        assert!(queue.ask(link, CallId(1), 70_000));
        assert!(!queue.ask(link, CallId(2), 80_000));
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.serve().unwrap().1, CallId(1));
    }
}
