//! Wakes a lane when a delay is over: one thread for each lane that has delays.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    sync::mpsc::{self, RecvTimeoutError},
    task::Waker,
    thread,
    time::Instant,
};

/// The alarm clock of one lane. Its thread ends when it is dropped.
#[derive(Debug)]
pub(super) struct Alarm {
    deadlines: mpsc::Sender<Instant>,
}

impl Alarm {
    pub(super) fn start(waker: Waker) -> io::Result<Self> {
        let (deadlines, set) = mpsc::channel();
        thread::Builder::new().name("fault-alarm".into()).spawn(move || run(&set, &waker))?;
        Ok(Self { deadlines })
    }

    /// Wake the lane at `deadline`.
    pub(super) fn set(&self, deadline: Instant) {
        // The thread lives as long as the sender.
        let _ = self.deadlines.send(deadline);
    }
}

fn run(set: &mpsc::Receiver<Instant>, waker: &Waker) {
    let mut pending: BinaryHeap<Reverse<Instant>> = BinaryHeap::new();
    loop {
        let next = match pending.peek() {
            None => set.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(&Reverse(first)) => {
                set.recv_timeout(first.saturating_duration_since(Instant::now()))
            }
        };
        match next {
            Ok(deadline) => pending.push(Reverse(deadline)),
            Err(RecvTimeoutError::Timeout) => {
                pending.pop();
                waker.wake_by_ref();
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
