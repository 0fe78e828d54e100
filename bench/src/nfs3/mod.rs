//! The client's side of NFSv3 and MOUNT3 (RFC 1813).
//!
//! * [`call`]: arguments, and how large the reply may become
//! * `result`: results
//! * [`attributes`]: fattr3, sattr3 and what goes with them
//! * [`mount`]: MOUNT3 and the portmapper's GETPORT
//! * [`client`]: one call at a time, typed: for preparing and for tests

pub mod attributes;
pub mod call;
pub mod client;
pub mod mount;
pub mod result;

pub use attributes::{Attributes, FileHandle, SetAttributes};
pub use call::{Call, Stable};
pub use client::{Nfs3Client, Nfs3Error};
pub use result::Failure;

/// Program number of NFS.
pub const PROGRAM: u32 = 100_003;
/// Its version.
pub const VERSION: u32 = 3;
/// Longest file handle, in bytes.
pub const HANDLE_BYTES_MAX: u32 = 64;
