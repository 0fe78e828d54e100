//! Everything that can wake a lane.
//!
//! The descriptors of rings, completion queues and the lane's alarm are watched by tokio, edge-triggered, so
//! that a descriptor whose owner does not read it (an event counter) wakes the lane once for each event and
//! not for ever.

use std::{
    future::poll_fn,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{Interest, unix::AsyncFd};

/// The set.
#[derive(Debug, Default)]
pub struct WaitSet {
    /// What was asked for, in that order.
    named: Vec<Arc<OwnedFd>>,
    /// The same, each once.
    watched: Vec<AsyncFd<Arc<OwnedFd>>>,
}

impl WaitSet {
    /// Watch exactly these descriptors; must be called on the lane's runtime. They stay open while they are
    /// watched, so a number in the set can neither dangle nor have been given out anew.
    pub fn watch(&mut self, fds: Vec<Arc<OwnedFd>>) {
        if same(&fds, &self.named) {
            return;
        }
        self.watched.retain(|old| fds.iter().any(|fd| Arc::ptr_eq(fd, old.get_ref())));
        for fd in &fds {
            // Backends that share the lane's ring name the same descriptor.
            if self.watched.iter().any(|old| Arc::ptr_eq(fd, old.get_ref())) {
                continue;
            }
            match register(fd) {
                Ok(fd) => self.watched.push(fd),
                Err(error) => {
                    tracing::warn!(?fd, %error, "cannot watch a wake-up descriptor");
                }
            }
        }
        self.named = fds;
    }

    /// Wait until one of them has become readable.
    pub async fn woken(&self) {
        poll_fn(|context| self.poll_woken(context)).await;
    }

    fn poll_woken(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut woken = Poll::Pending;
        for fd in &self.watched {
            // All of them: whoever was woken looks at every source, so the others' events are used up, too.
            if let Poll::Ready(ready) = fd.poll_read_ready(context) {
                if let Ok(mut guard) = ready {
                    guard.clear_ready();
                }
                woken = Poll::Ready(());
            }
        }
        woken
    }
}

// Deprecated for descriptors that can be closed behind tokio's back; an `OwnedFd` cannot.
#[allow(deprecated)]
fn register(fd: &Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    AsyncFd::with_interest(fd.clone(), Interest::READABLE)
}

fn same(these: &[Arc<OwnedFd>], those: &[Arc<OwnedFd>]) -> bool {
    these.len() == those.len() && these.iter().zip(those).all(|(a, b)| Arc::ptr_eq(a, b))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::driver::wake::LaneWaker;

    #[test]
    fn an_unread_event_wakes_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waker = LaneWaker::new().unwrap();
            let mut set = WaitSet::default();
            set.watch(vec![waker.event()]);
            for _ in 0..3 {
                assert!(waker.prepare_sleep());
                waker.waker().wake();
                tokio::time::timeout(Duration::from_secs(5), set.woken()).await.unwrap();
                waker.awake();
            }
            let quiet = tokio::time::timeout(Duration::from_millis(20), set.woken()).await;
            assert!(quiet.is_err(), "nothing new, no wake-up");
        });
    }

    fn event() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
    }

    fn signal(fd: &OwnedFd) {
        rustix::io::write(fd, &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn what_is_no_longer_named_does_not_wake_and_is_closed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut set = WaitSet::default();
            let (stays, goes) = (event(), event());
            let other_end = goes.try_clone().unwrap();
            set.watch(vec![stays.clone(), goes.clone(), stays.clone()]);
            let held = Arc::downgrade(&goes);
            drop(goes);
            assert!(held.upgrade().is_some(), "open while it is watched");
            set.watch(vec![stays.clone()]);
            assert!(held.upgrade().is_none());
            signal(&other_end);
            let quiet = tokio::time::timeout(Duration::from_millis(20), set.woken()).await;
            assert!(quiet.is_err(), "not watched any more");
            signal(&stays);
            tokio::time::timeout(Duration::from_secs(30), set.woken()).await.unwrap();
        });
    }

    #[test]
    fn a_duplicate_of_a_descriptor_wakes_like_the_original() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let original = event();
            let mut set = WaitSet::default();
            set.watch(vec![Arc::new(original.try_clone().unwrap())]);
            for _ in 0..3 {
                // Not read in between: each event is an edge of its own.
                signal(&original);
                tokio::time::timeout(Duration::from_secs(30), set.woken()).await.unwrap();
            }
        });
    }
}
