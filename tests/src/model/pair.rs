//! The model and another backend side by side.

use std::sync::Arc;

use backends::{
    Attributes, Completion, ErrorKind, FileKind, Identity, ObjectHandle, Operation, Outcome,
    attr::{Changes, Timestamp},
    op::CreateHow,
};
use bytes::Bytes;

use super::{
    agree::{self, Disagreement},
    listing,
    steps::{Action, Guard, How, NAMES, Step},
};
use crate::lane::Lane;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Model,
    Other,
}

/// An object on both sides.
#[derive(Debug, Clone, Copy)]
struct Met {
    model: ObjectHandle,
    other: ObjectHandle,
    is_directory: bool,
}

impl Met {
    fn on(&self, side: Side) -> ObjectHandle {
        match side {
            Side::Model => self.model,
            Side::Other => self.other,
        }
    }
}

/// Two backends to which the same is done.
#[derive(Debug)]
pub struct Pair {
    model: Lane,
    other: Lane,
    identities: Vec<Arc<Identity>>,
    objects: Vec<Met>,
    exclusive: u64,
}

/// The users of a run; the first is the superuser.
fn identities() -> Vec<Arc<Identity>> {
    let user = |uid, gid, groups: &[u32]| Arc::new(Identity { uid, gid, groups: groups.into() });
    vec![
        user(0, 0, &[]),
        user(1000, 1000, &[]),
        user(1001, 1000, &[50]),
        user(1002, 1002, &[1000, 7]),
    ]
}

impl Pair {
    /// Two empty file systems; the root directories are opened to everybody.
    ///
    /// # Panics
    /// When that does not work.
    pub fn new(mut model: Lane, mut other: Lane) -> Self {
        let identities = identities();
        for lane in [&mut model, &mut other] {
            let changes = Changes { mode: Some(0o777), ..Changes::default() };
            let object = lane.root();
            let open = Operation::SetAttributes { object, changes, guard: None };
            lane.call(&identities[0], open).result.expect("the root's mode can be set");
        }
        let root = Met { model: model.root(), other: other.root(), is_directory: true };
        Self { model, other, identities, objects: vec![root], exclusive: 0 }
    }

    /// Do all steps, then compare the trees.
    ///
    /// # Errors
    /// The first disagreement.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), Disagreement> {
        for (number, step) in steps.iter().enumerate() {
            self.step(step).map_err(|why| format!("step {number}, {step:?}: {why}"))?;
        }
        listing::trees(&mut self.model, &mut self.other)
    }

    fn step(&mut self, step: &Step) -> Result<(), Disagreement> {
        let who = self.identities[step.who % self.identities.len()].clone();
        match step.action {
            Action::List { directory, plus, page } => self.list(&who, directory, plus, page),
            Action::Create { directory, name, how: How::Exclusive, mode, .. } => {
                self.create_exclusively(&who, directory, name, mode)
            }
            Action::SetAttributes { object, changes, guard } => {
                self.set_attributes(&who, object, changes, guard)
            }
            _ => self.both(&who, |pair, side| pair.operation(&step.action, side)).map(drop),
        }
    }

    fn lane(&mut self, side: Side) -> &mut Lane {
        match side {
            Side::Model => &mut self.model,
            Side::Other => &mut self.other,
        }
    }

    /// Do one operation on both sides and compare. Objects that the model has lost are not tried on the
    /// other side, where an open file may still keep them, and are forgotten.
    fn both(
        &mut self,
        who: &Arc<Identity>,
        operation: impl Fn(&Self, Side) -> Operation,
    ) -> Result<Completion, Disagreement> {
        let to_model = operation(self, Side::Model);
        let to_other = operation(self, Side::Other);
        let model = self.model.call(who, to_model);
        if is_stale(&model) {
            self.forget_lost();
            return Ok(model);
        }
        let other = self.other.call(who, to_other);
        agree::results(&model, &other)?;
        if let (Ok(ours), Ok(theirs)) = (&model.result, &other.result)
            && let (Some((ours, attr)), Some((theirs, _))) = (new_object(ours), new_object(theirs))
        {
            let is_directory = attr.is_some_and(|attr| attr.kind == FileKind::Directory);
            self.meet(Met { model: ours, other: theirs, is_directory })?;
        }
        Ok(model)
    }

    /// Note an object; both sides must agree whether it was met before.
    fn meet(&mut self, met: Met) -> Result<(), Disagreement> {
        let ours = self.objects.iter().position(|known| known.model == met.model);
        let theirs = self.objects.iter().position(|known| known.other == met.other);
        agree::equal("the object that was met before", &ours, &theirs)?;
        if ours.is_none() {
            self.objects.push(met);
        }
        Ok(())
    }

    fn forget_lost(&mut self) {
        let root = self.identities[0].clone();
        let model = &mut self.model;
        self.objects.retain(|met| {
            model.call(&root, Operation::GetAttributes { object: met.model }).result.is_ok()
        });
    }

    fn any(&self, pick: usize) -> Met {
        self.objects[pick % self.objects.len()]
    }

    /// Mostly a directory; now and then anything.
    fn directory(&self, pick: usize) -> Met {
        if pick % 16 == 15 {
            return self.any(pick / 16 + 1);
        }
        let directories: Vec<_> = self.objects.iter().filter(|met| met.is_directory).collect();
        *directories[pick % directories.len()]
    }

    fn list(
        &mut self,
        who: &Arc<Identity>,
        pick: usize,
        plus: bool,
        page: u32,
    ) -> Result<(), Disagreement> {
        let met = self.directory(pick);
        let mut listed = |side| {
            let id = met.on(side);
            let listing = listing::directory(self.lane(side), who, id, plus, page)?;
            Ok(listing.into_keys().collect::<Vec<_>>())
        };
        let model = listed(Side::Model);
        if model == Err(ErrorKind::Stale) {
            self.forget_lost();
            return Ok(());
        }
        let other = listed(Side::Other);
        agree::equal("entries", &model, &other)
    }

    fn create_exclusively(
        &mut self,
        who: &Arc<Identity>,
        directory: usize,
        name: usize,
        mode: u32,
    ) -> Result<(), Disagreement> {
        self.exclusive += 1;
        let how = CreateHow::Exclusive((self.exclusive << 32 | 0x8000_0001).to_be_bytes());
        let parent = self.directory(directory);
        let name = Bytes::from_static(NAMES[name]);
        let mut attempts = Vec::new();
        for _ in 0..2 {
            let create =
                |side| Operation::Create { directory: parent.on(side), name: name.clone(), how };
            let (ours, theirs) = (create(Side::Model), create(Side::Other));
            let (ours, theirs) = (self.model.call(who, ours), self.other.call(who, theirs));
            attempts.push((ours, theirs));
        }
        let stale = |(ours, _): &(Completion, Completion)| is_stale(ours);
        if attempts.iter().any(stale) {
            self.forget_lost();
            return Ok(());
        }
        let created: Vec<_> = attempts
            .iter()
            .map(|(ours, theirs)| (created_object(ours), created_object(theirs)))
            .collect();
        agree::equal("the object of the second attempt", &created[0], &created[1])?;
        let (Some(model), Some(other)) = created[0] else {
            // The mode before the SETATTR is not told by the protocol, so only failures are compared.
            return attempts.iter().try_for_each(|(ours, theirs)| agree::results(ours, theirs));
        };
        self.meet(Met { model, other, is_directory: false })?;
        let met = Met { model, other, is_directory: false };
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        let set = |_: &Self, side| Operation::SetAttributes {
            object: met.on(side),
            changes,
            guard: None,
        };
        self.both(who, set).map(drop)
    }

    fn set_attributes(
        &mut self,
        who: &Arc<Identity>,
        pick: usize,
        changes: Changes,
        guard: Guard,
    ) -> Result<(), Disagreement> {
        let met = self.any(pick);
        let root = self.identities[0].clone();
        let mut changed = |side| {
            let object = met.on(side);
            let found = self.lane(side).call(&root, Operation::GetAttributes { object });
            found.first.after.map(|attr| attr.changed)
        };
        let current = (changed(Side::Model), changed(Side::Other));
        let set = |_: &Self, side| {
            let current = if side == Side::Model { current.0 } else { current.1 };
            let guard = match guard {
                Guard::None => None,
                Guard::Right => current,
                Guard::Wrong => Some(Timestamp { seconds: 1, nanos: 1 }),
            };
            Operation::SetAttributes { object: met.on(side), changes, guard }
        };
        self.both(who, set).map(drop)
    }

    /// The operation of a simple action, for one side.
    fn operation(&self, action: &Action, side: Side) -> Operation {
        let any = |pick| self.any(pick).on(side);
        let directory = |pick| self.directory(pick).on(side);
        let name = |pick: usize| Bytes::from_static(NAMES[pick % NAMES.len()]);
        let with_mode = |mode| Changes { mode: Some(mode), ..Changes::default() };
        match *action {
            Action::GetAttributes { object } => Operation::GetAttributes { object: any(object) },
            Action::Lookup { directory: pick, name: n } => {
                Operation::Lookup { directory: directory(pick), name: name(n) }
            }
            Action::LookupParent { directory: pick } => {
                let name = Bytes::from_static(b"..");
                Operation::Lookup { directory: directory(pick), name }
            }
            Action::Access { object, mask } => Operation::Access { object: any(object), mask },
            Action::ReadLink { object } => Operation::ReadLink { object: any(object) },
            Action::Read { object, offset, count } => {
                let lane = if side == Side::Model { &self.model } else { &self.other };
                let into = lane.buffer(count);
                Operation::Read { object: any(object), offset, count, into, pages: None }
            }
            Action::Write { object, offset, len, fill, stability } => {
                let data: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(7) ^ fill).collect();
                Operation::Write { object: any(object), offset, data: data.into(), stability }
            }
            Action::Commit { object } => {
                Operation::Commit { object: any(object), offset: 0, count: 0 }
            }
            Action::Create { directory: pick, name: n, how, mode, size } => {
                let changes = Changes { size, ..with_mode(mode) };
                let how = match how {
                    How::Unchecked => CreateHow::Unchecked(changes),
                    How::Guarded | How::Exclusive => CreateHow::Guarded(changes),
                };
                Operation::Create { directory: directory(pick), name: name(n), how }
            }
            Action::MakeDirectory { directory: pick, name: n, mode } => {
                let changes = with_mode(mode);
                Operation::MakeDirectory { directory: directory(pick), name: name(n), changes }
            }
            Action::MakeSymlink { directory: pick, name: n, target } => Operation::MakeSymlink {
                directory: directory(pick),
                name: name(n),
                target: name(target),
                changes: Changes::default(),
            },
            Action::MakeNode { directory: pick, name: n, node, mode } => {
                let changes = with_mode(mode);
                Operation::MakeNode { directory: directory(pick), name: name(n), node, changes }
            }
            Action::Remove { directory: pick, name: n } => {
                Operation::Remove { directory: directory(pick), name: name(n) }
            }
            Action::RemoveDirectory { directory: pick, name: n } => {
                Operation::RemoveDirectory { directory: directory(pick), name: name(n) }
            }
            Action::Rename { from, from_name, to, to_name } => Operation::Rename {
                from: directory(from),
                from_name: name(from_name),
                to: directory(to),
                to_name: name(to_name),
            },
            Action::Link { object, directory: pick, name: n } => {
                Operation::Link { object: any(object), directory: directory(pick), name: name(n) }
            }
            Action::SetAttributes { .. } | Action::List { .. } => {
                unreachable!("steps of several operations have their own functions")
            }
        }
    }
}

fn new_object(outcome: &Outcome) -> Option<(ObjectHandle, Option<Attributes>)> {
    match outcome {
        Outcome::Found { object, attributes } => Some((*object, Some(*attributes))),
        Outcome::Created { object, attributes } => Some((*object, *attributes)),
        _ => None,
    }
}

fn is_stale(completion: &Completion) -> bool {
    matches!(&completion.result, Err(error) if error.kind == ErrorKind::Stale)
}

fn created_object(completion: &Completion) -> Option<ObjectHandle> {
    completion.result.as_ref().ok().and_then(new_object).map(|(object, _)| object)
}
