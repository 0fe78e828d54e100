//! The write verifier (RFC 1813 section 3.3.7): it changes when data that was acknowledged as unstable may
//! have been lost, so that clients send it again.
//!
//! A value serves one run of the server: it starts random, and an error of writing back adds one. A writer
//! samples it before the write begins.
//!
//! Every change makes every client send all that it has not committed, so it must not change more often than
//! the promise demands. Errors that follow each other share one change as long as no write has been given
//! the new value: whatever they lost was acknowledged under an older one, and its COMMIT sees that. An error
//! after such a write changes it again, however soon: holding that back would tell a client that lost data is
//! safe. There is one value for the whole export and not one for each file, because clients may keep one for
//! a mount and would take two that alternate for an endless row of restarts.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::op::WriteVerifier;

/// A write has been given the present value.
const GIVEN: u64 = 1;

/// Least time between two lines in the log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The verifier of a backend, shared by all lanes.
#[derive(Debug)]
pub struct Verifier {
    /// The value in the upper bits, [`GIVEN`] in the lowest: in one word, so that no write can take a value
    /// between the question whether any has it and the change.
    state: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

impl Default for Verifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Verifier {
    /// A verifier that no earlier run had.
    pub fn new() -> Self {
        let mut bytes = [0; 8];
        let random = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let seed = match random {
            Ok(8) => u64::from_ne_bytes(bytes),
            // Time since 1970 in nanoseconds also never comes twice.
            _ => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        };
        Self { state: AtomicU64::new(seed << 1), logged: Mutex::default() }
    }

    /// The value now, for a write: should data be lost from here on, it changes.
    pub fn sample(&self) -> WriteVerifier {
        value(self.state.fetch_or(GIVEN, Ordering::SeqCst))
    }

    /// The value now, for a COMMIT, which acknowledges no data under it.
    pub fn current(&self) -> WriteVerifier {
        value(self.state.load(Ordering::SeqCst))
    }

    /// Data may have been lost.
    pub fn rotate(&self, why: &str) {
        let next = |state: u64| (state & GIVEN != 0).then(|| (state | GIVEN).wrapping_add(1));
        if self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_err() {
            tracing::debug!(why, "the write verifier has changed already");
            return;
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|last| last.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::error!(
                why,
                "the write verifier changes: clients will write uncommitted data again"
            );
        }
    }
}

fn value(state: u64) -> WriteVerifier {
    (state >> 1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_differ_and_a_rotation_shows() {
        let first = Verifier::new();
        assert_ne!(first.sample(), Verifier::new().sample());
        let before = first.sample();
        assert_eq!((first.sample(), first.current()), (before, before));
        first.rotate("test");
        assert_ne!(first.sample(), before);
    }

    #[test]
    fn bug_every_error_of_a_storm_changed_the_verifier() {
        let verifier = Verifier::new();
        let before = verifier.sample();
        verifier.rotate("the first error");
        let after = verifier.current();
        assert_ne!(after, before);
        for _ in 0..1000 {
            verifier.rotate("one more");
        }
        assert_eq!(verifier.current(), after, "no write has it yet, so none was lost under it");
        assert_eq!(verifier.sample(), after);
        verifier.rotate("after a write");
        assert_ne!(verifier.current(), after);
    }

    #[test]
    fn a_write_before_an_error_never_sees_its_value_again() {
        let verifier = Verifier::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let written = verifier.sample();
                        verifier.rotate("the write is lost");
                        assert_ne!(verifier.current(), written);
                    }
                });
            }
        });
    }
}
