//! Status of a procedure (RFC 1813 section 2.6).

use backends::ErrorKind;

/// `nfsstat3`: every code that version 3 knows, and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The caller must own the object.
    Perm = 1,
    /// No such name.
    NoEnt = 2,
    /// The device failed.
    Io = 5,
    /// No such device.
    NxIo = 6,
    /// Permission denied.
    Acces = 13,
    /// The name is taken.
    Exist = 17,
    /// The two objects are on different file systems.
    XDev = 18,
    /// No such device.
    NoDev = 19,
    /// Not a directory.
    NotDir = 20,
    /// Is a directory.
    IsDir = 21,
    /// Invalid argument.
    Inval = 22,
    /// Larger than the file system allows.
    FBig = 27,
    /// No space.
    NoSpc = 28,
    /// Read-only.
    RoFs = 30,
    /// Too many hard links.
    MLink = 31,
    /// The name is too long.
    NameTooLong = 63,
    /// The directory is not empty.
    NotEmpty = 66,
    /// The quota is used up.
    DQuot = 69,
    /// The object is gone for good.
    Stale = 70,
    /// Too many levels of remote in path.
    Remote = 71,
    /// The handle was never one of ours.
    BadHandle = 10001,
    /// The guard of a SETATTR did not match.
    NotSync = 10002,
    /// The cookie is not one of this directory.
    BadCookie = 10003,
    /// Not supported.
    NotSupp = 10004,
    /// Not even one entry fits in the answer.
    TooSmall = 10005,
    /// A fault of ours.
    ServerFault = 10006,
    /// The type of object cannot be created.
    BadType = 10007,
    /// Try again later.
    Jukebox = 10008,
}

impl Status {
    /// The code on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }
}

impl From<ErrorKind> for Status {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotOwner => Self::Perm,
            ErrorKind::NotFound => Self::NoEnt,
            ErrorKind::Io => Self::Io,
            ErrorKind::NoDevice => Self::NxIo,
            ErrorKind::Access => Self::Acces,
            ErrorKind::Exists => Self::Exist,
            ErrorKind::CrossDevice => Self::XDev,
            ErrorKind::NotDirectory => Self::NotDir,
            ErrorKind::IsDirectory => Self::IsDir,
            ErrorKind::Invalid => Self::Inval,
            ErrorKind::TooLarge => Self::FBig,
            ErrorKind::NoSpace => Self::NoSpc,
            ErrorKind::ReadOnly => Self::RoFs,
            ErrorKind::TooManyLinks => Self::MLink,
            ErrorKind::NameTooLong => Self::NameTooLong,
            ErrorKind::NotEmpty => Self::NotEmpty,
            ErrorKind::Quota => Self::DQuot,
            ErrorKind::Stale => Self::Stale,
            ErrorKind::BadHandle => Self::BadHandle,
            ErrorKind::NotSync => Self::NotSync,
            ErrorKind::BadCookie => Self::BadCookie,
            ErrorKind::NotSupported => Self::NotSupp,
            ErrorKind::TooSmall => Self::TooSmall,
            // BADTYPE is MKNOD's alone (section 3.3.11); elsewhere an object of the wrong kind is an invalid
            // argument.
            ErrorKind::BadType => Self::Inval,
            ErrorKind::Later => Self::Jukebox,
            ErrorKind::ServerFault => Self::ServerFault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_the_moment_is_neither_stale_nor_an_io_error() {
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN] {
            let kind = backends::error::kind_of_errno(errno);
            assert_eq!(Status::from(kind), Status::Jukebox, "errno {errno}");
        }
    }

    #[test]
    fn errno_to_wire_code() {
        let cases = [
            (libc::EPERM, 1),
            (libc::ENOENT, 2),
            (libc::EIO, 5),
            (libc::EACCES, 13),
            (libc::EEXIST, 17),
            (libc::EXDEV, 18),
            (libc::ENOTDIR, 20),
            (libc::EISDIR, 21),
            (libc::EINVAL, 22),
            (libc::EFBIG, 27),
            (libc::ENOSPC, 28),
            (libc::EROFS, 30),
            (libc::EMLINK, 31),
            (libc::ENAMETOOLONG, 63),
            (libc::ENOTEMPTY, 66),
            (libc::EDQUOT, 69),
            (libc::ESTALE, 70),
            (libc::EOPNOTSUPP, 10004),
        ];
        for (errno, code) in cases {
            assert_eq!(Status::from(backends::error::kind_of_errno(errno)).code(), code);
        }
    }
}
