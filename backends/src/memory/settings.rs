//! Limits of a memory file system and where its time comes from.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::attr::Timestamp;

/// How large a memory file system may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySettings {
    /// Bytes of file data, counted in whole pages. Data that is not yet committed counts twice where it
    /// overwrites older data, since both are kept.
    pub bytes_max: u64,
    /// Directory entries, and so objects.
    pub entries_max: u64,
    /// Owner, group and mode of the root directory.
    pub root: (u32, u32, u32),
    /// Where time comes from.
    pub clock: Clock,
}

impl Default for MemorySettings {
    /// 1 GiB, a million entries, a root directory that everybody may use, the system's time.
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            entries_max: 1 << 20,
            root: (0, 0, 0o1777),
            clock: Clock::System,
        }
    }
}

/// Where timestamps come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The system's time.
    System,
    /// A fixed start, one microsecond later at each sample: the same in every run.
    Stepping(Timestamp),
}

/// A clock whose samples always grow, so that two changes never have the same change time.
#[derive(Debug)]
pub(super) struct Ticker {
    clock: Clock,
    last: Timestamp,
}

const NANOS: u32 = 1_000_000_000;

impl Ticker {
    pub(super) fn new(clock: Clock) -> Self {
        let last = match clock {
            Clock::System => Timestamp::default(),
            Clock::Stepping(start) => start,
        };
        Self { clock, last }
    }

    pub(super) fn now(&mut self) -> Timestamp {
        self.last = match self.clock {
            Clock::System => system_time().max(after(self.last, 1)),
            Clock::Stepping(_) => after(self.last, 1000),
        };
        self.last
    }
}

fn after(time: Timestamp, nanos: u32) -> Timestamp {
    let sum = time.nanos + nanos;
    Timestamp { seconds: time.seconds + i64::from(sum / NANOS), nanos: sum % NANOS }
}

fn system_time() -> Timestamp {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX - 1);
    Timestamp { seconds, nanos: elapsed.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_grow_even_when_the_clock_stands() {
        let mut ticker = Ticker::new(Clock::System);
        let samples: Vec<_> = (0..1000).map(|_| ticker.now()).collect();
        assert!(samples.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(samples[0].seconds > 1_600_000_000);
    }

    #[test]
    fn stepping_carries_into_seconds() {
        let start = Timestamp { seconds: 5, nanos: NANOS - 1000 };
        let mut ticker = Ticker::new(Clock::Stepping(start));
        assert_eq!(ticker.now(), Timestamp { seconds: 6, nanos: 0 });
        assert_eq!(ticker.now(), Timestamp { seconds: 6, nanos: 1000 });
    }
}
