//! Numbers and small types of the protocol (RFC 1813 sections 2.3 to 2.6).

use std::fmt;

use bytes::Bytes;
use rpc_rdma::xdr::{Reader, WireError};

/// Program number.
pub const PROGRAM: u32 = 100_003;
/// Version number.
pub const VERSION: u32 = 3;

/// Longest file handle, in bytes (NFS3_FHSIZE).
pub const HANDLE_BYTES_MAX: u32 = 64;
/// Most payload bytes of one READ or WRITE: what Linux clients use at most.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Preferred size of a READDIR answer, in bytes.
pub const LISTING_BYTES_PREFERRED: u32 = 64 << 10;
/// Largest READDIR or READDIRPLUS answer, in bytes: bounds the work of one call.
pub const LISTING_BYTES_MAX: u32 = 1 << 20;
/// Most entries in one READDIR or READDIRPLUS answer.
pub const LISTING_ENTRIES_MAX: u32 = 8192;
/// Largest offset that a file system takes (`off_t` is signed).
pub const OFFSET_MAX: u64 = i64::MAX as u64;

/// Encoded size of `fattr3`.
pub const ATTRIBUTES_BYTES: usize = 84;
/// Largest encoded size of `post_op_attr`.
pub const POST_OP_ATTR_BYTES: usize = 4 + ATTRIBUTES_BYTES;
/// Largest encoded size of `wcc_data`.
pub const WCC_BYTES: usize = 4 + 24 + POST_OP_ATTR_BYTES;
/// Largest encoded size of `nfs_fh3`.
pub const HANDLE_BYTES: usize = 4 + HANDLE_BYTES_MAX as usize;
/// Largest encoded size of `post_op_fh3`.
pub const POST_OP_HANDLE_BYTES: usize = 4 + HANDLE_BYTES;
/// Encoded size of a status.
pub const STATUS_BYTES: usize = 4;

/// A file handle as it came: not yet known to be one of ours.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RawHandle {
    len: u8,
    bytes: [u8; HANDLE_BYTES_MAX as usize],
}

impl RawHandle {
    /// Decode `nfs_fh3`.
    ///
    /// # Errors
    /// When it is longer than [`HANDLE_BYTES_MAX`] or the message ends first.
    pub fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let found = args.opaque(HANDLE_BYTES_MAX, "file handle")?;
        let mut bytes = [0; HANDLE_BYTES_MAX as usize];
        for (slot, byte) in bytes.iter_mut().zip(found) {
            *slot = *byte;
        }
        Ok(Self { len: found.len() as u8, bytes })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl fmt::Debug for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A name in a directory (`diropargs3`), not yet checked.
#[derive(Debug, Clone)]
pub struct DirectoryName {
    /// The directory.
    pub directory: RawHandle,
    /// The name, any bytes.
    pub name: Bytes,
}

impl DirectoryName {
    /// Decode `diropargs3`. The length of the name is bounded by the message and checked later, since too
    /// long a name has a status of its own.
    ///
    /// # Errors
    /// When the message ends first.
    pub fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let directory = RawHandle::decode(args)?;
        let name = args.shared(u32::MAX, "name")?;
        Ok(Self { directory, name })
    }
}
