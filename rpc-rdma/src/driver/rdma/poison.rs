//! Calls that broke a connection: the client would send them again on the next one, for ever (RFC 8166
//! section 4.5.3). There they get ERR_CHUNK instead.

use std::{
    collections::VecDeque,
    net::IpAddr,
    time::{Duration, Instant},
};

const ENTRIES_MAX: usize = 64;
/// Longer than any client takes to reconnect and send again, shorter than xids take to come round.
const KEPT_FOR: Duration = Duration::from_secs(120);

/// The most recent of them.
#[derive(Debug, Default)]
pub(super) struct PoisonRing {
    entries: VecDeque<(IpAddr, u32, Instant)>,
}

impl PoisonRing {
    pub fn remember(&mut self, now: Instant, client: IpAddr, xid: u32) {
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((client, xid, now));
    }

    /// Calls of this client.
    pub fn of(&mut self, now: Instant, client: IpAddr) -> Vec<u32> {
        self.entries.retain(|(_, _, at)| now.saturating_duration_since(*at) < KEPT_FOR);
        self.entries.iter().filter(|(ip, ..)| *ip == client).map(|&(_, xid, _)| xid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_per_client_for_a_while() {
        let now = Instant::now();
        let [a, b] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let mut ring = PoisonRing::default();
        for xid in 0..=ENTRIES_MAX as u32 {
            ring.remember(now, a, xid);
        }
        ring.remember(now, b, 7);
        assert_eq!(ring.of(now, b), [7]);
        assert_eq!(ring.of(now, a).len(), ENTRIES_MAX - 1);
        assert!(ring.of(now + KEPT_FOR, a).is_empty());
    }
}
