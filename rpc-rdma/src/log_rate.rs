//! Log lines that a peer can cause, at a bounded rate.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// One line now and then; what is left out is counted. Made to be a `static` beside the line.
///
/// ```
/// use std::time::Duration;
/// use rpc_rdma::log_rate::LogRate;
///
/// static RATE: LogRate = LogRate::new(Duration::from_secs(10));
/// if let Some(left_out) = RATE.next() {
///     tracing::warn!(left_out, "a file handle that is not ours");
/// }
/// ```
#[derive(Debug)]
pub struct LogRate {
    interval: Duration,
    /// When the last line was let through, in nanoseconds since the process began to log, plus 1; 0 is never.
    last: AtomicU64,
    left_out: AtomicU64,
}

static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

impl LogRate {
    /// At most one line in `interval`.
    pub const fn new(interval: Duration) -> Self {
        Self { interval, last: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Like [`Self::new`], for lines about what peers do again and again: one a second.
    pub const fn per_second() -> Self {
        Self::new(Duration::from_secs(1))
    }

    /// Whether a line may be written now: how many were left out since the last one, or `None`.
    pub fn next(&self) -> Option<u64> {
        self.next_at(BEGINNING.elapsed())
    }

    fn next_at(&self, since_beginning: Duration) -> Option<u64> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(since_beginning).saturating_add(1);
        let last = self.last.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= nanos(self.interval);
        let order = Ordering::Relaxed;
        if !due || self.last.compare_exchange(last, now, order, order).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_an_interval_and_the_rest_is_counted() {
        let rate = LogRate::new(Duration::from_secs(10));
        let at = |seconds| rate.next_at(Duration::from_secs(seconds));
        assert_eq!(at(0), Some(0));
        assert_eq!(at(1), None);
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some(2));
        assert_eq!(at(19), None);
        assert_eq!(at(100), Some(1));
    }
}
