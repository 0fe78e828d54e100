//! SETATTR and ACCESS. The file system only stores attributes; what they mean is decided here.

use ::nfsserve::{nfs::fileid3, vfs::NFSFileSystem};

use super::{
    backend::{Result, Shared},
    convert,
};
use crate::{
    attr::{Attributes, Changes, FileKind, Timestamp},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{AccessMask, Outcome},
    permission,
};

impl<F: NFSFileSystem + Send + Sync> Shared<F> {
    pub(super) async fn access(
        &self,
        who: &Identity,
        id: fileid3,
        mask: AccessMask,
    ) -> Result<Outcome> {
        let attr = self.attributes(id, "access").await?;
        Ok(Outcome::Access { granted: permission::access(who, &attr, mask) })
    }

    pub(super) async fn set_attributes(
        &self,
        who: &Identity,
        id: fileid3,
        changes: &Changes,
        guard: Option<Timestamp>,
    ) -> Result<Outcome> {
        let step = "setattr";
        let attr = self.attributes(id, step).await?;
        if guard.is_some_and(|guard| guard != attr.changed) {
            return Err(BackendError::new(ErrorKind::NotSync, step));
        }
        self.apply_changes(who, &attr, changes, step).await?;
        Ok(Outcome::Done)
    }

    /// Check and apply `changes` to an existing object.
    pub(super) async fn apply_changes(
        &self,
        who: &Identity,
        attr: &Attributes,
        changes: &Changes,
        step: &'static str,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        if let Some(size) = changes.size {
            require_regular(attr, step)?;
            if size > self.limits.file_bytes_max {
                return Err(BackendError::new(ErrorKind::TooLarge, step));
            }
        }
        let changes = &permission::meaningful(attr, changes);
        permission::require_changes(who, attr, changes, step)?;
        let changes = Changes { mode: resulting_mode(who, attr, changes), ..*changes };
        let set = self.fs.setattr(attr.file_id, convert::set_attributes(&changes)).await;
        set.map_err(convert::object_error(step))?;
        Ok(())
    }

    /// Take away the set-id bits that a write by this caller ends.
    pub(super) async fn after_write(&self, who: &Identity, attr: &Attributes) -> Result<()> {
        let mode = permission::mode_after_write(who, attr);
        if mode == attr.mode {
            return Ok(());
        }
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        let set = self.fs.setattr(attr.file_id, convert::set_attributes(&changes)).await;
        set.map(drop).map_err(convert::object_error("write"))
    }
}

/// The mode that has to be set together with `changes`, if any.
fn resulting_mode(who: &Identity, attr: &Attributes, changes: &Changes) -> Option<u32> {
    let mut after = *attr;
    if changes.size.is_some() {
        after.mode = permission::mode_after_write(who, &after);
    }
    if changes.uid.is_some() || changes.gid.is_some() {
        after.mode = permission::mode_after_chown(who, &after);
        after.gid = changes.gid.unwrap_or(after.gid);
    }
    match changes.mode {
        Some(mode) => Some(permission::mode_after_chmod(who, after.gid, mode)),
        None => (after.mode != attr.mode).then_some(after.mode),
    }
}

/// Fail unless it is a regular file.
pub(super) fn require_regular(attr: &Attributes, step: &'static str) -> Result<()> {
    match attr.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(BackendError::new(ErrorKind::IsDirectory, step)),
        _ => Err(BackendError::new(ErrorKind::Invalid, step)),
    }
}
