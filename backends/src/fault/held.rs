//! Completions that are kept back for a while.

use std::time::{Duration, Instant};

use super::chance::Chance;
use crate::op::Completion;

/// For how long a completion is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    /// Until this many polls have passed.
    Polls(u32),
    /// Until this much time has passed.
    Time(Duration),
}

impl Delay {
    /// A number of polls that lets a later completion overtake.
    pub(super) fn reorder(chance: &mut Chance) -> Self {
        Self::Polls(chance.below(4) as u32)
    }
}

#[derive(Debug)]
enum Until {
    Polls(u32),
    Deadline(Instant),
}

/// The completions of a lane that wait for their time.
#[derive(Debug, Default)]
pub(super) struct Held {
    waiting: Vec<(Until, Completion)>,
}

impl Held {
    /// Keep a completion back; returns the deadline when it waits for one.
    pub(super) fn keep(
        &mut self,
        completion: Completion,
        delay: Delay,
        now: Instant,
    ) -> Option<Instant> {
        let (until, deadline) = match delay {
            Delay::Polls(polls) => (Until::Polls(polls), None),
            Delay::Time(time) => (Until::Deadline(now + time), Some(now + time)),
        };
        self.waiting.push((until, completion));
        deadline
    }

    /// One poll: append what has waited long enough.
    pub(super) fn poll(&mut self, now: Instant, out: &mut Vec<Completion>) {
        let mut at = 0;
        while let Some((until, _)) = self.waiting.get_mut(at) {
            let ready = match until {
                Until::Polls(0) => true,
                Until::Polls(left) => {
                    *left -= 1;
                    false
                }
                Until::Deadline(deadline) => now >= *deadline,
            };
            if ready {
                out.push(self.waiting.remove(at).1);
            } else {
                at += 1;
            }
        }
    }

    /// Whether something waits for polls, so that the lane must not go to sleep.
    pub(super) fn wants_polls(&self) -> bool {
        self.waiting.iter().any(|(until, _)| matches!(until, Until::Polls(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{BackendError, ErrorKind};

    fn completion(token: u64) -> Completion {
        Completion::failed(token, BackendError::new(ErrorKind::Io, "test"))
    }

    fn poll(held: &mut Held, now: Instant) -> Vec<u64> {
        let mut out = Vec::new();
        held.poll(now, &mut out);
        out.iter().map(|completion| completion.token).collect()
    }

    #[test]
    fn polls_and_deadlines_release() {
        let (mut held, now, second) = (Held::default(), Instant::now(), Duration::from_secs(1));
        assert_eq!(held.keep(completion(1), Delay::Polls(2), now), None);
        assert_eq!(held.keep(completion(2), Delay::Polls(0), now), None);
        assert_eq!(held.keep(completion(3), Delay::Time(second), now), Some(now + second));
        assert_eq!(poll(&mut held, now), [2]);
        assert!(held.wants_polls());
        assert!(poll(&mut held, now).is_empty());
        assert_eq!(poll(&mut held, now), [1]);
        assert!(!held.wants_polls());
        assert!(poll(&mut held, now).is_empty());
        assert_eq!(poll(&mut held, now + second), [3]);
    }
}
