//! One synchronous implementation of every operation, for a thread that may block. Data is moved elsewhere
//! ([`super::transfer`]): here a file is only opened for it.

use std::sync::Arc;

use rustix::fs::AtFlags;

use crate::{
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    identity::Identity,
    op::{Completion, Operation, Outcome, Request},
};

use super::{
    backend::{Arounds, LocalBackend},
    inbox::completion,
    open_file::{OpenFile, Purpose},
    settings::IoMode,
};

impl LocalBackend {
    /// Do everything that is not READ, WRITE or COMMIT.
    pub(super) fn perform(&self, request: Request) -> Completion {
        let mut around = Arounds::default();
        let result = self.dispatch(&request.identity, &request.operation, &mut around);
        if let Err(error) = &result
            && error.kind == ErrorKind::Stale
            && let Some(handle) = subject(&request.operation)
        {
            self.cache.remove(&handle);
        }
        completion(request.token, result, around)
    }

    fn dispatch(
        &self,
        who: &Arc<Identity>,
        operation: &Operation,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        match operation {
            Operation::GetAttributes { object } => {
                self.get_attributes(&*self.resolve(object)?, around)
            }
            Operation::SetAttributes { object, changes, guard } => {
                self.set_attributes(who, &*self.resolve(object)?, changes, *guard, around)
            }
            Operation::Lookup { directory, name } => {
                self.lookup(who, &self.resolve(directory)?, name, false, around)
            }
            Operation::Access { object, mask } => {
                self.access(who, &*self.resolve(object)?, *mask, around)
            }
            Operation::ReadLink { object } => self.read_link(&*self.resolve(object)?, around),
            Operation::ReadDirectory(asked) => {
                self.read_directory(who, &*self.resolve(&asked.directory)?, asked, around)
            }
            Operation::FileSystemSpace { object } => self.space(&*self.resolve(object)?, around),
            Operation::Read { .. } | Operation::Write { .. } | Operation::Commit { .. } => {
                Err(BackendError::new(ErrorKind::ServerFault, "data outside a transfer"))
            }
            _ => self.change_names(who, operation, around),
        }
    }

    fn change_names(
        &self,
        who: &Arc<Identity>,
        operation: &Operation,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        match operation {
            Operation::Create { directory, name, how } => {
                self.create(who, &*self.resolve(directory)?, name, *how, around)
            }
            Operation::MakeDirectory { directory, name, changes } => {
                self.make_directory(who, &*self.resolve(directory)?, name, changes, around)
            }
            Operation::MakeSymlink { directory, name, target, changes } => {
                let directory = self.resolve(directory)?;
                self.make_symlink(who, &directory, name, target, changes, around)
            }
            Operation::MakeNode { directory, name, node, changes } => {
                self.make_node(who, &*self.resolve(directory)?, name, *node, changes, around)
            }
            Operation::Remove { directory, name } => {
                self.remove(who, &*self.resolve(directory)?, name, AtFlags::empty(), around)
            }
            Operation::RemoveDirectory { directory, name } => {
                self.remove(who, &*self.resolve(directory)?, name, AtFlags::REMOVEDIR, around)
            }
            Operation::Rename { from, from_name, to, to_name } => {
                let (from, to) = (self.resolve(from)?, self.resolve(to)?);
                self.rename(who, (&*from, &from_name[..]), (&*to, &to_name[..]), around)
            }
            Operation::Link { object, directory, name } => {
                let (file, directory) = (self.resolve(object)?, self.resolve(directory)?);
                self.link(who, &file, &directory, name, around)
            }
            _ => Err(BackendError::new(ErrorKind::NotSupported, "operation")),
        }
    }

    /// Open what a READ, WRITE or COMMIT needs.
    pub(super) fn prepare(&self, operation: &Operation) -> Result<Arc<OpenFile>, BackendError> {
        let handle = subject(operation)
            .ok_or_else(|| BackendError::new(ErrorKind::ServerFault, "prepare"))?;
        let file = self.resolve(&handle)?;
        match operation {
            Operation::Read { .. } => {
                // A file that the process may not read is refused by the permission check, or here.
                file.open(Purpose::Read)?;
                if self.settings.io_mode == IoMode::Direct {
                    self.open_direct(&file, Purpose::DirectRead)?;
                }
            }
            Operation::Write { .. } => {
                // COMMIT has a descriptor of its own, so that no other sync takes its error away.
                let _ = file.open(Purpose::Read);
                file.open(Purpose::Write)?;
                if self.settings.io_mode == IoMode::Direct {
                    self.open_direct(&file, Purpose::DirectWrite)?;
                }
            }
            _ => {
                if file.open(Purpose::Read).is_err() {
                    file.open(Purpose::Write)?;
                }
            }
        }
        Ok(file)
    }

    fn open_direct(&self, file: &OpenFile, purpose: Purpose) -> Result<(), BackendError> {
        if file.open(purpose)?.is_none()
            && !self.direct_missing_logged.swap(true, std::sync::atomic::Ordering::Relaxed)
        {
            tracing::warn!(
                path = %self.settings.root.display(),
                "the file system has no direct I/O; data goes through the page cache"
            );
        }
        Ok(())
    }
}

/// The object, or the first directory, that an operation is about.
pub(super) fn subject(operation: &Operation) -> Option<ObjectHandle> {
    Some(match operation {
        Operation::GetAttributes { object }
        | Operation::SetAttributes { object, .. }
        | Operation::Access { object, .. }
        | Operation::ReadLink { object }
        | Operation::Read { object, .. }
        | Operation::Write { object, .. }
        | Operation::Commit { object, .. }
        | Operation::Link { object, .. }
        | Operation::FileSystemSpace { object } => *object,
        Operation::Lookup { directory, .. }
        | Operation::Create { directory, .. }
        | Operation::MakeDirectory { directory, .. }
        | Operation::MakeSymlink { directory, .. }
        | Operation::MakeNode { directory, .. }
        | Operation::Remove { directory, .. }
        | Operation::RemoveDirectory { directory, .. } => *directory,
        Operation::Rename { from, .. } => *from,
        Operation::ReadDirectory(asked) => asked.directory,
    })
}
