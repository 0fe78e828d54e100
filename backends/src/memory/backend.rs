//! The two halves of the backend trait over the tree.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    settings::MemorySettings,
    tree::{FILE_BYTES_MAX, Id, LINKS_MAX, ROOT, Tree},
};
use crate::{
    attr::{Around, Before, Timestamp},
    backend::{Backend, Capabilities, LaneBackend, LaneResources},
    error::BackendError,
    handle::ObjectHandle,
    identity::Identity,
    op::{Completion, NAME_BYTES_MAX, Operation, Outcome, Request},
};

/// A file system in memory.
pub struct MemoryBackend {
    root: ObjectHandle,
    tree: Mutex<Tree>,
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").finish_non_exhaustive()
    }
}

impl MemoryBackend {
    /// An empty file system.
    pub fn new(settings: MemorySettings) -> Arc<Self> {
        let tree = Tree::new(&settings);
        Arc::new(Self { root: tree.handle(ROOT), tree: Mutex::new(tree) })
    }

    /// Behave as a server that loses its power and starts again: data that was written as unstable and not
    /// committed since is gone, and the write verifier is another one. For tests.
    pub fn crash(&self) {
        self.tree().crash();
    }

    /// Carry out one operation.
    pub fn execute(&self, request: Request) -> Completion {
        let Request { token, identity, operation } = request;
        let mut tree = self.tree();
        let step = operation.name();
        let (first, second) = operation.objects();
        let resolved = tree.resolve(&first, step).and_then(|first| match &second {
            Some(second) => Ok((first, Some(tree.resolve(second, step)?))),
            None => Ok((first, None)),
        });
        let (first, second) = match resolved {
            Ok(ids) => ids,
            Err(error) => return Completion::failed(token, error),
        };
        let mutation = operation.is_mutation();
        let before = |id| tree.before(id).filter(|_| mutation);
        let (first_before, second_before) = (before(first), second.and_then(before));
        let result = tree.run(&identity, (first, second.unwrap_or(first)), operation);
        let around = |id, before| Around { before, after: tree.attributes(id, step).ok() };
        Completion {
            token,
            result,
            first: around(first, first_before),
            second: second.map(|id| around(id, second_before)).unwrap_or_default(),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        // Nothing in the tree panics half-way through a change; should it ever happen, going on with the
        // tree as it is beats failing every later request.
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn before(&self, id: Id) -> Option<Before> {
        self.attributes(id, "before").ok().map(|attr| Before::from(&attr))
    }

    /// Carry out an operation on its objects. `second` is meaningful for RENAME and LINK only.
    fn run(
        &mut self,
        who: &Identity,
        (first, second): (Id, Id),
        operation: Operation,
    ) -> Result<Outcome, BackendError> {
        match operation {
            Operation::GetAttributes { .. } => Ok(Outcome::Done),
            Operation::SetAttributes { changes, guard, .. } => {
                self.set_attributes(who, first, &changes, guard)
            }
            Operation::Lookup { name, .. } => self.lookup(who, first, &name),
            Operation::Access { mask, .. } => self.access(who, first, mask),
            Operation::ReadLink { .. } => self.read_link(first),
            Operation::Read { offset, count, into, .. } => {
                self.read(who, first, (offset, count), into)
            }
            Operation::Write { offset, data, stability, .. } => {
                self.write(who, first, (offset, &data), stability)
            }
            Operation::Commit { .. } => self.commit(who, first),
            Operation::Create { name, how, .. } => self.create(who, first, name, how),
            Operation::MakeDirectory { name, changes, .. } => {
                self.make_directory(who, first, name, &changes)
            }
            Operation::MakeSymlink { name, target, changes, .. } => {
                self.make_symlink(who, first, name, target, &changes)
            }
            Operation::MakeNode { name, node, changes, .. } => {
                self.make_node(who, first, name, node, &changes)
            }
            Operation::Remove { name, .. } => self.remove(who, first, &name),
            Operation::RemoveDirectory { name, .. } => self.remove_directory(who, first, &name),
            Operation::Rename { from_name, to_name, .. } => {
                self.rename(who, (first, &from_name), (second, to_name))
            }
            Operation::Link { name, .. } => self.link(who, first, second, name),
            Operation::ReadDirectory(args) => self.read_directory(who, first, &args),
            Operation::FileSystemSpace { .. } => Ok(Outcome::Space(self.space())),
        }
    }
}

impl Backend for MemoryBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            hard_links: true,
            symlinks: true,
            special_files: true,
            set_times: true,
            unstable_writes: true,
            read_only: false,
            file_bytes_max: FILE_BYTES_MAX,
            name_bytes_max: NAME_BYTES_MAX as u32,
            links_max: LINKS_MAX,
            time_granularity: Timestamp { seconds: 0, nanos: 1 },
        }
    }

    fn root(&self) -> ObjectHandle {
        self.root
    }

    fn attach(self: Arc<Self>, _lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
        Ok(Box::new(MemoryLane { backend: self }))
    }
}

/// A lane's half: it has nothing of its own.
#[derive(Debug)]
struct MemoryLane {
    backend: Arc<MemoryBackend>,
}

impl LaneBackend for MemoryLane {
    fn submit(&mut self, request: Request) -> Option<Completion> {
        Some(self.backend.execute(request))
    }

    fn completions(&mut self, _out: &mut Vec<Completion>) {}
}
