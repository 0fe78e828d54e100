//! How often a peer breaks the protocol.

use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// Counts faults within a window of a minute.
#[derive(Debug)]
pub(super) struct FaultMeter {
    max: u32,
    window: Option<Instant>,
    count: u32,
}

impl FaultMeter {
    pub fn new(max: u32) -> Self {
        Self { max, window: None, count: 0 }
    }

    /// Count a fault; true when there are too many.
    pub fn fault(&mut self, now: Instant) -> bool {
        let fresh = self.window.is_none_or(|start| now.duration_since(start) >= WINDOW);
        if fresh {
            self.window = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count > self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_within_a_minute_and_forgets_after() {
        let start = Instant::now();
        let mut meter = FaultMeter::new(2);
        assert!(!meter.fault(start));
        assert!(!meter.fault(start + Duration::from_secs(1)));
        assert!(meter.fault(start + Duration::from_secs(59)));
        assert!(!meter.fault(start + Duration::from_secs(60)));
    }
}
