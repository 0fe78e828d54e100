//! One object: its attributes and its content.

use bytes::Bytes;

use super::{data::FileData, directory::Directory};
use crate::attr::{Attributes, Device, FileKind, Timestamp};

/// Bytes that a directory entry is said to take.
const ENTRY_BYTES: u64 = 32;

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    /// The verifier of the exclusive CREATE that made it.
    pub(super) verifier: Option<[u8; 8]>,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Regular(FileData),
    Directory(Directory),
    Symlink(Bytes),
    Special(FileKind, Device),
}

impl Inode {
    pub(super) fn attributes(&self, file_id: u64) -> Attributes {
        let (kind, size, used, device) = match &self.content {
            Content::Regular(data) => {
                (FileKind::Regular, data.size(), data.used_bytes(), Device::default())
            }
            Content::Directory(directory) => {
                let bytes = (directory.len() as u64 + 2) * ENTRY_BYTES;
                (FileKind::Directory, bytes, bytes, Device::default())
            }
            Content::Symlink(target) => {
                (FileKind::Symlink, target.len() as u64, 0, Device::default())
            }
            Content::Special(kind, device) => (*kind, 0, 0, *device),
        };
        Attributes {
            kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            used,
            device,
            file_id,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
        }
    }

    /// Pages of file data that it holds.
    pub(super) fn pages_held(&self) -> u64 {
        match &self.content {
            Content::Regular(data) => data.pages_held(),
            Content::Directory(_) | Content::Symlink(_) | Content::Special(..) => 0,
        }
    }

    /// The content changed at `now`.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.modified = now;
        self.changed = now;
    }
}
