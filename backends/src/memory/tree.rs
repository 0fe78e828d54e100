//! All objects, their handles, and what they take together.

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;

use super::{
    data::PAGE_BYTES,
    directory::Directory,
    inode::{Content, Inode},
    settings::{MemorySettings, Ticker},
};
use crate::{
    attr::{Attributes, Space, Timestamp},
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    op::{NAME_BYTES_MAX, WriteVerifier},
};

/// Place of an object in the table. Places are used again, as inode numbers are.
pub(super) type Id = u32;

/// The root directory's place.
pub(super) const ROOT: Id = 0;
/// Largest file: the largest offset that the system calls of the other backends can name.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Most hard links of one object.
pub(super) const LINKS_MAX: u32 = 65_000;

type Result<T> = std::result::Result<T, BackendError>;

#[derive(Debug)]
pub(super) struct Tree {
    bytes_max: u64,
    entries_max: u64,
    /// Random for each tree: nothing of it outlives the process, so handles from before are stale.
    instance: u64,
    crashes: u64,
    ticker: Ticker,
    slots: Vec<Slot>,
    free: Vec<Id>,
    entries: u64,
    pages: u64,
}

/// A place. The generation grows with each new tenant, so that a handle of the last one is stale.
#[derive(Debug)]
struct Slot {
    generation: u32,
    inode: Option<Inode>,
}

impl Tree {
    pub(super) fn new(settings: &MemorySettings) -> Self {
        let mut tree = Self {
            bytes_max: settings.bytes_max,
            entries_max: settings.entries_max.min(u64::from(u32::MAX - 1)),
            instance: RandomState::new().build_hasher().finish(),
            crashes: 0,
            ticker: Ticker::new(settings.clock),
            slots: Vec::new(),
            free: Vec::new(),
            entries: 0,
            pages: 0,
        };
        let now = tree.now();
        let (uid, gid, mode) = settings.root;
        tree.allocate(Inode {
            mode,
            links: 2,
            uid,
            gid,
            accessed: now,
            modified: now,
            changed: now,
            verifier: None,
            content: Content::Directory(Directory::new(ROOT)),
        });
        tree
    }

    pub(super) fn now(&mut self) -> Timestamp {
        self.ticker.now()
    }

    /// Instance (8 bytes), place (4), generation (4).
    pub(super) fn handle(&self, id: Id) -> ObjectHandle {
        let generation = self.slots.get(id as usize).map_or(0, |slot| slot.generation);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.instance.to_le_bytes());
        bytes[8..12].copy_from_slice(&id.to_le_bytes());
        bytes[12..].copy_from_slice(&generation.to_le_bytes());
        ObjectHandle::new(&bytes).expect("16 bytes fit in a handle")
    }

    pub(super) fn resolve(&self, handle: &ObjectHandle, step: &'static str) -> Result<Id> {
        let fail = |kind| BackendError::new(kind, step);
        let bytes: [u8; 16] =
            handle.as_bytes().try_into().map_err(|_| fail(ErrorKind::BadHandle))?;
        let [instance @ .., _, _, _, _, _, _, _, _] = bytes;
        let [_, _, _, _, _, _, _, _, a, b, c, d, generation @ ..] = bytes;
        let id = Id::from_le_bytes([a, b, c, d]);
        let generation = u32::from_le_bytes(generation);
        let live = u64::from_le_bytes(instance) == self.instance
            && self
                .slots
                .get(id as usize)
                .is_some_and(|slot| slot.inode.is_some() && slot.generation == generation);
        if live { Ok(id) } else { Err(fail(ErrorKind::Stale)) }
    }

    pub(super) fn get(&self, id: Id, step: &'static str) -> Result<&Inode> {
        let inode = self.slots.get(id as usize).and_then(|slot| slot.inode.as_ref());
        inode.ok_or_else(|| BackendError::new(ErrorKind::Stale, step))
    }

    pub(super) fn get_mut(&mut self, id: Id, step: &'static str) -> Result<&mut Inode> {
        let inode = self.slots.get_mut(id as usize).and_then(|slot| slot.inode.as_mut());
        inode.ok_or_else(|| BackendError::new(ErrorKind::Stale, step))
    }

    pub(super) fn attributes(&self, id: Id, step: &'static str) -> Result<Attributes> {
        Ok(self.get(id, step)?.attributes(u64::from(id) + 1))
    }

    pub(super) fn directory(&self, id: Id, step: &'static str) -> Result<&Directory> {
        match &self.get(id, step)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(BackendError::new(ErrorKind::NotDirectory, step)),
        }
    }

    fn directory_mut(&mut self, id: Id, step: &'static str) -> Result<&mut Directory> {
        match &mut self.get_mut(id, step)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(BackendError::new(ErrorKind::NotDirectory, step)),
        }
    }

    /// Whether `id` is `ancestor` or lies below it.
    pub(super) fn is_below(&self, id: Id, ancestor: Id, step: &'static str) -> Result<bool> {
        let mut at = id;
        loop {
            if at == ancestor {
                return Ok(true);
            }
            if at == ROOT {
                return Ok(false);
            }
            at = self.directory(at, step)?.parent;
        }
    }

    /// Give a new object its place; nothing leads to it yet.
    pub(super) fn allocate(&mut self, inode: Inode) -> Id {
        self.pages += inode.pages_held();
        if let Some(id) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(id as usize)
        {
            slot.generation = slot.generation.wrapping_add(1);
            slot.inode = Some(inode);
            return id;
        }
        let id = Id::try_from(self.slots.len()).expect("entries_max keeps places below 2^32");
        self.slots.push(Slot { generation: 1, inode: Some(inode) });
        id
    }

    /// Fail with `NoSpace` unless another entry fits.
    pub(super) fn require_entry(&self, step: &'static str) -> Result<()> {
        if self.entries < self.entries_max {
            Ok(())
        } else {
            Err(BackendError::new(ErrorKind::NoSpace, step))
        }
    }

    /// Put `id` into a directory under a name that is free. A directory gets its "..".
    pub(super) fn attach(
        &mut self,
        directory: Id,
        name: Bytes,
        id: Id,
        step: &'static str,
    ) -> Result<()> {
        let now = self.now();
        self.directory_mut(directory, step)?.insert(name, id);
        self.entries += 1;
        let child = self.get_mut(id, step)?;
        child.changed = now;
        let is_directory = match &mut child.content {
            Content::Directory(content) => {
                content.parent = directory;
                true
            }
            _ => false,
        };
        let parent = self.get_mut(directory, step)?;
        parent.links += u32::from(is_directory);
        parent.touch(now);
        Ok(())
    }

    /// Take a name out of a directory; returns what it led to.
    pub(super) fn detach(&mut self, directory: Id, name: &[u8], step: &'static str) -> Result<Id> {
        let now = self.now();
        let removed = self.directory_mut(directory, step)?.remove(name);
        let id = removed.ok_or_else(|| BackendError::new(ErrorKind::NotFound, step))?;
        self.entries -= 1;
        let child = self.get_mut(id, step)?;
        child.changed = now;
        let is_directory = matches!(child.content, Content::Directory(_));
        let parent = self.get_mut(directory, step)?;
        parent.links -= u32::from(is_directory);
        parent.touch(now);
        Ok(id)
    }

    /// One link less; the object goes with its last name. A directory has only one.
    pub(super) fn unlink(&mut self, id: Id, step: &'static str) -> Result<()> {
        let inode = self.get_mut(id, step)?;
        let last = match inode.content {
            Content::Directory(_) => true,
            _ => {
                inode.links -= 1;
                inode.links == 0
            }
        };
        if last && let Some(slot) = self.slots.get_mut(id as usize) {
            self.pages -= slot.inode.take().map_or(0, |inode| inode.pages_held());
            self.free.push(id);
        }
        Ok(())
    }

    /// Change an object's content by `change`, keeping count of the pages that it holds.
    pub(super) fn change_content(
        &mut self,
        id: Id,
        step: &'static str,
        change: impl FnOnce(&mut Content),
    ) -> Result<()> {
        let inode = self.get_mut(id, step)?;
        let before = inode.pages_held();
        change(&mut inode.content);
        let after = inode.pages_held();
        self.pages = self.pages - before + after;
        Ok(())
    }

    /// Whether `pages` more can be held.
    pub(super) fn has_room(&self, pages: u64) -> bool {
        (self.pages + pages).saturating_mul(PAGE_BYTES as u64) <= self.bytes_max
    }

    pub(super) fn verifier(&self) -> WriteVerifier {
        self.instance.wrapping_add(self.crashes).to_be_bytes()
    }

    /// Lose all data that is not committed.
    pub(super) fn crash(&mut self) {
        self.crashes += 1;
        self.pages = 0;
        for inode in self.slots.iter_mut().filter_map(|slot| slot.inode.as_mut()) {
            if let Content::Regular(data) = &mut inode.content {
                data.crash();
            }
            self.pages += inode.pages_held();
        }
    }

    pub(super) fn space(&self) -> Space {
        let free = self.bytes_max.saturating_sub(self.pages * PAGE_BYTES as u64);
        let files_free = self.entries_max - self.entries;
        Space {
            total: self.bytes_max,
            free,
            available: free,
            files_total: self.entries_max,
            files_free,
            files_available: files_free,
        }
    }
}

/// Fail unless `name` can name a new or existing entry. The protocol layer has checked it already.
pub(super) fn require_name(name: &[u8], step: &'static str) -> Result<()> {
    let kind = match name {
        [] | b"." | b".." => ErrorKind::Invalid,
        _ if name.contains(&b'/') || name.contains(&0) => ErrorKind::Invalid,
        _ if name.len() > NAME_BYTES_MAX => ErrorKind::NameTooLong,
        _ => return Ok(()),
    };
    Err(BackendError::new(kind, step))
}
