//! A wake-up that must be asked for: completion channel semantics over an eventfd.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Signals once for each time it was armed.
#[derive(Debug)]
pub(super) struct Wake {
    fd: Arc<OwnedFd>,
    armed: bool,
    signaled: bool,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd: Arc::new(fd), armed: false, signaled: false })
    }

    pub(super) fn shared_fd(&self) -> Arc<OwnedFd> {
        self.fd.clone()
    }

    #[cfg(test)]
    pub(super) fn is_signaled(&self) -> bool {
        self.signaled
    }

    /// Ask for one signal.
    pub(super) fn arm(&mut self) {
        self.clear();
        self.armed = true;
    }

    /// Something has happened: signal if somebody asked.
    pub(super) fn happened(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.signal();
        }
    }

    /// Signal whether or not somebody asked.
    pub(super) fn signal(&mut self) {
        if !std::mem::replace(&mut self.signaled, true) {
            // The counter is 0 before this write, so it cannot overflow.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }

    /// Take the signal back.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.signaled) {
            let _ = rustix::io::read(&self.fd, &mut [0; 8]);
        }
    }
}

/// Sleep until the descriptor is readable; false when the time is up first.
pub(super) fn sleep_on(fd: &OwnedFd, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).ok();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], timeout.as_ref()).is_ok_and(|n| n == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(wake: &Wake) -> bool {
        sleep_on(&wake.fd, Duration::ZERO)
    }

    #[test]
    fn signals_only_once_and_only_when_armed() {
        let mut wake = Wake::new().unwrap();
        wake.happened();
        assert!(!readable(&wake));
        wake.arm();
        assert!(!readable(&wake));
        wake.happened();
        assert!(readable(&wake));
        wake.clear();
        wake.happened();
        assert!(!readable(&wake));
    }
}
