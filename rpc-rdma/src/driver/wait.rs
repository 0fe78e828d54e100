//! One descriptor for everything that can wake a lane.
//!
//! The descriptors of rings, completion queues and the lane's alarm are watched edge-triggered by an epoll
//! set, and the set itself by tokio. Edge-triggered, so that a descriptor whose owner does not read it (an
//! event counter) wakes the lane once for each event and not for ever.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
};

use rustix::event::epoll;
use tokio::io::{Interest, unix::AsyncFd};

/// The set.
#[derive(Debug)]
pub struct WaitSet {
    epoll: AsyncFd<OwnedFd>,
    watched: BTreeSet<RawFd>,
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
        Ok(Self {
            epoll: AsyncFd::with_interest(epoll, Interest::READABLE)?,
            watched: BTreeSet::new(),
        })
    }

    /// Watch exactly these descriptors. Those that their owners have closed have left the set by
    /// themselves; a number that was closed and given out anew is added again.
    pub fn watch(&mut self, fds: &[RawFd]) {
        let wanted: BTreeSet<RawFd> = fds.iter().copied().collect();
        for fd in self.watched.difference(&wanted) {
            let _ = epoll::delete(self.epoll.get_ref(), borrow(*fd));
        }
        for &fd in &wanted {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(0);
            match epoll::add(self.epoll.get_ref(), borrow(fd), data, flags) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => tracing::warn!(fd, %error, "cannot watch a wake-up descriptor"),
            }
        }
        self.watched = wanted;
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

#[allow(unsafe_code)]
fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the borrow lives for one epoll_ctl call. Should the owner have closed the number, the kernel
    // answers EBADF or adds another open descriptor of this process, which wakes the lane needlessly; no
    // memory depends on it.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsRawFd, time::Duration};

    use super::*;
    use crate::driver::wake::LaneWaker;

    #[test]
    fn an_unread_event_wakes_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let waker = LaneWaker::new().unwrap();
            let mut set = WaitSet::new().unwrap();
            set.watch(&[waker.event().as_raw_fd()]);
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
}
