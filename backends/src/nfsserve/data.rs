//! READ, WRITE, COMMIT and READLINK.

use ::nfsserve::{nfs::fileid3, vfs::NFSFileSystem};
use buffers::{
    Lease,
    copies::{self, Why},
};
use bytes::Bytes;

use super::{
    attributes::require_regular,
    backend::{Result, Shared},
    convert,
};
use crate::{
    attr::FileKind,
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{LINK_BYTES_MAX, Outcome, Stability},
    permission,
};

fn fail<T>(kind: ErrorKind, step: &'static str) -> Result<T> {
    Err(BackendError::new(kind, step))
}

impl<F: NFSFileSystem + Send + Sync> Shared<F> {
    pub(super) async fn read(
        &self,
        who: &Identity,
        id: fileid3,
        (offset, count): (u64, u32),
        mut into: Lease,
    ) -> Result<Outcome> {
        let step = "read";
        let attr = self.attributes(id, step).await?;
        require_regular(&attr, step)?;
        permission::require_read(who, &attr, step)?;
        // Some file systems add offset and count without a check.
        if offset >= attr.size {
            return Ok(Outcome::Data { data: Bytes::new().into(), end_of_file: true });
        }
        let read = self.fs.read(id, offset, count).await;
        let (data, end) = read.map_err(convert::object_error(step))?;
        let len = data.len().min(count as usize);
        let (Some(space), Some(part)) = (into.get_mut(..len), data.get(..len)) else {
            return fail(ErrorKind::ServerFault, step);
        };
        space.copy_from_slice(part);
        copies::count(Why::Backend, len);
        // What was cut off here was not the end; and nothing at all can only be the end, since a client
        // would ask again for ever.
        let end_of_file = (end && len == data.len()) || (len == 0 && count > 0);
        Ok(Outcome::Data { data: into.freeze(0, len).into(), end_of_file })
    }

    pub(super) async fn write(
        &self,
        who: &Identity,
        id: fileid3,
        offset: u64,
        data: &Bytes,
    ) -> Result<Outcome> {
        let step = "write";
        let attr = self.attributes(id, step).await?;
        require_regular(&attr, step)?;
        permission::require_write(who, &attr, step)?;
        let Ok(count) = u32::try_from(data.len()) else { return fail(ErrorKind::Invalid, step) };
        let end = offset.checked_add(u64::from(count));
        if end.is_none_or(|end| end > self.limits.file_bytes_max) {
            return fail(ErrorKind::TooLarge, step);
        }
        if count > 0 {
            self.fs.write(id, offset, data).await.map_err(convert::object_error(step))?;
            copies::count(Why::Backend, data.len());
            self.after_write(who, &attr).await?;
        }
        let stability = Stability::FileSync;
        Ok(Outcome::Written { count, stability, verifier: self.verifier })
    }

    pub(super) async fn commit(&self, who: &Identity, id: fileid3) -> Result<Outcome> {
        let attr = self.attributes(id, "commit").await?;
        require_regular(&attr, "commit")?;
        permission::require_write(who, &attr, "commit")?;
        Ok(Outcome::Committed { verifier: self.verifier })
    }

    pub(super) async fn read_link(&self, id: fileid3) -> Result<Outcome> {
        let step = "readlink";
        if self.attributes(id, step).await?.kind != FileKind::Symlink {
            return fail(ErrorKind::Invalid, step);
        }
        let target = self.fs.readlink(id).await.map_err(convert::object_error(step))?.0;
        if target.len() > LINK_BYTES_MAX {
            return fail(ErrorKind::ServerFault, step);
        }
        Ok(Outcome::LinkTarget { target: target.into() })
    }
}
