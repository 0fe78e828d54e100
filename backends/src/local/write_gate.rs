//! Keeps buffered writes of a file apart from direct ones.
//!
//! A direct write drops the page cache over its range when it is done. If a buffered write of a neighbouring
//! range re-creates one of those pages meanwhile, the page can outlive the direct write with old bytes. So in
//! direct mode writes that touch the page cache run alone, and wholly direct ones run together. Nobody blocks:
//! whoever must wait leaves a note and is called when the gate opens, first come, first served.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, PoisonError},
};

/// How a write wants to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Together with others of this kind.
    Shared,
    /// Alone.
    Alone,
}

/// Called when the gate has let the waiting write in. False: nobody is there any more to use it.
pub type Notify = Box<dyn FnOnce() -> bool + Send>;

#[derive(Default)]
struct State {
    shared: usize,
    alone: bool,
    waiting: VecDeque<(Pass, Notify)>,
}

/// The gate of one file.
#[derive(Default)]
pub struct WriteGate(Mutex<State>);

impl fmt::Debug for WriteGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WriteGate")
    }
}

impl State {
    fn admit(&mut self, pass: Pass) -> bool {
        match pass {
            Pass::Shared if !self.alone => self.shared += 1,
            Pass::Alone if !self.alone && self.shared == 0 => self.alone = true,
            _ => return false,
        }
        true
    }
}

impl WriteGate {
    /// Pass now (true), or be called by `notify` once let in (false). Either way [`WriteGate::leave`] follows.
    pub fn enter(&self, pass: Pass, notify: impl FnOnce() -> bool + Send + 'static) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.is_empty() && state.admit(pass) {
            return true;
        }
        state.waiting.push_back((pass, Box::new(notify)));
        false
    }

    /// A write that had passed is done.
    pub fn leave(&self, pass: Pass) {
        let mut ready = Vec::new();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pass {
            Pass::Shared => state.shared = state.shared.saturating_sub(1),
            Pass::Alone => state.alone = false,
        }
        while let Some((pass, notify)) = state.waiting.pop_front() {
            if !state.admit(pass) {
                state.waiting.push_front((pass, notify));
                break;
            }
            ready.push((pass, notify));
        }
        drop(state);
        for (pass, notify) in ready {
            if !notify() {
                self.leave(pass);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn alone_means_alone_and_order_holds() {
        let gate = WriteGate::default();
        let log = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let log = log.clone();
            move || {
                log.lock().unwrap().push(name);
                true
            }
        };
        assert!(gate.enter(Pass::Shared, || true));
        assert!(gate.enter(Pass::Shared, || true));
        assert!(!gate.enter(Pass::Alone, note("alone")));
        // Does not overtake the one that waits.
        assert!(!gate.enter(Pass::Shared, note("shared")));
        gate.leave(Pass::Shared);
        assert!(log.lock().unwrap().is_empty());
        gate.leave(Pass::Shared);
        assert_eq!(*log.lock().unwrap(), ["alone"]);
        gate.leave(Pass::Alone);
        assert_eq!(*log.lock().unwrap(), ["alone", "shared"]);
        gate.leave(Pass::Shared);
        assert!(gate.enter(Pass::Alone, || true));
    }

    #[test]
    fn whoever_has_gone_away_does_not_hold_the_gate() {
        let gate = WriteGate::default();
        assert!(gate.enter(Pass::Alone, || true));
        assert!(!gate.enter(Pass::Alone, || false));
        assert!(!gate.enter(Pass::Shared, || false));
        gate.leave(Pass::Alone);
        assert!(gate.enter(Pass::Alone, || true));
    }
}
