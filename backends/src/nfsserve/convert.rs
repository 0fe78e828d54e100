//! Between the types of the `nfsserve` crate and ours.

use ::nfsserve::nfs::{
    fattr3, fileid3, ftype3, nfsstat3, nfstime3, sattr3, set_atime, set_gid3, set_mode3, set_mtime,
    set_size3, set_uid3, specdata3,
};

use crate::{
    attr::{Attributes, Changes, Device, FileKind, SetTime, Timestamp},
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
};

/// The one table from status codes to reasons.
pub(super) fn kind(status: nfsstat3) -> ErrorKind {
    match status {
        // An error that says "no error" is a fault of the file system.
        nfsstat3::NFS3_OK | nfsstat3::NFS3ERR_SERVERFAULT => ErrorKind::ServerFault,
        nfsstat3::NFS3ERR_PERM => ErrorKind::NotOwner,
        nfsstat3::NFS3ERR_NOENT => ErrorKind::NotFound,
        nfsstat3::NFS3ERR_IO | nfsstat3::NFS3ERR_REMOTE => ErrorKind::Io,
        nfsstat3::NFS3ERR_NXIO | nfsstat3::NFS3ERR_NODEV => ErrorKind::NoDevice,
        nfsstat3::NFS3ERR_ACCES => ErrorKind::Access,
        nfsstat3::NFS3ERR_EXIST => ErrorKind::Exists,
        nfsstat3::NFS3ERR_XDEV => ErrorKind::CrossDevice,
        nfsstat3::NFS3ERR_NOTDIR => ErrorKind::NotDirectory,
        nfsstat3::NFS3ERR_ISDIR => ErrorKind::IsDirectory,
        nfsstat3::NFS3ERR_INVAL => ErrorKind::Invalid,
        nfsstat3::NFS3ERR_FBIG => ErrorKind::TooLarge,
        nfsstat3::NFS3ERR_NOSPC => ErrorKind::NoSpace,
        nfsstat3::NFS3ERR_ROFS => ErrorKind::ReadOnly,
        nfsstat3::NFS3ERR_MLINK => ErrorKind::TooManyLinks,
        nfsstat3::NFS3ERR_NAMETOOLONG => ErrorKind::NameTooLong,
        nfsstat3::NFS3ERR_NOTEMPTY => ErrorKind::NotEmpty,
        nfsstat3::NFS3ERR_DQUOT => ErrorKind::Quota,
        nfsstat3::NFS3ERR_STALE => ErrorKind::Stale,
        nfsstat3::NFS3ERR_BADHANDLE => ErrorKind::BadHandle,
        nfsstat3::NFS3ERR_NOT_SYNC => ErrorKind::NotSync,
        nfsstat3::NFS3ERR_BAD_COOKIE => ErrorKind::BadCookie,
        nfsstat3::NFS3ERR_NOTSUPP => ErrorKind::NotSupported,
        nfsstat3::NFS3ERR_TOOSMALL => ErrorKind::TooSmall,
        nfsstat3::NFS3ERR_BADTYPE => ErrorKind::BadType,
        nfsstat3::NFS3ERR_JUKEBOX => ErrorKind::Later,
    }
}

/// An error of the file system at `step`.
pub(super) fn error(step: &'static str) -> impl Fn(nfsstat3) -> BackendError {
    move |status| BackendError::new(kind(status), step)
}

/// An error of the file system about an object whose handle somebody holds: one that is not there is gone.
pub(super) fn object_error(step: &'static str) -> impl Fn(nfsstat3) -> BackendError {
    move |status| match kind(status) {
        ErrorKind::NotFound => BackendError::new(ErrorKind::Stale, step),
        kind => BackendError::new(kind, step),
    }
}

/// The handle of an object: its id, and nothing that changes with a restart.
pub(super) fn handle(id: fileid3) -> ObjectHandle {
    ObjectHandle::new(&id.to_le_bytes()).expect("8 bytes fit in a handle")
}

/// The id in a handle.
pub(super) fn file_id(handle: &ObjectHandle, step: &'static str) -> Result<fileid3, BackendError> {
    let bytes = handle.as_bytes().try_into();
    let id = bytes.map(fileid3::from_le_bytes).unwrap_or(0);
    if id == 0 { Err(BackendError::new(ErrorKind::BadHandle, step)) } else { Ok(id) }
}

/// Attributes as we know them.
pub(super) fn attributes(attr: &fattr3) -> Attributes {
    let specdata3 { specdata1: major, specdata2: minor } = attr.rdev;
    Attributes {
        kind: file_kind(attr.ftype),
        mode: attr.mode & crate::permission::MODE_BITS,
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        device: Device { major, minor },
        file_id: attr.fileid,
        accessed: timestamp(attr.atime),
        modified: timestamp(attr.mtime),
        changed: timestamp(attr.ctime),
    }
}

fn file_kind(kind: ftype3) -> FileKind {
    match kind {
        ftype3::NF3REG => FileKind::Regular,
        ftype3::NF3DIR => FileKind::Directory,
        ftype3::NF3BLK => FileKind::Block,
        ftype3::NF3CHR => FileKind::Character,
        ftype3::NF3LNK => FileKind::Symlink,
        ftype3::NF3SOCK => FileKind::Socket,
        ftype3::NF3FIFO => FileKind::Fifo,
    }
}

fn timestamp(time: nfstime3) -> Timestamp {
    Timestamp { seconds: i64::from(time.seconds), nanos: time.nseconds.min(999_999_999) }
}

/// A time in the 32 bits of the interface: the nearest that there is.
fn nfs_time(time: Timestamp) -> nfstime3 {
    let seconds = u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX);
    nfstime3 { seconds, nseconds: time.nanos }
}

/// Attributes to set.
pub(super) fn set_attributes(changes: &Changes) -> sattr3 {
    sattr3 {
        mode: changes.mode.map_or(set_mode3::Void, set_mode3::mode),
        uid: changes.uid.map_or(set_uid3::Void, set_uid3::uid),
        gid: changes.gid.map_or(set_gid3::Void, set_gid3::gid),
        size: changes.size.map_or(set_size3::Void, set_size3::size),
        atime: match changes.accessed {
            SetTime::Keep => set_atime::DONT_CHANGE,
            SetTime::Now => set_atime::SET_TO_SERVER_TIME,
            SetTime::To(time) => set_atime::SET_TO_CLIENT_TIME(nfs_time(time)),
        },
        mtime: match changes.modified {
            SetTime::Keep => set_mtime::DONT_CHANGE,
            SetTime::Now => set_mtime::SET_TO_SERVER_TIME,
            SetTime::To(time) => set_mtime::SET_TO_CLIENT_TIME(nfs_time(time)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_the_id_alone() {
        assert_eq!(file_id(&handle(77), "test").unwrap(), 77);
        for bytes in [&[0; 8][..], &[1; 7], &[1; 16], &[]] {
            let refused = file_id(&ObjectHandle::new(bytes).unwrap(), "test").unwrap_err();
            assert_eq!(refused.kind, ErrorKind::BadHandle);
        }
    }

    #[test]
    fn what_a_handle_named_and_is_not_there_is_stale() {
        assert_eq!(object_error("t")(nfsstat3::NFS3ERR_NOENT).kind, ErrorKind::Stale);
        assert_eq!(error("t")(nfsstat3::NFS3ERR_NOENT).kind, ErrorKind::NotFound);
        assert_eq!(error("t")(nfsstat3::NFS3ERR_JUKEBOX).kind, ErrorKind::Later);
        assert_eq!(error("t")(nfsstat3::NFS3_OK).kind, ErrorKind::ServerFault);
    }

    #[test]
    fn times_beyond_32_bits_are_clamped() {
        let time = |seconds| nfs_time(Timestamp { seconds, nanos: 3 }).seconds;
        assert_eq!((time(-5), time(9), time(1 << 40)), (0, 9, u32::MAX));
    }
}
