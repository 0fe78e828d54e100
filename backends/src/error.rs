//! What can go wrong in a backend.

use std::io;

/// The reason of a failure, in terms that every protocol version has a status for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller must own the object or be the superuser (EPERM).
    NotOwner,
    /// No such name (ENOENT).
    NotFound,
    /// The device failed (EIO).
    Io,
    /// No such device (ENXIO, ENODEV).
    NoDevice,
    /// Permission denied (EACCES).
    Access,
    /// The name is taken (EEXIST).
    Exists,
    /// The two objects are on different file systems (EXDEV).
    CrossDevice,
    /// Not a directory (ENOTDIR).
    NotDirectory,
    /// Is a directory (EISDIR).
    IsDirectory,
    /// Invalid argument (EINVAL).
    Invalid,
    /// Larger than the file system allows (EFBIG).
    TooLarge,
    /// No space (ENOSPC).
    NoSpace,
    /// Read-only (EROFS).
    ReadOnly,
    /// Too many hard links (EMLINK).
    TooManyLinks,
    /// The name is too long (ENAMETOOLONG).
    NameTooLong,
    /// The directory is not empty (ENOTEMPTY).
    NotEmpty,
    /// The quota is used up (EDQUOT).
    Quota,
    /// The object is gone for good (ESTALE).
    Stale,
    /// The handle was never one of ours.
    BadHandle,
    /// The guard of a SETATTR did not match.
    NotSync,
    /// The cookie is not one of this directory.
    BadCookie,
    /// The backend cannot do this (EOPNOTSUPP).
    NotSupported,
    /// Not even one entry fits in the answer.
    TooSmall,
    /// The object is of the wrong kind for this.
    BadType,
    /// Try again later: a resource is short for the moment (EMFILE, ENOMEM, EAGAIN), or slow.
    Later,
    /// A fault in the backend itself.
    ServerFault,
}

/// A failed operation.
#[derive(Debug, thiserror::Error)]
#[error("{kind:?} in {operation}")]
pub struct BackendError {
    /// The reason.
    pub kind: ErrorKind,
    /// The step that failed: a system call or the name of the operation.
    pub operation: &'static str,
    /// What the system said.
    #[source]
    pub source: Option<io::Error>,
}

impl BackendError {
    /// A failure for a reason of our own.
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self { kind, operation, source: None }
    }

    /// A failed system call.
    pub fn from_io(source: io::Error, operation: &'static str) -> Self {
        let kind = source.raw_os_error().map_or(ErrorKind::Io, kind_of_errno);
        Self { kind, operation, source: Some(source) }
    }

    /// A failed system call, by its error number.
    pub fn from_errno(errno: i32, operation: &'static str) -> Self {
        Self::from_io(io::Error::from_raw_os_error(errno), operation)
    }
}

/// The one table from error numbers to reasons. Shortages of the moment are never STALE or an I/O error:
/// clients give such errors to the application, while they retry [`ErrorKind::Later`].
pub fn kind_of_errno(errno: i32) -> ErrorKind {
    match errno {
        libc::EPERM => ErrorKind::NotOwner,
        libc::ENOENT => ErrorKind::NotFound,
        libc::ENXIO | libc::ENODEV => ErrorKind::NoDevice,
        libc::EACCES => ErrorKind::Access,
        libc::EEXIST => ErrorKind::Exists,
        libc::EXDEV => ErrorKind::CrossDevice,
        libc::ENOTDIR => ErrorKind::NotDirectory,
        libc::EISDIR => ErrorKind::IsDirectory,
        libc::EINVAL | libc::ELOOP => ErrorKind::Invalid,
        libc::EFBIG | libc::EOVERFLOW => ErrorKind::TooLarge,
        libc::ENOSPC => ErrorKind::NoSpace,
        libc::EROFS => ErrorKind::ReadOnly,
        libc::EMLINK => ErrorKind::TooManyLinks,
        libc::ENAMETOOLONG => ErrorKind::NameTooLong,
        libc::ENOTEMPTY => ErrorKind::NotEmpty,
        libc::EDQUOT => ErrorKind::Quota,
        libc::ESTALE => ErrorKind::Stale,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => ErrorKind::NotSupported,
        libc::EMFILE
        | libc::ENFILE
        | libc::ENOMEM
        | libc::EAGAIN
        | libc::EBUSY
        | libc::EINTR
        | libc::ETXTBSY
        | libc::ENOBUFS => ErrorKind::Later,
        _ => ErrorKind::Io,
    }
}
