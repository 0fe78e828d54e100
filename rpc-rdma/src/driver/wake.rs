//! Waking a lane from another thread.
//!
//! The write to the event descriptor costs a system call, so it is made only when the lane says that it is
//! going to sleep. The order of the two flags closes the race: the sleeper announces itself and then looks
//! for a pending wake, the waker leaves a pending wake and then looks for a sleeper.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

use rustix::event::{EventfdFlags, eventfd};

/// One lane's alarm.
#[derive(Debug)]
pub struct LaneWaker {
    event: Arc<OwnedFd>,
    sleeping: AtomicBool,
    pending: AtomicBool,
}

impl LaneWaker {
    /// A new alarm.
    ///
    /// # Errors
    /// When no descriptor is to be had.
    pub fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self {
            event: Arc::new(event),
            sleeping: AtomicBool::new(false),
            pending: AtomicBool::new(false),
        }))
    }

    /// The descriptor that becomes readable.
    pub fn event(&self) -> Arc<OwnedFd> {
        self.event.clone()
    }

    /// The standard form.
    pub fn waker(self: &Arc<Self>) -> Waker {
        self.clone().into()
    }

    /// The lane is going to sleep. False: somebody has called meanwhile, do not.
    pub fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        !self.pending.load(Ordering::SeqCst)
    }

    /// The lane is awake and looks at everything.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.pending.store(false, Ordering::SeqCst);
    }

    fn call(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // A full counter (the only other failure) means that the wake-up is under way already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl Wake for LaneWaker {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(waker: &LaneWaker) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(waker.event(), &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    #[test]
    fn an_awake_lane_costs_no_system_call() {
        let waker = LaneWaker::new().unwrap();
        waker.waker().wake_by_ref();
        assert_eq!(events(&waker), 0);
        assert!(!waker.prepare_sleep(), "the wake before the sleep is not lost");
    }

    #[test]
    fn a_sleeping_lane_is_woken_once() {
        let waker = LaneWaker::new().unwrap();
        assert!(waker.prepare_sleep());
        waker.waker().wake_by_ref();
        waker.waker().wake_by_ref();
        assert_eq!(events(&waker), 1);
        waker.awake();
        assert!(waker.prepare_sleep());
    }
}
