//! The write verifier (RFC 1813 section 3.3.7): it changes when data that was acknowledged as unstable may
//! have been lost, so that clients send it again.
//!
//! A value serves one run of the server: it starts random, and every error of writing back adds one. A
//! writer samples it before the write begins.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::op::WriteVerifier;

/// The verifier of a backend, shared by all lanes.
#[derive(Debug)]
pub struct Verifier(AtomicU64);

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
        Self(AtomicU64::new(seed))
    }

    /// The value now.
    pub fn sample(&self) -> WriteVerifier {
        self.0.load(Ordering::SeqCst).to_be_bytes()
    }

    /// Data may have been lost.
    pub fn rotate(&self, why: &str) {
        self.0.fetch_add(1, Ordering::SeqCst);
        tracing::error!(
            why,
            "the write verifier changes: clients will write uncommitted data again"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_differ_and_a_rotation_shows() {
        let first = Verifier::new();
        assert_ne!(first.sample(), Verifier::new().sample());
        let before = first.sample();
        assert_eq!(first.sample(), before);
        first.rotate("test");
        assert_ne!(first.sample(), before);
    }
}
