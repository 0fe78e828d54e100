//! Procedures of the program, and their arguments.

use std::ops::RangeInclusive;

use bytes::Bytes;
use rpc_rdma::xdr::{Reader, WireError};

/// Program number.
pub const PROGRAM: u32 = 100_005;
/// Versions of which something is answered. Versions 1 and 2 have the same calls but for MNT, whose result is
/// a handle of 32 bytes that we do not make.
pub const VERSIONS: RangeInclusive<u32> = 1..=3;

const VERSION_3: u32 = 3;

/// A procedure other than NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Procedure {
    /// MNT: a path becomes a handle.
    Mount,
    /// DUMP: who has mounted what.
    Dump,
    /// UMNT: a path is unmounted.
    Unmount,
    /// UMNTALL: all paths are.
    UnmountAll,
    /// EXPORT: what can be mounted.
    Export,
}

impl Procedure {
    /// The procedure with this number.
    pub fn of(version: u32, number: u32) -> Option<Self> {
        Some(match number {
            1 if version == VERSION_3 => Self::Mount,
            2 => Self::Dump,
            3 => Self::Unmount,
            4 => Self::UnmountAll,
            5 => Self::Export,
            _ => return None,
        })
    }
}

/// Decode a `dirpath`. Its length is bounded by the message; too long a one has a status of its own.
///
/// # Errors
/// When it is none.
pub fn decode_path(args: &mut Reader<'_>) -> Result<Bytes, WireError> {
    args.shared(u32::MAX, "path")
}
