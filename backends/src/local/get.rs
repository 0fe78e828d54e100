//! GETATTR, ACCESS, READLINK, FSSTAT: what only looks.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    attr::{Around, FileKind, Space},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{AccessMask, LINK_BYTES_MAX, Outcome},
};

use super::{
    attr::stat,
    backend::{Arounds, LocalBackend},
    open_file::OpenFile,
    permission::{self, EXECUTE, READ, WRITE},
};

impl LocalBackend {
    /// GETATTR. Does not block.
    pub(super) fn get_attributes(
        &self,
        file: &OpenFile,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        around.first = Around::after(stat(&file.path)?.attributes);
        Ok(Outcome::Done)
    }

    /// ACCESS (RFC 1813 section 3.3.4): what the kernel would let the caller do. Does not block.
    pub(super) fn access(
        &self,
        who: &Arc<Identity>,
        file: &OpenFile,
        mask: AccessMask,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let attr = stat(&file.path)?.attributes;
        around.first = Around::after(attr);
        let map = rights_of_bits(file.kind);
        let wanted = map
            .iter()
            .filter(|(bit, _)| mask.0 & bit != 0)
            .fold(0, |wanted, (_, rights)| wanted | rights);
        let granted = permission::granted(file, &attr, who, wanted)?;
        let bits = map
            .iter()
            .filter(|(bit, rights)| mask.0 & bit != 0 && granted & rights == *rights)
            .fold(0, |bits, (bit, _)| bits | bit);
        Ok(Outcome::Access { granted: AccessMask(bits) })
    }

    /// READLINK: the raw target.
    pub(super) fn read_link(
        &self,
        file: &OpenFile,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        around.first = Around::after(stat(&file.path)?.attributes);
        if file.kind != FileKind::Symlink {
            return Err(BackendError::new(ErrorKind::Invalid, "readlink"));
        }
        let target =
            rustix::fs::readlinkat(&file.path, c"", Vec::with_capacity(LINK_BYTES_MAX + 1))
                .map_err(|errno| BackendError::from_io(errno.into(), "readlinkat"))?;
        Ok(Outcome::LinkTarget { target: Bytes::from(target.into_bytes()) })
    }

    /// FSSTAT: the space as the file system counts it.
    pub(super) fn space(
        &self,
        file: &OpenFile,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        around.first = Around::after(stat(&file.path)?.attributes);
        let fs = rustix::fs::fstatvfs(&file.path)
            .map_err(|errno| BackendError::from_io(errno.into(), "fstatvfs"))?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        Ok(Outcome::Space(Space {
            total: bytes(fs.f_blocks),
            free: bytes(fs.f_bfree),
            available: bytes(fs.f_bavail),
            files_total: fs.f_files,
            files_free: fs.f_ffree,
            files_available: fs.f_favail,
        }))
    }
}

/// Rights that each ACCESS bit stands for. DELETE is a right of a directory: it has no meaning for a file.
fn rights_of_bits(kind: FileKind) -> &'static [(u32, i32)] {
    match kind {
        FileKind::Directory => &[
            (AccessMask::READ, READ),
            (AccessMask::LOOKUP, EXECUTE),
            (AccessMask::MODIFY, WRITE | EXECUTE),
            (AccessMask::EXTEND, WRITE | EXECUTE),
            (AccessMask::DELETE, WRITE | EXECUTE),
        ],
        FileKind::Regular => &[
            (AccessMask::READ, READ),
            (AccessMask::MODIFY, WRITE),
            (AccessMask::EXTEND, WRITE),
            (AccessMask::EXECUTE, EXECUTE),
        ],
        _ => &[(AccessMask::READ, READ), (AccessMask::MODIFY, WRITE), (AccessMask::EXTEND, WRITE)],
    }
}
