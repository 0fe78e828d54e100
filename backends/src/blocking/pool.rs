//! Fixed threads, one bounded queue.
//!
//! All lanes share the pool. A lane that finds the queue full keeps the job in its own queue and is woken when
//! there is room: nothing is dropped, nobody blocks. A job that panics costs its own answer only: the job's
//! answer guard reports the fault, identities are put back by their guards, and the worker goes on.

use std::{
    collections::VecDeque,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::Waker,
    thread::JoinHandle,
};

use super::creds;

/// Work for a pool thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads that a pool may have at most.
pub const THREADS_MAX: usize = 1024;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Lanes that found the queue full.
    waiting: Vec<Waker>,
    closed: bool,
}

struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    jobs_max: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so a poisoned lock guards a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pool. Dropping it lets the queued jobs finish and ends the threads.
pub struct BlockingPool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool")
            .field("jobs_max", &self.queue.jobs_max)
            .finish_non_exhaustive()
    }
}

impl BlockingPool {
    /// Start `threads` threads (at least 1) over a queue of at most `queue_max` jobs (at least 1).
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(threads: usize, queue_max: usize) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            filled: Condvar::new(),
            jobs_max: queue_max.max(1),
        });
        let pool = Self { queue: queue.clone(), threads: Mutex::default() };
        for index in 0..threads.clamp(1, THREADS_MAX) {
            let queue = queue.clone();
            let thread = std::thread::Builder::new()
                .name(format!("blocking-{index}"))
                .spawn(move || work(&queue))?;
            pool.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(Arc::new(pool))
    }

    /// Queue `job`. A full queue gives it back, and wakes `waker` when there is room again.
    ///
    /// # Errors
    /// The job, when the queue is full.
    pub fn submit(&self, job: Job, waker: &Waker) -> Result<(), Job> {
        let mut state = self.queue.lock();
        if state.jobs.len() >= self.queue.jobs_max {
            if !state.waiting.iter().any(|known| known.will_wake(waker)) {
                state.waiting.push(waker.clone());
            }
            return Err(job);
        }
        state.jobs.push_back(job);
        drop(state);
        self.queue.filled.notify_one();
        Ok(())
    }

    /// Jobs that wait for a thread.
    pub fn queued(&self) -> usize {
        self.queue.lock().jobs.len()
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.filled.notify_all();
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // The last reference may die in a job; a thread cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

fn work(queue: &Queue) {
    if creds::can_switch() {
        creds::drop_resource_rights();
    }
    while let Some((job, waiting)) = next(queue) {
        waiting.into_iter().for_each(Waker::wake);
        if catch_unwind(AssertUnwindSafe(job)).is_err() {
            tracing::error!(
                "a job of the blocking pool panicked; its request is answered with a fault"
            );
        }
    }
}

fn next(queue: &Queue) -> Option<(Job, Vec<Waker>)> {
    let mut state = queue.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            return Some((job, std::mem::take(&mut state.waiting)));
        }
        if state.closed {
            return None;
        }
        state = queue.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicUsize, Ordering},
            mpsc,
        },
        task::Wake,
        time::Duration,
    };

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_full_queue_gives_the_job_back_and_wakes() {
        let pool = BlockingPool::start(1, 1).unwrap();
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(counter.clone());
        let (started, has_started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let blocker = move || {
            started.send(()).unwrap();
            released.recv().unwrap();
        };
        assert!(pool.submit(Box::new(blocker), &waker).is_ok());
        has_started.recv().unwrap();
        assert!(pool.submit(Box::new(|| ()), &waker).is_ok());
        let refused = pool.submit(Box::new(|| ()), &waker);
        let Err(job) = refused else { panic!("the queue holds one job") };
        assert_eq!(counter.0.load(Ordering::SeqCst), 0);
        release.send(()).unwrap();
        while counter.0.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(pool.submit(job, &waker).is_ok());
    }

    #[test]
    fn a_panicking_job_does_not_cost_a_thread() {
        let pool = BlockingPool::start(1, 8).unwrap();
        assert!(pool.submit(Box::new(|| panic!("meant")), Waker::noop()).is_ok());
        let (sender, receiver) = mpsc::channel();
        assert!(pool.submit(Box::new(move || sender.send(7).unwrap()), Waker::noop()).is_ok());
        assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap(), 7);
    }

    #[test]
    fn dropping_finishes_what_is_queued() {
        let pool = BlockingPool::start(2, 100).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let done = done.clone();
            let job = move || {
                done.fetch_add(1, Ordering::SeqCst);
            };
            assert!(pool.submit(Box::new(job), Waker::noop()).is_ok());
        }
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), 50);
    }
}
