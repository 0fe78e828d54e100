//! Files of a local file system.

mod attr;
mod backend;
mod commit;
mod create;
mod directory;
mod directory_locks;
mod exclusive;
mod file_cache;
mod get;
mod group_sync;
mod handle;
mod inbox;
mod lane;
mod lookup;
mod make;
mod names;
mod open_file;
mod paths;
mod perform;
mod permission;
mod read;
mod set_attributes;
mod settings;
mod sys;
mod transfer;
mod verifier;
mod write;
mod write_gate;

pub use backend::LocalBackend;
pub use settings::{IoMode, LocalError, LocalSettings};
pub use verifier::Verifier;
