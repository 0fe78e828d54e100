//! Credits (RFC 8166 section 3.3.1): how many calls a peer may have under way.
//!
//! One credit is one Receive that is posted before the grant leaves. A client never has fewer calls under way
//! by its own count than by ours, because we count a call as done when its reply is posted, which is before
//! the client can see it. So a count above the grant is always the client's fault.

use crate::chunk::CHUNK_SEGMENTS_MAX;

/// Receives posted beyond the credits: for messages that cost no credit.
pub const RECEIVES_SPARE: usize = 8;

/// Most credits that a connection may be given.
pub const CREDITS_MAX: usize = 4096;

/// Depths of a queue pair and the credits that they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depths {
    /// Calls that the peer may have under way.
    pub credits: usize,
    /// Receives to keep posted.
    pub receives: usize,
    /// Send work requests.
    pub send_requests: usize,
}

impl Depths {
    /// The depths for `credits`, within what the device allows; the credits shrink with the Receives. `None`
    /// when the device cannot carry even one call.
    pub fn within(credits: usize, receives_max: usize, send_requests_max: usize) -> Option<Self> {
        let credits = credits.clamp(1, CREDITS_MAX);
        let spare = RECEIVES_SPARE.min(receives_max / 4);
        let credits = credits.min(receives_max.checked_sub(spare)?);
        // A reply of one megabyte takes about ten requests; more than a few of them need not be queued in
        // the device, which carries them out one after the other anyway.
        let send_requests = (2 * credits + CHUNK_SEGMENTS_MAX as usize + 1).min(send_requests_max);
        (credits > 0 && send_requests >= 2).then_some(Self {
            credits,
            receives: credits + spare,
            send_requests,
        })
    }
}

/// The peer used credits that it did not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer has more than {granted} calls under way")]
pub struct Overrun {
    /// What it had been granted.
    pub granted: u32,
}

/// The credits of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credits {
    granted: u32,
    outstanding: u32,
}

impl Credits {
    /// Credits for a connection that keeps `receives` posted, of which at most `wanted` are granted; at
    /// least 1, for a grant of 0 is a protocol error.
    pub fn new(wanted: usize, receives: usize) -> Self {
        let granted = wanted.min(receives).clamp(1, CREDITS_MAX);
        Self { granted: granted as u32, outstanding: 0 }
    }

    /// What every reply grants.
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Calls under way.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// A call has come.
    ///
    /// # Errors
    /// When the peer had no credit left for it: the connection is to be closed.
    pub fn call(&mut self) -> Result<(), Overrun> {
        if self.outstanding >= self.granted {
            return Err(Overrun { granted: self.granted });
        }
        self.outstanding += 1;
        Ok(())
    }

    /// The answer to a call was posted.
    pub fn answered(&mut self) {
        debug_assert!(self.outstanding > 0, "an answer belongs to a call");
        self.outstanding = self.outstanding.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bug_20_a_small_device_shrinks_the_grant() {
        let depths = Depths::within(128, 32, 32).unwrap();
        assert_eq!(depths, Depths { credits: 24, receives: 32, send_requests: 32 });
        let depths = Depths::within(128, 32768, 32768).unwrap();
        assert_eq!((depths.credits, depths.receives), (128, 136));
        assert_eq!(Depths::within(128, 1, 2).unwrap().credits, 1);
        assert_eq!(Depths::within(128, 0, 32), None);
        assert_eq!(Depths::within(128, 32, 1), None);
    }

    #[test]
    fn bug_2_and_3_the_grant_is_never_zero_and_never_above_the_receives() {
        assert_eq!(Credits::new(0, 8).granted(), 1);
        assert_eq!(Credits::new(16384, 40).granted(), 40);
        assert_eq!(Credits::new(64, 72).granted(), 64);
    }

    #[test]
    fn overrun_is_noticed() {
        let mut credits = Credits::new(2, 10);
        assert!(credits.call().is_ok());
        assert!(credits.call().is_ok());
        assert_eq!(credits.call(), Err(Overrun { granted: 2 }));
        credits.answered();
        assert!(credits.call().is_ok());
        assert_eq!(credits.outstanding(), 2);
    }
}
