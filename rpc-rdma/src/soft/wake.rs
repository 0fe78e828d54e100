//! A wake-up that must be asked for: completion channel semantics over an eventfd.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use rustix::event::{EventfdFlags, eventfd};

/// Signals once for each time it was armed.
#[derive(Debug)]
pub(super) struct Wake {
    fd: OwnedFd,
    armed: bool,
    signaled: bool,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, armed: false, signaled: false })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
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

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(wake: &Wake) -> bool {
        let mut fds = [PollFd::new(&wake.fd, PollFlags::IN)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&zero)).is_ok_and(|n| n == 1)
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
