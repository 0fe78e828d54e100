//! Group commit for threads: whoever asks while a sync is running waits for the next one, and one sync answers
//! all who asked before it began.

use std::sync::{Condvar, Mutex, PoisonError};

use rustix::io::Errno;

#[derive(Debug, Default)]
struct State {
    started: u64,
    finished: u64,
    running: bool,
    last_failure: Option<(u64, Errno)>,
}

/// The syncs of one object.
#[derive(Debug, Default)]
pub struct GroupSync {
    state: Mutex<State>,
    changed: Condvar,
}

impl GroupSync {
    /// Return when a `sync` that began after this call was made has ended; run it if nobody else does.
    ///
    /// # Errors
    /// When that sync failed. Later ones may be blamed on earlier waiters too: a failure is never hidden.
    pub fn run(&self, sync: impl Fn() -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = state.started + 1;
        loop {
            if state.finished >= wanted {
                return match state.last_failure {
                    Some((number, errno)) if number >= wanted => Err(errno),
                    _ => Ok(()),
                };
            }
            if state.running {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.running = true;
            state.started += 1;
            let number = state.started;
            drop(state);
            let result = sync();
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.running = false;
            state.finished = number;
            if let Err(errno) = result {
                state.last_failure = Some((number, errno));
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    #[test]
    fn many_callers_share_few_syncs() {
        let group = GroupSync::default();
        let syncs = AtomicUsize::new(0);
        let slow = || {
            syncs.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| group.run(slow).unwrap());
            }
        });
        assert!(syncs.load(Ordering::SeqCst) < 16);
        assert!(syncs.load(Ordering::SeqCst) >= 1);
    }

    #[test]
    fn a_failure_reaches_the_caller_and_not_the_next() {
        let group = GroupSync::default();
        assert_eq!(group.run(|| Err(Errno::IO)), Err(Errno::IO));
        assert_eq!(group.run(|| Ok(())), Ok(()));
    }
}
