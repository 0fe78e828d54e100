//! Counters of the dispatcher, shared by all lanes.

use std::sync::atomic::{AtomicU64, Ordering};

use backends::op::Outcome;

use crate::nfs3;

/// Number of NFSv3 procedures.
pub const PROCEDURES: usize = 22;

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more.
    pub fn grow(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened so far.
#[derive(Debug, Default)]
pub struct Metrics {
    /// NFSv3 calls, by procedure.
    pub nfs3_calls: [Counter; PROCEDURES],
    /// NFSv3 calls that were answered with an error, by procedure.
    pub nfs3_failures: [Counter; PROCEDURES],
    /// MOUNT calls.
    pub mount_calls: Counter,
    /// Calls of programs, versions or procedures that are not served.
    pub unserved: Counter,
    /// Calls whose arguments could not be decoded.
    pub garbage: Counter,
    /// Handles that were none of ours.
    pub bad_handles: Counter,
    /// Bytes of file data that reads have answered with.
    pub read_bytes: Counter,
    /// Bytes of file data that writes have taken.
    pub written_bytes: Counter,
    /// Repeated calls that were answered from the cache.
    pub replays: Counter,
    /// Repeated calls that came while the first was still being carried out.
    pub joined: Counter,
    /// Reads that had to wait for buffer memory.
    pub starved_reads: Counter,
    /// Panics that were caught.
    pub panics: Counter,
}

impl Metrics {
    /// Count an NFSv3 call.
    pub fn nfs3_call(&self, procedure: u32) {
        if let Some(counter) = self.nfs3_calls.get(procedure as usize) {
            counter.add();
        }
    }

    /// Count an NFSv3 call that failed.
    pub fn nfs3_failure(&self, procedure: u32) {
        if let Some(counter) = self.nfs3_failures.get(procedure as usize) {
            counter.add();
        }
    }

    /// Count the file data of an operation that succeeded.
    pub fn moved(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Data { data, .. } => self.read_bytes.grow(data.len() as u64),
            Outcome::Written { count, .. } => self.written_bytes.grow(u64::from(*count)),
            _ => {}
        }
    }

    /// Name, calls and failures of each procedure.
    pub fn by_procedure(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        (0_u32..).zip(self.nfs3_calls.iter().zip(&self.nfs3_failures)).map(
            |(number, (calls, failures))| {
                (nfs3::procedure_name(number), calls.get(), failures.get())
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use backends::op::{Stability, WriteVerifier};
    use bytes::Bytes;

    use super::*;

    #[test]
    fn file_data_is_counted_by_its_direction() {
        let metrics = Metrics::default();
        let data = Bytes::from_static(b"five!").into();
        metrics.moved(&Outcome::Data { data, end_of_file: true });
        let (stability, verifier) = (Stability::Unstable, WriteVerifier::default());
        metrics.moved(&Outcome::Written { count: 7, stability, verifier });
        metrics.moved(&Outcome::Done);
        assert_eq!((metrics.read_bytes.get(), metrics.written_bytes.get()), (5, 7));
    }

    #[test]
    fn a_procedure_that_does_not_exist_is_not_counted_and_no_panic() {
        let metrics = Metrics::default();
        metrics.nfs3_call(6);
        metrics.nfs3_call(u32::MAX);
        metrics.nfs3_failure(22);
        let counted: Vec<_> = metrics.by_procedure().filter(|(_, calls, _)| *calls > 0).collect();
        assert_eq!(counted, [("read", 1, 0)]);
    }
}
