//! The MOUNT program (RFC 1813 appendix I): from a path to the first file handle.
//!
//! It is answered on the NFS port, so that a client needs neither a second port nor a port mapper. What a
//! client mounts is only remembered for DUMP; nothing depends on it.

pub mod listing;
pub mod procedure;
pub mod status;
pub mod table;
pub mod walk;

pub use procedure::{PROGRAM, Procedure, VERSIONS};
pub use status::MountStatus;
pub use table::MountTable;
pub use walk::{Step, Walk};
