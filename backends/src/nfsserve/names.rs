//! Operations on directory entries. The interface has no conditions, so operations that look first and act
//! then exclude each other by a lock; operations from outside the gateway can still come between.

use ::nfsserve::{
    nfs::{fattr3, fileid3},
    vfs::NFSFileSystem,
};

use super::{
    backend::{Result, Shared},
    convert,
};
use crate::{
    attr::{Attributes, Changes, FileKind},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{CreateHow, LINK_BYTES_MAX, NAME_BYTES_MAX, Outcome},
    permission::{self, EXECUTE, SET_GID, WRITE},
};

/// Deepest directory that a rename climbs up from, to see that nothing is moved below itself.
const DEPTH_MAX: usize = 4096;

fn fail<T>(kind: ErrorKind, step: &'static str) -> Result<T> {
    Err(BackendError::new(kind, step))
}

impl<F: NFSFileSystem + Send + Sync> Shared<F> {
    /// Attributes of a directory that the caller may search.
    async fn search(&self, who: &Identity, id: fileid3, step: &'static str) -> Result<Attributes> {
        let attr = self.attributes(id, step).await?;
        if attr.kind != FileKind::Directory {
            return fail(ErrorKind::NotDirectory, step);
        }
        permission::require(who, &attr, EXECUTE, step)?;
        Ok(attr)
    }

    /// What a name leads to, if anything.
    async fn entry(
        &self,
        directory: fileid3,
        name: &[u8],
        step: &'static str,
    ) -> Result<Option<Attributes>> {
        if name.len() > NAME_BYTES_MAX {
            return fail(ErrorKind::NameTooLong, step);
        }
        let id = match self.fs.lookup(directory, &name.into()).await {
            Ok(id) => id,
            Err(status) if convert::kind(status) == ErrorKind::NotFound => return Ok(None),
            Err(status) => return Err(convert::error(step)(status)),
        };
        let attr = self.fs.getattr(id).await.map_err(convert::error(step))?;
        Ok(Some(Attributes { file_id: id, ..convert::attributes(&attr) }))
    }

    async fn existing(
        &self,
        directory: fileid3,
        name: &[u8],
        step: &'static str,
    ) -> Result<Attributes> {
        let found = self.entry(directory, name, step).await?;
        found.ok_or_else(|| BackendError::new(ErrorKind::NotFound, step))
    }

    pub(super) async fn lookup(
        &self,
        who: &Identity,
        directory: fileid3,
        name: &[u8],
    ) -> Result<Outcome> {
        let attr = self.search(who, directory, "lookup").await?;
        let attributes = match name {
            b"." => Attributes { file_id: directory, ..attr },
            b".." => self.parent(directory).await?,
            _ => self.existing(directory, name, "lookup").await?,
        };
        Ok(Outcome::Found { object: convert::handle(attributes.file_id), attributes })
    }

    pub(super) async fn create(
        &self,
        who: &Identity,
        directory: fileid3,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Outcome> {
        let step = "create";
        let (changes, guarded) = match how {
            CreateHow::Unchecked(changes) => (changes, false),
            CreateHow::Guarded(changes) => (changes, true),
            CreateHow::Exclusive(_) => return fail(ErrorKind::NotSupported, step),
        };
        let _alone = self.names.lock().await;
        let parent = self.search(who, directory, step).await?;
        if let Some(found) = self.entry(directory, name, step).await? {
            if guarded || found.kind != FileKind::Regular {
                return fail(ErrorKind::Exists, step);
            }
            let only_size = Changes { size: changes.size, ..Changes::default() };
            self.apply_changes(who, &found, &only_size, step).await?;
            let attributes = Some(self.attributes(found.file_id, step).await?);
            return Ok(Outcome::Created { object: convert::handle(found.file_id), attributes });
        }
        let changes = complete(who, &parent, &changes, 0o600, step)?;
        let set = convert::set_attributes(&changes);
        let created = self.fs.create(directory, &name.into(), set).await;
        Ok(made(created.map_err(convert::error(step))?))
    }

    /// See that a name is free and the caller may add it; returns the attributes of the new object.
    async fn prepare(
        &self,
        who: &Identity,
        directory: fileid3,
        name: &[u8],
        (changes, default_mode): (&Changes, u32),
        step: &'static str,
    ) -> Result<Changes> {
        let parent = self.search(who, directory, step).await?;
        if self.entry(directory, name, step).await?.is_some() {
            return fail(ErrorKind::Exists, step);
        }
        let mut complete = complete(who, &parent, changes, default_mode, step)?;
        complete.size = None;
        Ok(complete)
    }

    pub(super) async fn make_directory(
        &self,
        who: &Identity,
        directory: fileid3,
        name: &[u8],
        changes: &Changes,
    ) -> Result<Outcome> {
        let step = "mkdir";
        let _alone = self.names.lock().await;
        let mut changes = self.prepare(who, directory, name, (changes, 0o700), step).await?;
        let inherited = self.attributes(directory, step).await?.mode & SET_GID;
        changes.mode = changes.mode.map(|mode| mode | inherited);
        let made = self.fs.mkdir(directory, &name.into()).await;
        let (id, _) = made.map_err(convert::error(step))?;
        // The interface makes directories without attributes. One that belongs to the wrong user must not
        // stay.
        match self.fs.setattr(id, convert::set_attributes(&changes)).await {
            Ok(attr) => Ok(self::made((id, attr))),
            Err(status) => {
                if let Err(undo) = self.fs.remove(directory, &name.into()).await {
                    tracing::warn!(
                        id,
                        ?undo,
                        "a directory without its owner and mode stays behind"
                    );
                }
                Err(convert::error(step)(status))
            }
        }
    }

    pub(super) async fn make_symlink(
        &self,
        who: &Identity,
        directory: fileid3,
        (name, target): (&[u8], &[u8]),
        changes: &Changes,
    ) -> Result<Outcome> {
        let step = "symlink";
        if target.is_empty() || target.contains(&0) {
            return fail(ErrorKind::Invalid, step);
        }
        if target.len() > LINK_BYTES_MAX {
            return fail(ErrorKind::NameTooLong, step);
        }
        let _alone = self.names.lock().await;
        let changes = self.prepare(who, directory, name, (changes, 0o777), step).await?;
        let set = convert::set_attributes(&changes);
        let made = self.fs.symlink(directory, &name.into(), &target.into(), &set).await;
        Ok(self::made(made.map_err(convert::error(step))?))
    }

    /// REMOVE and RMDIR, which are one operation of the interface.
    pub(super) async fn remove(
        &self,
        who: &Identity,
        directory: fileid3,
        name: &[u8],
        want_directory: bool,
    ) -> Result<Outcome> {
        let step = if want_directory { "rmdir" } else { "remove" };
        let _alone = self.names.lock().await;
        let parent = self.search(who, directory, step).await?;
        let victim = self.existing(directory, name, step).await?;
        self.require_removable(who, &parent, &victim, want_directory, step).await?;
        self.fs.remove(directory, &name.into()).await.map_err(convert::error(step))?;
        Ok(Outcome::Done)
    }

    /// Fail unless the caller may take out `victim`, and it is an empty directory, or none.
    async fn require_removable(
        &self,
        who: &Identity,
        parent: &Attributes,
        victim: &Attributes,
        want_directory: bool,
        step: &'static str,
    ) -> Result<()> {
        permission::require_delete(who, parent, victim, step)?;
        match (victim.kind == FileKind::Directory, want_directory) {
            (false, true) => fail(ErrorKind::NotDirectory, step),
            (true, false) => fail(ErrorKind::IsDirectory, step),
            (true, true) if !self.is_empty(victim.file_id, step).await? => {
                fail(ErrorKind::NotEmpty, step)
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn rename(
        &self,
        who: &Identity,
        (from, from_name): (fileid3, &[u8]),
        (to, to_name): (fileid3, &[u8]),
    ) -> Result<Outcome> {
        let step = "rename";
        let _alone = self.names.lock().await;
        if self.attributes(to, step).await?.kind != FileKind::Directory {
            return fail(ErrorKind::NotDirectory, step);
        }
        let from_attr = self.search(who, from, step).await?;
        let to_attr = self.search(who, to, step).await?;
        let source = self.existing(from, from_name, step).await?;
        let target = self.entry(to, to_name, step).await?;
        let is_directory = source.kind == FileKind::Directory;
        if is_directory && self.is_below(to, source.file_id).await {
            return fail(ErrorKind::Invalid, step);
        }
        if let Some(target) = &target
            && target.kind == FileKind::Directory
            && self.is_below(from, target.file_id).await
        {
            // It holds what is to replace it.
            return fail(ErrorKind::NotEmpty, step);
        }
        if target.is_some_and(|target| target.file_id == source.file_id) {
            return Ok(Outcome::Done);
        }
        permission::require_delete(who, &from_attr, &source, step)?;
        match &target {
            Some(target) => {
                self.require_removable(who, &to_attr, target, is_directory, step).await?;
            }
            None => permission::require(who, &to_attr, WRITE | EXECUTE, step)?,
        }
        if is_directory && from != to {
            permission::require(who, &source, WRITE, step)?;
        }
        let renamed = self.fs.rename(from, &from_name.into(), to, &to_name.into()).await;
        renamed.map_err(convert::error(step))?;
        Ok(Outcome::Done)
    }

    /// Whether `id` is `ancestor` or lies below it, as far as the file system knows "..".
    async fn is_below(&self, id: fileid3, ancestor: fileid3) -> bool {
        let mut at = id;
        for _ in 0..DEPTH_MAX {
            if at == ancestor {
                return true;
            }
            match self.parent(at).await {
                Ok(parent) if parent.file_id != at => at = parent.file_id,
                _ => return false,
            }
        }
        true
    }
}

/// All attributes of a new object in `parent`, once it is clear that the caller may make it.
fn complete(
    who: &Identity,
    parent: &Attributes,
    changes: &Changes,
    default_mode: u32,
    step: &'static str,
) -> Result<Changes> {
    permission::require(who, parent, WRITE | EXECUTE, step)?;
    let inherited = if parent.mode & SET_GID != 0 { parent.gid } else { who.gid };
    permission::require_creation(who, changes, inherited, step)?;
    let gid = changes.gid.unwrap_or(inherited);
    let mode = permission::mode_after_chmod(who, gid, changes.mode.unwrap_or(default_mode));
    let uid = changes.uid.unwrap_or(who.uid);
    Ok(Changes { mode: Some(mode), uid: Some(uid), gid: Some(gid), ..*changes })
}

fn made((id, attr): (fileid3, fattr3)) -> Outcome {
    let attributes = Attributes { file_id: id, ..convert::attributes(&attr) };
    Outcome::Created { object: convert::handle(id), attributes: Some(attributes) }
}
