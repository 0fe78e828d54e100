//! The reference model: a whole POSIX-like file system in memory.
//!
//! It is meant to be simple and obviously right. Other backends are compared with it operation by operation,
//! the protocol layers are tested over it, and it can be served. Everything happens inside `submit`, under
//! one lock that all lanes share.
//!
//! * [`backend`]: the two halves of the backend trait over the tree
//! * `names`: operations on directory entries; `contents`: operations on one object
//! * `tree`: all objects, their handles, and what they take together
//! * `inode`, `directory`, `data`: one object
//! * [`settings`]: limits and the clock

pub mod backend;
mod contents;
mod data;
mod directory;
mod inode;
mod names;
pub mod settings;
mod tree;

pub use backend::MemoryBackend;
pub use settings::{Clock, MemorySettings};
