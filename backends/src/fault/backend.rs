//! The wrapper: decides at submission what shall go wrong, and sees to it.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Instant,
};

use super::{
    alarm::Alarm,
    chance::Chance,
    held::{Delay, Held},
    plan::{Fault, FaultPlan, Rule, Trigger},
};
use crate::{
    backend::{Backend, Capabilities, LaneBackend, LaneResources},
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    op::{Completion, Operation, Request, Token},
};

/// A backend with which things go wrong by plan.
#[derive(Debug)]
pub struct FaultBackend {
    inner: Arc<dyn Backend>,
    seed: u64,
    rules: Vec<CountedRule>,
    lanes: AtomicU64,
    injected: AtomicU64,
}

#[derive(Debug)]
struct CountedRule {
    rule: Rule,
    seen: AtomicU64,
}

impl CountedRule {
    fn hits(&self, operation: &'static str, chance: &mut Chance) -> bool {
        if self.rule.operation.as_deref().is_some_and(|wanted| wanted != operation) {
            return false;
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        match self.rule.trigger {
            Trigger::Chance { hits, of } => chance.below(of) < hits,
            Trigger::Occurrence(at) => seen == at,
        }
    }
}

/// What shall happen to one operation.
#[derive(Debug, Clone, Copy, Default)]
struct Fate {
    fail_before: Option<ErrorKind>,
    fail_after: Option<ErrorKind>,
    delay: Option<Delay>,
    short: bool,
}

impl FaultBackend {
    /// Wrap `inner`.
    pub fn wrap(inner: Arc<dyn Backend>, plan: FaultPlan) -> Arc<Self> {
        let counted = |rule| CountedRule { rule, seen: AtomicU64::new(0) };
        Arc::new(Self {
            inner,
            seed: plan.seed,
            rules: plan.rules.into_iter().map(counted).collect(),
            lanes: AtomicU64::new(0),
            injected: AtomicU64::new(0),
        })
    }

    /// How many faults have been injected so far.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    fn decide(&self, operation: &'static str, chance: &mut Chance) -> Fate {
        let mut fate = Fate::default();
        for counted in &self.rules {
            if !counted.hits(operation, chance) {
                continue;
            }
            self.injected.fetch_add(1, Ordering::Relaxed);
            let failing = fate.fail_before.is_some() || fate.fail_after.is_some();
            match counted.rule.fault {
                Fault::FailBefore(kind) if !failing => fate.fail_before = Some(kind),
                Fault::FailAfter(kind) if !failing => fate.fail_after = Some(kind),
                Fault::FailBefore(_) | Fault::FailAfter(_) => {}
                Fault::Delay(time) => fate.delay = fate.delay.or(Some(Delay::Time(time))),
                Fault::Hold(polls) => fate.delay = fate.delay.or(Some(Delay::Polls(polls))),
                Fault::Reorder => fate.delay = fate.delay.or(Some(Delay::reorder(chance))),
                Fault::Short => fate.short = true,
            }
        }
        fate
    }

    fn has_delays(&self) -> bool {
        self.rules.iter().any(|counted| matches!(counted.rule.fault, Fault::Delay(_)))
    }
}

impl Backend for FaultBackend {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn root(&self) -> ObjectHandle {
        self.inner.root()
    }

    fn attach(self: Arc<Self>, lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
        let inner = self.inner.clone().attach(lane)?;
        let number = self.lanes.fetch_add(1, Ordering::Relaxed);
        let alarm = self.has_delays().then(|| Alarm::start(lane.waker.clone())).transpose()?;
        Ok(Box::new(FaultLane {
            chance: Chance::new(self.seed ^ number.rotate_left(32)),
            shared: self,
            inner,
            under_way: HashMap::new(),
            held: Held::default(),
            waker: lane.waker.clone(),
            alarm,
            arrived: Vec::new(),
        }))
    }
}

/// A lane's half.
#[derive(Debug)]
struct FaultLane {
    shared: Arc<FaultBackend>,
    inner: Box<dyn LaneBackend>,
    chance: Chance,
    /// Operations that the inner backend has not finished and that shall not come back as they are.
    under_way: HashMap<Token, Fate>,
    held: Held,
    waker: Waker,
    alarm: Option<Alarm>,
    arrived: Vec<Completion>,
}

impl FaultLane {
    /// Change a finished operation as decided, and give it back or keep it.
    fn finish(&mut self, mut completion: Completion, fate: Fate) -> Option<Completion> {
        if let Some(kind) = fate.fail_after {
            let error = BackendError::new(kind, "injected after");
            completion = Completion::failed(completion.token, error);
        }
        let Some(delay) = fate.delay else { return Some(completion) };
        let deadline = self.held.keep(completion, delay, Instant::now());
        match (deadline, &self.alarm) {
            (Some(deadline), Some(alarm)) => alarm.set(deadline),
            _ => self.waker.wake_by_ref(),
        }
        None
    }
}

impl LaneBackend for FaultLane {
    fn submit(&mut self, mut request: Request) -> Option<Completion> {
        let fate = self.shared.decide(request.operation.name(), &mut self.chance);
        if let Some(kind) = fate.fail_before {
            let error = BackendError::new(kind, "injected before");
            return self.finish(Completion::failed(request.token, error), fate);
        }
        if fate.short {
            shorten(&mut request.operation, &mut self.chance);
        }
        let token = request.token;
        match self.inner.submit(request) {
            Some(completion) => self.finish(completion, fate),
            None => {
                if fate.fail_after.is_some() || fate.delay.is_some() {
                    self.under_way.insert(token, fate);
                }
                None
            }
        }
    }

    fn completions(&mut self, out: &mut Vec<Completion>) {
        self.held.poll(Instant::now(), out);
        let mut arrived = std::mem::take(&mut self.arrived);
        self.inner.completions(&mut arrived);
        for completion in arrived.drain(..) {
            let fate = self.under_way.remove(&completion.token).unwrap_or_default();
            out.extend(self.finish(completion, fate));
        }
        self.arrived = arrived;
        if self.held.wants_polls() {
            self.waker.wake_by_ref();
        }
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        self.inner.wake_fds()
    }
}

/// Make a READ or WRITE smaller, but not empty. What comes back is then true for the smaller operation:
/// the end of the file is reported only when it was reached.
fn shorten(operation: &mut Operation, chance: &mut Chance) {
    match operation {
        Operation::Read { count, .. } if *count > 1 => {
            let less = chance.below(u64::from(*count) - 1) + 1;
            *count = u32::try_from(less).unwrap_or(*count);
        }
        Operation::Write { data, .. } if data.len() > 1 => {
            let less = chance.below(data.len() as u64 - 1) + 1;
            data.truncate(usize::try_from(less).unwrap_or(data.len()));
        }
        _ => {}
    }
}
