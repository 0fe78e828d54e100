//! Status of MNT (RFC 1813 section 5.1.5).

use backends::ErrorKind;

use crate::exports::MountDenied;

/// `mountstat3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MountStatus {
    /// Done.
    Ok = 0,
    /// Not the owner.
    Perm = 1,
    /// No such path.
    NoEnt = 2,
    /// The device failed.
    Io = 5,
    /// This client may not.
    Acces = 13,
    /// Not a directory.
    NotDir = 20,
    /// Invalid argument.
    Inval = 22,
    /// The path is too long.
    NameTooLong = 63,
    /// Not supported.
    NotSupp = 10004,
    /// A fault of ours.
    ServerFault = 10006,
}

impl MountStatus {
    /// The code on the wire.
    pub fn code(self) -> u32 {
        self as u32
    }
}

impl From<ErrorKind> for MountStatus {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotOwner => Self::Perm,
            ErrorKind::NotFound | ErrorKind::Stale => Self::NoEnt,
            ErrorKind::Io => Self::Io,
            ErrorKind::Access => Self::Acces,
            ErrorKind::NotDirectory => Self::NotDir,
            ErrorKind::Invalid => Self::Inval,
            ErrorKind::NameTooLong => Self::NameTooLong,
            ErrorKind::NotSupported => Self::NotSupp,
            _ => Self::ServerFault,
        }
    }
}

impl From<MountDenied> for MountStatus {
    fn from(denied: MountDenied) -> Self {
        match denied {
            MountDenied::NoSuchExport => Self::NoEnt,
            MountDenied::Invalid => Self::Acces,
            MountDenied::NameTooLong => Self::NameTooLong,
        }
    }
}
