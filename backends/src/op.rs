//! Owned operations in, owned completions out.
//!
//! An operation owns everything that it needs (names, payload, the buffer to read into), so nothing is
//! borrowed while it is under way and a caller that has gone away costs nothing but the result.

use std::sync::Arc;

use buffers::{Lease, Pages, Payload};
use bytes::Bytes;

use crate::{
    attr::{Around, Attributes, Changes, Device, FileKind, Space, Timestamp},
    error::BackendError,
    handle::ObjectHandle,
    identity::Identity,
};

/// The caller's mark on a request; it comes back with the completion.
pub type Token = u64;

/// Longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const LINK_BYTES_MAX: usize = 4095;

/// One operation of one caller.
#[derive(Debug)]
pub struct Request {
    /// Comes back with the completion; unique among those under way on the lane.
    pub token: Token,
    /// With whose rights.
    pub identity: Arc<Identity>,
    /// What to do.
    pub operation: Operation,
}

/// How far written data must be on stable storage before the answer (RFC 1813 section 3.3.7). Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stability {
    /// In the server's memory; COMMIT makes it stable.
    Unstable,
    /// The data and what is needed to find it.
    DataSync,
    /// The data and all attributes.
    FileSync,
}

/// Changes when data that was acknowledged as unstable may have been lost (RFC 1813 section 3.3.7).
pub type WriteVerifier = [u8; 8];

/// How to create a regular file (RFC 1813 section 3.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// Use an existing file: only `size` of the changes is applied to it.
    Unchecked(Changes),
    /// Fail with `Exists` if the name is taken.
    Guarded(Changes),
    /// Succeed if the name is free or was created with this very verifier, which is kept durably.
    Exclusive([u8; 8]),
}

/// What MKNOD makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Character device.
    Character(Device),
    /// Block device.
    Block(Device),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Rights that ACCESS asks for and grants: the bits of RFC 1813 section 3.3.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessMask(pub u32);

impl AccessMask {
    /// Read data, list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// Rewrite existing data, change existing entries.
    pub const MODIFY: u32 = 0x04;
    /// Write new data, add entries.
    pub const EXTEND: u32 = 0x08;
    /// Delete an existing entry.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
}

/// What a caller wants done. Names are raw bytes, one component each, already checked to be non-empty, at
/// most [`NAME_BYTES_MAX`] long and free of `/` and NUL; "." and ".." reach only `Lookup`.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are named after what they are
pub enum Operation {
    /// Attributes of an object.
    GetAttributes { object: ObjectHandle },
    /// Set attributes. With `guard`, only if the object's change time is this one.
    SetAttributes { object: ObjectHandle, changes: Changes, guard: Option<Timestamp> },
    /// The object behind a name. ".." of the export root is the root.
    Lookup { directory: ObjectHandle, name: Bytes },
    /// Which of the rights in `mask` the caller has.
    Access { object: ObjectHandle, mask: AccessMask },
    /// Target of a symbolic link.
    ReadLink { object: ObjectHandle },
    /// Read up to `count` bytes at `offset` into `into`, which holds at least `count` bytes plus
    /// `buffers::pool::SLACK_BYTES`. Where `pages` is given, a backend that can may answer with pages of the
    /// page cache in it instead.
    Read { object: ObjectHandle, offset: u64, count: u32, into: Lease, pages: Option<Pages> },
    /// Write all of `data` at `offset`.
    Write { object: ObjectHandle, offset: u64, data: Bytes, stability: Stability },
    /// Make what was written between `offset` and `offset + count` stable; 0 means to the end.
    Commit { object: ObjectHandle, offset: u64, count: u32 },
    /// Create a regular file.
    Create { directory: ObjectHandle, name: Bytes, how: CreateHow },
    /// Create a directory.
    MakeDirectory { directory: ObjectHandle, name: Bytes, changes: Changes },
    /// Create a symbolic link to `target`.
    MakeSymlink { directory: ObjectHandle, name: Bytes, target: Bytes, changes: Changes },
    /// Create a special file.
    MakeNode { directory: ObjectHandle, name: Bytes, node: NodeKind, changes: Changes },
    /// Remove a name that is not a directory's.
    Remove { directory: ObjectHandle, name: Bytes },
    /// Remove an empty directory.
    RemoveDirectory { directory: ObjectHandle, name: Bytes },
    /// Rename; what is at the target is replaced as rename(2) does.
    Rename { from: ObjectHandle, from_name: Bytes, to: ObjectHandle, to_name: Bytes },
    /// Another name for an object.
    Link { object: ObjectHandle, directory: ObjectHandle, name: Bytes },
    /// Entries of a directory after `cookie` (0: from the start).
    ReadDirectory(ReadDirectory),
    /// Space of the file system.
    FileSystemSpace { object: ObjectHandle },
}

/// Arguments of [`Operation::ReadDirectory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadDirectory {
    /// The directory.
    pub directory: ObjectHandle,
    /// Position after which to go on; 0 is the start.
    pub cookie: u64,
    /// Whether entries need handles and attributes.
    pub plus: bool,
    /// Stop when the names alone take this many bytes (each counted with 24 more).
    pub name_bytes_max: u32,
    /// Stop after this many entries.
    pub entries_max: u32,
}

/// One entry of a directory; "." and ".." are among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of the object.
    pub file_id: u64,
    /// Where to go on after this entry: never 0, stable while the entry exists and across restarts.
    pub cookie: u64,
    /// The name.
    pub name: Bytes,
    /// Handle and attributes, where asked for and to be had.
    pub object: Option<(ObjectHandle, Attributes)>,
}

/// What became of an operation.
#[derive(Debug)]
pub struct Completion {
    /// The request's mark.
    pub token: Token,
    /// The result.
    pub result: Result<Outcome, BackendError>,
    /// The object, or the (first) directory, around the operation; also after an error, where known.
    pub first: Around,
    /// The second directory of a rename; the directory of a link.
    pub second: Around,
}

impl Completion {
    /// A failure about which nothing more is known.
    pub fn failed(token: Token, error: BackendError) -> Self {
        Self { token, result: Err(error), first: Around::default(), second: Around::default() }
    }
}

/// What a successful operation gives. Attributes of the object that it was about are in
/// [`Completion::first`].
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Outcome {
    /// Nothing more than the attributes around it: GetAttributes, SetAttributes, Remove, RemoveDirectory,
    /// Rename, Link.
    Done,
    /// Lookup: the object found (its directory is `first`).
    Found { object: ObjectHandle, attributes: Attributes },
    /// Create, MakeDirectory, MakeSymlink, MakeNode: the new object (its directory is `first`).
    Created { object: ObjectHandle, attributes: Option<Attributes> },
    /// Access: the rights that the caller has, a part of those asked for.
    Access { granted: AccessMask },
    /// ReadLink: the target.
    LinkTarget { target: Bytes },
    /// Read: the data, and whether it reaches the end of the file.
    Data { data: Payload, end_of_file: bool },
    /// Write: how much was written (all, or what the device took), how stable it is, and the verifier that
    /// was valid before the write began.
    Written { count: u32, stability: Stability, verifier: WriteVerifier },
    /// Commit: done under this verifier.
    Committed { verifier: WriteVerifier },
    /// ReadDirectory: the entries and whether they are the last.
    Entries { entries: Vec<Entry>, end: bool },
    /// FileSystemSpace.
    Space(Space),
}

impl Operation {
    /// Short name for logs and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::GetAttributes { .. } => "getattr",
            Self::SetAttributes { .. } => "setattr",
            Self::Lookup { .. } => "lookup",
            Self::Access { .. } => "access",
            Self::ReadLink { .. } => "readlink",
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Commit { .. } => "commit",
            Self::Create { .. } => "create",
            Self::MakeDirectory { .. } => "mkdir",
            Self::MakeSymlink { .. } => "symlink",
            Self::MakeNode { .. } => "mknod",
            Self::Remove { .. } => "remove",
            Self::RemoveDirectory { .. } => "rmdir",
            Self::Rename { .. } => "rename",
            Self::Link { .. } => "link",
            Self::ReadDirectory(_) => "readdir",
            Self::FileSystemSpace { .. } => "fsstat",
        }
    }

    /// The objects that it is about, in the order of [`Completion::first`] and [`Completion::second`].
    pub fn objects(&self) -> (ObjectHandle, Option<ObjectHandle>) {
        match self {
            Self::GetAttributes { object }
            | Self::SetAttributes { object, .. }
            | Self::Access { object, .. }
            | Self::ReadLink { object }
            | Self::Read { object, .. }
            | Self::Write { object, .. }
            | Self::Commit { object, .. }
            | Self::FileSystemSpace { object } => (*object, None),
            Self::Lookup { directory, .. }
            | Self::Create { directory, .. }
            | Self::MakeDirectory { directory, .. }
            | Self::MakeSymlink { directory, .. }
            | Self::MakeNode { directory, .. }
            | Self::Remove { directory, .. }
            | Self::RemoveDirectory { directory, .. } => (*directory, None),
            Self::Rename { from, to, .. } => (*from, Some(*to)),
            Self::Link { object, directory, .. } => (*object, Some(*directory)),
            Self::ReadDirectory(args) => (args.directory, None),
        }
    }

    /// Whether it changes anything (refused on a read-only export).
    pub fn is_mutation(&self) -> bool {
        match self {
            Self::GetAttributes { .. }
            | Self::Lookup { .. }
            | Self::Access { .. }
            | Self::ReadLink { .. }
            | Self::Read { .. }
            | Self::ReadDirectory(_)
            | Self::FileSystemSpace { .. } => false,
            Self::SetAttributes { .. }
            | Self::Write { .. }
            | Self::Commit { .. }
            | Self::Create { .. }
            | Self::MakeDirectory { .. }
            | Self::MakeSymlink { .. }
            | Self::MakeNode { .. }
            | Self::Remove { .. }
            | Self::RemoveDirectory { .. }
            | Self::Rename { .. }
            | Self::Link { .. } => true,
        }
    }
}

impl From<NodeKind> for FileKind {
    fn from(node: NodeKind) -> Self {
        match node {
            NodeKind::Character(_) => Self::Character,
            NodeKind::Block(_) => Self::Block,
            NodeKind::Fifo => Self::Fifo,
            NodeKind::Socket => Self::Socket,
        }
    }
}
