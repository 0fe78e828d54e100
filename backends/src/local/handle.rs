//! Handles of objects: the file system's own ones where the gateway may open by them, a substitute elsewhere.
//!
//! * Native: type and bytes of name_to_handle_at(2). They carry the inode's generation, so a reused inode
//!   number is told apart, and they stay valid across renames, remounts and restarts.
//! * Substitute: inode number and birth time. Used without CAP_DAC_READ_SEARCH and on file systems without
//!   handles; found again through remembered names ([`super::paths`]), and therefore valid only while the
//!   process runs.

use crate::{
    attr::Timestamp,
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
};

use super::{attr::Stat, sys::FsHandle};

const NATIVE: u8 = 1;
const SUBSTITUTE: u8 = 2;

/// An object's identity where the file system's handles cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Substitute {
    /// Inode number.
    pub inode: u64,
    /// When it was made; all zero where the file system does not say.
    pub born: Timestamp,
}

impl Substitute {
    /// Of the object with these attributes.
    pub fn of(stat: &Stat) -> Self {
        Self { inode: stat.attributes.file_id, born: stat.born.unwrap_or_default() }
    }
}

/// A parsed handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// The file system's own.
    Native(FsHandle),
    /// The substitute.
    Substitute(Substitute),
}

fn bad() -> BackendError {
    BackendError::new(ErrorKind::BadHandle, "handle")
}

/// Pack the file system's handle.
///
/// # Errors
/// Never in practice: [`FsHandle`] is bounded so that it fits.
pub fn pack_native(handle: &FsHandle) -> Result<ObjectHandle, BackendError> {
    let mut bytes = vec![NATIVE];
    bytes.extend_from_slice(&handle.kind.to_be_bytes());
    bytes.extend_from_slice(handle.bytes());
    ObjectHandle::new(&bytes).ok_or_else(bad)
}

/// Pack a substitute.
///
/// # Errors
/// Never in practice: it is shorter than any limit.
pub fn pack_substitute(substitute: Substitute) -> Result<ObjectHandle, BackendError> {
    let mut bytes = vec![SUBSTITUTE];
    bytes.extend_from_slice(&substitute.inode.to_be_bytes());
    bytes.extend_from_slice(&substitute.born.seconds.to_be_bytes());
    bytes.extend_from_slice(&substitute.born.nanos.to_be_bytes());
    ObjectHandle::new(&bytes).ok_or_else(bad)
}

/// Take a handle apart.
///
/// # Errors
/// `BadHandle` for what we never made.
pub fn parse(handle: &ObjectHandle) -> Result<Parsed, BackendError> {
    let (&scheme, rest) = handle.as_bytes().split_first().ok_or_else(bad)?;
    match scheme {
        NATIVE => {
            let (kind, bytes) = rest.split_first_chunk::<4>().ok_or_else(bad)?;
            if bytes.is_empty() {
                return Err(bad());
            }
            FsHandle::new(i32::from_be_bytes(*kind), bytes).map(Parsed::Native).ok_or_else(bad)
        }
        SUBSTITUTE => {
            let (inode, rest) = rest.split_first_chunk::<8>().ok_or_else(bad)?;
            let (seconds, rest) = rest.split_first_chunk::<8>().ok_or_else(bad)?;
            let nanos = <[u8; 4]>::try_from(rest).map_err(|_| bad())?;
            Ok(Parsed::Substitute(Substitute {
                inode: u64::from_be_bytes(*inode),
                born: Timestamp {
                    seconds: i64::from_be_bytes(*seconds),
                    nanos: u32::from_be_bytes(nanos),
                },
            }))
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_survive_packing() {
        let native = FsHandle::new(-7, &[9; 39]).unwrap();
        assert_eq!(parse(&pack_native(&native).unwrap()).unwrap(), Parsed::Native(native));
        let born = Timestamp { seconds: -1, nanos: 999_999_999 };
        let substitute = Substitute { inode: u64::MAX, born };
        assert_eq!(
            parse(&pack_substitute(substitute).unwrap()).unwrap(),
            Parsed::Substitute(substitute)
        );
    }

    #[test]
    fn garbage_is_a_bad_handle() {
        let whole = pack_substitute(Substitute { inode: 1, born: Timestamp::default() }).unwrap();
        let mut cases: Vec<Vec<u8>> = vec![vec![], vec![0], vec![3, 1, 2], vec![1, 0, 0, 0, 1]];
        cases.extend((1..whole.as_bytes().len()).map(|len| whole.as_bytes()[..len].to_vec()));
        for case in cases {
            let handle = ObjectHandle::new(&case).unwrap();
            assert_eq!(parse(&handle).unwrap_err().kind, ErrorKind::BadHandle, "{case:?}");
        }
    }
}
