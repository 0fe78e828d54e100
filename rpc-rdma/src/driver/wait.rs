//! One descriptor for everything that can wake a lane.
//!
//! The descriptors of rings, completion queues and the lane's alarm are watched edge-triggered by an epoll
//! set, and the set itself by tokio. Edge-triggered, so that a descriptor whose owner does not read it (an
//! event counter) wakes the lane once for each event and not for ever.

use std::{io, os::fd::OwnedFd, sync::Arc};

use rustix::event::epoll;
use tokio::io::{Interest, unix::AsyncFd};

/// The set.
#[derive(Debug)]
pub struct WaitSet {
    epoll: AsyncFd<OwnedFd>,
    watched: Vec<Arc<OwnedFd>>,
}

impl WaitSet {
    /// An empty set; must be made on the lane's runtime.
    ///
    /// # Errors
    /// When no descriptor is to be had.
    // Deprecated for descriptors that can be closed behind tokio's back; an `OwnedFd` cannot.
    #[allow(deprecated)]
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll: AsyncFd::with_interest(epoll, Interest::READABLE)?, watched: Vec::new() })
    }

    /// Watch exactly these descriptors. They stay open while they are watched, so a number in the set can
    /// neither dangle nor have been given out anew.
    pub fn watch(&mut self, fds: Vec<Arc<OwnedFd>>) {
        if same(&fds, &self.watched) {
            return;
        }
        for gone in self.watched.iter().filter(|fd| !has(&fds, fd)) {
            let _ = epoll::delete(self.epoll.get_ref(), gone);
        }
        for new in &fds {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(0);
            match epoll::add(self.epoll.get_ref(), new, data, flags) {
                // Backends that share the lane's ring name the same descriptor.
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => {
                    tracing::warn!(fd = ?new, %error, "cannot watch a wake-up descriptor");
                }
            }
        }
        self.watched = fds;
    }

    /// Wait until one of them has become readable.
    pub async fn woken(&self) {
        let Ok(mut guard) = self.epoll.readable().await else { return };
        guard.clear_ready();
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 16];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        // Consume the edges; whoever was woken looks at every source anyway.
        while let Ok(count) = epoll::wait(self.epoll.get_ref(), &mut events[..], Some(&now)) {
            if count < events.len() {
                break;
            }
        }
    }
}

fn has(fds: &[Arc<OwnedFd>], fd: &Arc<OwnedFd>) -> bool {
    fds.iter().any(|other| Arc::ptr_eq(other, fd))
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
            let mut set = WaitSet::new().unwrap();
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
            let mut set = WaitSet::new().unwrap();
            let (stays, goes) = (event(), event());
            set.watch(vec![stays.clone(), goes.clone(), stays.clone()]);
            assert_eq!(Arc::strong_count(&goes), 2, "open while it is watched");
            set.watch(vec![stays.clone()]);
            assert_eq!(Arc::strong_count(&goes), 1);
            signal(&goes);
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
            let mut set = WaitSet::new().unwrap();
            set.watch(vec![Arc::new(original.try_clone().unwrap())]);
            for _ in 0..3 {
                // Not read in between: each event is an edge of its own.
                signal(&original);
                tokio::time::timeout(Duration::from_secs(30), set.woken()).await.unwrap();
            }
        });
    }
}
