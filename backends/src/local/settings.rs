//! How a local directory is served, and what can be wrong with it.

use std::{io, path::PathBuf};

/// How file data moves between drive and buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum IoMode {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Through the page cache, which forgets it at once (`RWF_DONTCACHE`); like `Buffered` where the file
    /// system cannot.
    DontCache,
    /// Past the page cache (`O_DIRECT`) wherever offset and memory are aligned; like `Buffered` where the
    /// file system cannot.
    Direct,
}

/// A directory to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSettings {
    /// The directory.
    pub root: PathBuf,
    /// How file data moves.
    pub io_mode: IoMode,
    /// Whether changes of names and attributes are on stable storage before they are answered.
    pub metadata_sync: bool,
    /// Whether programs on this machine change the files too. Then clients are never told what an object
    /// was like before an operation, since somebody may have come between.
    pub local_writers: bool,
    /// Files kept open between requests. Each takes up to three file descriptors, five with
    /// [`IoMode::Direct`].
    pub open_files_max: usize,
    /// Nothing may be changed.
    pub read_only: bool,
}

impl LocalSettings {
    /// Serve `root` with the defaults: buffered, durable metadata, no local writers, 16,384 open files.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            io_mode: IoMode::Buffered,
            metadata_sync: true,
            local_writers: false,
            open_files_max: 16_384,
            read_only: false,
        }
    }
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// It cannot be opened.
    #[error(
        "cannot open the export directory {path}: {source}; check that it exists and that the gateway may read it"
    )]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a directory; give the directory that is to be exported")]
    NotDirectory {
        /// The path.
        path: PathBuf,
    },
    /// Its attributes cannot be read.
    #[error(
        "cannot read the attributes of {path}: {source}; check that its file system is mounted and healthy"
    )]
    Inspect {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Every client would act as the superuser.
    #[error(
        "cannot serve {path} safely: the gateway is root but may not act as other users, so every client would be root; give it CAP_SETUID and CAP_SETGID, or run it as an ordinary user"
    )]
    AllRoot {
        /// The directory.
        path: PathBuf,
    },
    /// `/proc` is needed to open files by descriptor.
    #[error(
        "cannot open {path} through /proc/self/fd: {source}; mount /proc in the gateway's container or chroot"
    )]
    NoProc {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
