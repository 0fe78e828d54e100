//! Operations on one object: attributes, data, the target of a symbolic link.

use buffers::{
    Lease,
    copies::{self, Why},
};
use bytes::Bytes;

use super::{
    inode::Content,
    names::set_time,
    tree::{FILE_BYTES_MAX, Id, Tree},
};
use crate::{
    attr::{Changes, Timestamp},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{AccessMask, Outcome, Stability},
    permission,
};

type Result<T> = std::result::Result<T, BackendError>;

fn fail<T>(kind: ErrorKind, step: &'static str) -> Result<T> {
    Err(BackendError::new(kind, step))
}

impl Tree {
    pub(super) fn require_size(size: u64, step: &'static str) -> Result<()> {
        if size <= FILE_BYTES_MAX { Ok(()) } else { fail(ErrorKind::TooLarge, step) }
    }

    /// Fail unless the object is a regular file.
    fn require_regular(&self, id: Id, step: &'static str) -> Result<()> {
        match self.get(id, step)?.content {
            Content::Regular(_) => Ok(()),
            Content::Directory(_) => fail(ErrorKind::IsDirectory, step),
            Content::Symlink(_) | Content::Special(..) => fail(ErrorKind::Invalid, step),
        }
    }

    pub(super) fn set_attributes(
        &mut self,
        who: &Identity,
        id: Id,
        changes: &Changes,
        guard: Option<Timestamp>,
    ) -> Result<Outcome> {
        let step = "setattr";
        let changed = self.get(id, step)?.changed;
        if guard.is_some_and(|guard| guard != changed) {
            return fail(ErrorKind::NotSync, step);
        }
        self.apply_changes(who, id, changes, step)?;
        Ok(Outcome::Done)
    }

    /// Apply all of `changes` or nothing.
    pub(super) fn apply_changes(
        &mut self,
        who: &Identity,
        id: Id,
        changes: &Changes,
        step: &'static str,
    ) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        if let Some(size) = changes.size {
            self.require_regular(id, step)?;
            Self::require_size(size, step)?;
        }
        let mut attr = self.attributes(id, step)?;
        let changes = &permission::meaningful(&attr, changes);
        permission::require_changes(who, &attr, changes, step)?;

        let now = self.now();
        if let Some(size) = changes.size {
            attr.mode = permission::mode_after_write(who, &attr);
            attr.modified = now;
            self.change_content(id, step, |content| {
                if let Content::Regular(data) = content {
                    data.set_size(size);
                }
            })?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            attr.mode = permission::mode_after_chown(who, &attr);
            attr.uid = changes.uid.unwrap_or(attr.uid);
            attr.gid = changes.gid.unwrap_or(attr.gid);
        }
        if let Some(mode) = changes.mode {
            attr.mode = permission::mode_after_chmod(who, attr.gid, mode);
        }
        let inode = self.get_mut(id, step)?;
        inode.mode = attr.mode;
        inode.uid = attr.uid;
        inode.gid = attr.gid;
        inode.accessed = set_time(changes.accessed, attr.accessed, now);
        inode.modified = set_time(changes.modified, attr.modified, now);
        inode.changed = now;
        Ok(())
    }

    pub(super) fn access(&self, who: &Identity, id: Id, mask: AccessMask) -> Result<Outcome> {
        let attr = self.attributes(id, "access")?;
        Ok(Outcome::Access { granted: permission::access(who, &attr, mask) })
    }

    pub(super) fn read_link(&self, id: Id) -> Result<Outcome> {
        match &self.get(id, "readlink")?.content {
            Content::Symlink(target) => Ok(Outcome::LinkTarget { target: target.clone() }),
            _ => fail(ErrorKind::Invalid, "readlink"),
        }
    }

    pub(super) fn read(
        &self,
        who: &Identity,
        id: Id,
        (offset, count): (u64, u32),
        mut into: Lease,
    ) -> Result<Outcome> {
        let step = "read";
        self.require_regular(id, step)?;
        permission::require_read(who, &self.attributes(id, step)?, step)?;
        let Content::Regular(data) = &self.get(id, step)?.content else {
            return fail(ErrorKind::Invalid, step);
        };
        let Some(space) = into.get_mut(..count as usize) else {
            return fail(ErrorKind::ServerFault, step);
        };
        let len = data.read(offset, space);
        let end_of_file = offset.saturating_add(len as u64) >= data.size();
        copies::count(Why::Backend, len);
        Ok(Outcome::Data { data: into.freeze(0, len).into(), end_of_file })
    }

    pub(super) fn write(
        &mut self,
        who: &Identity,
        id: Id,
        (offset, data): (u64, &Bytes),
        asked: Stability,
    ) -> Result<Outcome> {
        let step = "write";
        self.require_regular(id, step)?;
        let attr = self.attributes(id, step)?;
        permission::require_write(who, &attr, step)?;
        let Ok(count) = u32::try_from(data.len()) else { return fail(ErrorKind::Invalid, step) };
        let end = offset.checked_add(u64::from(count));
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return fail(ErrorKind::TooLarge, step);
        }
        let verifier = self.verifier();
        let stability = self.make_room(id, offset, data.len(), asked)?;
        self.change_content(id, step, |content| {
            if let Content::Regular(file) = content {
                file.write(offset, data, stability == Stability::Unstable);
            }
        })?;
        copies::count(Why::Backend, data.len());
        if count > 0 {
            let now = self.now();
            let inode = self.get_mut(id, step)?;
            inode.mode = permission::mode_after_write(who, &attr);
            inode.touch(now);
        }
        Ok(Outcome::Written { count, stability, verifier })
    }

    /// See that a write fits. When only the old data that an unstable write has to keep is too much, the
    /// write is made stable: the answer may always promise more than was asked.
    fn make_room(
        &mut self,
        id: Id,
        offset: u64,
        len: usize,
        asked: Stability,
    ) -> Result<Stability> {
        let step = "write";
        for (stability, unstable) in [(asked, asked == Stability::Unstable)]
            .into_iter()
            .chain([(Stability::FileSync, false)])
        {
            if !unstable {
                self.commit_data(id)?;
            }
            let Content::Regular(file) = &self.get(id, step)?.content else {
                return fail(ErrorKind::Invalid, step);
            };
            if self.has_room(file.growth(offset, len, unstable)) {
                return Ok(stability);
            }
        }
        fail(ErrorKind::NoSpace, step)
    }

    pub(super) fn commit(&mut self, who: &Identity, id: Id) -> Result<Outcome> {
        self.require_regular(id, "commit")?;
        permission::require_write(who, &self.attributes(id, "commit")?, "commit")?;
        self.commit_data(id)?;
        Ok(Outcome::Committed { verifier: self.verifier() })
    }

    fn commit_data(&mut self, id: Id) -> Result<()> {
        self.change_content(id, "commit", |content| {
            if let Content::Regular(data) = content {
                data.commit();
            }
        })
    }
}
