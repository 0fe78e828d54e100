//! A file system as users of the `nfsserve` crate write them: in memory, small, trusting its server.

mod fs;

pub use fs::{DemoFileSystem, PANIC_NAME};
