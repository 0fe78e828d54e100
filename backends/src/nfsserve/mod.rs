//! Any file system written for the `nfsserve` crate, as a backend.
//!
//! The adapter adds what that interface leaves to its server: permission checks by owner, group and mode
//! bits, exclusion between operations that look first and act then, true `.` and `..` entries, handles that
//! outlive the process. What the interface cannot say stays out of reach:
//!
//! * No COMMIT: each write is answered as FILE_SYNC, as the interface promises.
//! * No hard links, no special files, no exclusive create (its verifier could not be kept): `NotSupported`;
//!   clients fall back to a guarded create.
//! * Handles are file ids, without a generation: a file system that uses an id again for another object
//!   makes old handles lead to the new one.
//! * Listings go on after a file id. When that entry was removed meanwhile, it is the file system's choice
//!   where to go on.
//! * The interface owns its buffers, so payload is copied (and counted) on the way in and out.
//!
//! Modules:
//!
//! * [`backend`]: the two halves of the backend trait; tasks on a tokio runtime, bounded
//! * `attributes`, `data`, `names`, `listing`: the operations
//! * `convert`: status codes, attributes, handles

mod attributes;
pub mod backend;
mod convert;
mod data;
mod listing;
mod names;

pub use backend::{Limits, NfsServeBackend};
