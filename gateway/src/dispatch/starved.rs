//! Reads that wait for buffer memory: first in, first out, for each size class of the pool, in one line with all
//! others who take from it.

use std::{collections::VecDeque, sync::Arc};

use backends::Token;
use buffers::{
    Lease, Place, Pool,
    pool::{CLASS_BYTES, SLACK_BYTES},
};

/// A read that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The call.
    pub token: Token,
    /// Where it reads.
    pub offset: u64,
    /// How much.
    pub count: u32,
    /// The reply may carry pages of the page cache.
    pub by_page: bool,
}

/// Buffer memory for reads, and those who wait for it.
#[derive(Debug)]
pub struct Starved {
    pool: Arc<Pool>,
    queues: [VecDeque<(Waiting, Place)>; CLASS_BYTES.len()],
    read_bytes_max: u32,
    waiting_max: usize,
}

/// What became of a request for memory.
#[derive(Debug)]
pub enum Grant {
    /// Here it is.
    Lease(Lease),
    /// It is in the queue.
    Queued,
    /// The queue is full.
    Refused,
}

impl Starved {
    /// Take from `pool`; at most `waiting_max` may wait.
    pub fn new(pool: Arc<Pool>, waiting_max: usize) -> Self {
        let classes = CLASS_BYTES.into_iter().zip(pool.stats().total);
        let largest = classes.rev().find(|(_, pieces)| *pieces > 0);
        let bytes = largest.map_or(0, |(bytes, _)| bytes.saturating_sub(SLACK_BYTES));
        let read_bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { pool, queues: Default::default(), read_bytes_max, waiting_max }
    }

    /// Most bytes that one read can have.
    pub fn read_bytes_max(&self) -> u32 {
        self.read_bytes_max
    }

    /// Memory for a read of `waiting.count` bytes, or a place in the queue. Nobody overtakes those who wait
    /// for the same class.
    pub fn lease(&mut self, waiting: Waiting) -> Grant {
        let bytes = (waiting.count as usize).saturating_add(SLACK_BYTES);
        let Some(class) = self.pool.class(bytes) else { return Grant::Refused };
        if self.queues[class].is_empty()
            && let Some(lease) = self.pool.take(bytes)
        {
            return Grant::Lease(lease);
        }
        if self.len() >= self.waiting_max {
            return Grant::Refused;
        }
        let Some(place) = self.pool.line_up(bytes) else { return Grant::Refused };
        self.queues[class].push_back((waiting, place));
        Grant::Queued
    }

    /// The next one for whom there is memory by now.
    pub fn serve(&mut self) -> Option<(Waiting, Lease)> {
        for queue in &mut self.queues {
            let Some((waiting, place)) = queue.front_mut() else { continue };
            if let Some(lease) = place.take() {
                let waiting = *waiting;
                queue.pop_front();
                return Some((waiting, lease));
            }
        }
        None
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(token: Token) -> Waiting {
        Waiting { token, offset: 0, count: 1 << 20, by_page: false }
    }

    #[test]
    fn first_come_first_served_and_a_full_queue_refuses() {
        let pool = Pool::standalone(4 << 20);
        let mut starved = Starved::new(pool.clone(), 2);
        assert_eq!(starved.read_bytes_max(), 1 << 20);
        let mut held = Vec::new();
        let mut token = 0;
        while let Grant::Lease(lease) = starved.lease(waiting(token)) {
            held.push(lease);
            token += 1;
        }
        assert!(matches!(starved.lease(waiting(token + 1)), Grant::Queued));
        assert!(matches!(starved.lease(waiting(token + 2)), Grant::Refused));
        assert!(starved.serve().is_none());
        held.clear();
        // One that comes now does not overtake: it finds the queue full.
        assert!(matches!(starved.lease(waiting(token + 3)), Grant::Refused));
        assert_eq!(starved.serve().map(|(w, _)| w.token), Some(token));
        assert_eq!(starved.serve().map(|(w, _)| w.token), Some(token + 1));
        assert!(starved.serve().is_none());
        // Small reads have memory of their own.
        let small = Waiting { token: 99, offset: 0, count: 4096, by_page: false };
        assert!(matches!(starved.lease(small), Grant::Lease(_)));
    }
}
