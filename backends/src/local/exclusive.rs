//! The verifier of an exclusive create, kept durably with the file (RFC 1813 section 3.3.8): a client that
//! lost the answer sends the call again, perhaps to a server that has restarted, and must succeed.
//!
//! All 64 bits are kept: in an extended attribute (`trusted`, or `user` where the gateway may not use that),
//! or, on file systems without them, spread over the two times of the file, which the client sets itself
//! right after. A verifier is used by a client only once, so the attribute may stay.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, Timespec, Timestamps, XattrFlags},
    io::Errno,
};

use crate::{
    attr::{Attributes, Timestamp},
    error::{BackendError, ErrorKind},
};

use super::{attr::stat, attr::timespec, open_file::OpenFile};

const NAMES: [&std::ffi::CStr; 2] = [c"trusted.aqueduct.exclusive", c"user.aqueduct.exclusive"];
/// 31 bits go into the seconds, so that any file system can hold them, and the last one into the fraction.
const SECONDS_MASK: u32 = 0x7fff_ffff;
const HALF_SECOND_NANOS: u32 = 500_000_000;

/// Keep `verifier` with the file that `fd` has just created.
///
/// # Errors
/// `NotSupported` when the file system can hold it nowhere.
pub fn keep(file: &OpenFile, fd: &OwnedFd, verifier: [u8; 8]) -> Result<(), BackendError> {
    for name in NAMES {
        match rustix::fs::fsetxattr(fd, name, &verifier, XattrFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(BackendError::from_io(errno.into(), "fsetxattr")),
        }
    }
    let (accessed, modified) = times_of(verifier);
    set_times(file, timespec(accessed), timespec(modified))?;
    if is_kept(file, &stat(&file.path)?.attributes, verifier)? {
        Ok(())
    } else {
        Err(BackendError::new(ErrorKind::NotSupported, "exclusive create"))
    }
}

fn set_times(file: &OpenFile, accessed: Timespec, modified: Timespec) -> Result<(), BackendError> {
    let times = Timestamps { last_access: accessed, last_modification: modified };
    rustix::fs::utimensat(&file.path, c"", &times, AtFlags::EMPTY_PATH)
        .map_err(|errno| BackendError::from_io(errno.into(), "utimensat"))
}

/// Whether the file was created with this verifier.
///
/// # Errors
/// When that cannot be read.
pub fn is_kept(
    file: &OpenFile,
    attr: &Attributes,
    verifier: [u8; 8],
) -> Result<bool, BackendError> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.path.as_raw_fd()));
    for name in NAMES {
        let mut kept = [0; 8];
        match rustix::fs::getxattr(&path, name, &mut kept[..]) {
            Ok(len) => return Ok(len == kept.len() && kept == verifier),
            Err(Errno::RANGE) => return Ok(false),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(BackendError::from_io(errno.into(), "getxattr")),
        }
    }
    Ok((attr.accessed, attr.modified) == times_of(verifier))
}

fn times_of(verifier: [u8; 8]) -> (Timestamp, Timestamp) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |half: u32| Timestamp {
        seconds: i64::from(half & SECONDS_MASK),
        nanos: if half > SECONDS_MASK { HALF_SECOND_NANOS } else { 0 },
    };
    (time(u32::from_be_bytes([a, b, c, d])), time(u32::from_be_bytes([e, f, g, h])))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_bit_of_the_verifier_is_lost_in_the_times() {
        let mut seen = HashSet::new();
        assert!(seen.insert(times_of([0; 8])));
        for bit in 0..64 {
            assert!(seen.insert(times_of((1u64 << bit).to_be_bytes())), "bit {bit}");
        }
        assert!(seen.insert(times_of([0xff; 8])));
    }
}
