//! The ring's table of files.
//!
//! An operation on a table's slot saves the kernel the look-up and the shared reference count of the file. A
//! file gets a slot when it is used for the second time in short order, and keeps it until the clock
//! algorithm gives the slot to another or nobody else holds the file any more. The table holds the
//! descriptor too, so that a slot's file never changes behind it.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use io_uring::IoUring;

/// Remembers the files used last, to see a second use.
const SEEN: usize = 256;

#[derive(Debug, Default)]
struct Slot {
    file: Option<Arc<OwnedFd>>,
    used: bool,
}

/// The files registered with one ring.
#[derive(Debug)]
pub struct FileSlots {
    slots: Vec<Slot>,
    by_file: HashMap<usize, u32>,
    seen: Vec<usize>,
    hand: usize,
}

fn key(file: &Arc<OwnedFd>) -> usize {
    Arc::as_ptr(file).addr()
}

impl FileSlots {
    /// A table of `slots` places, or none where the kernel refuses it.
    pub fn register(ring: &IoUring, slots: u32) -> Self {
        let registered = slots > 0 && ring.submitter().register_files_sparse(slots).is_ok();
        let slots = if registered { slots } else { 0 };
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            by_file: HashMap::new(),
            seen: vec![0; SEEN],
            hand: 0,
        }
    }

    /// The file's slot, if it has one.
    pub fn get(&mut self, file: &Arc<OwnedFd>) -> Option<u32> {
        let index = *self.by_file.get(&key(file))?;
        self.slots.get_mut(index as usize)?.used = true;
        Some(index)
    }

    /// Whether the file is worth a slot: it has been used a moment ago.
    pub fn is_wanted(&mut self, file: &Arc<OwnedFd>) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        // Descriptors live in allocations of a few dozen bytes: the low bits say nothing.
        let place = &mut self.seen[(key(file) >> 4) % SEEN];
        std::mem::replace(place, key(file)) == key(file)
    }

    /// Whether a new file takes another one's slot. Entries in the submission queue may still name that slot,
    /// so they must be submitted first.
    pub fn is_full(&self) -> bool {
        self.by_file.len() >= self.slots.len()
    }

    /// Give the file a slot.
    ///
    /// # Errors
    /// When the kernel refuses; the file then goes without.
    pub fn insert(&mut self, ring: &IoUring, file: &Arc<OwnedFd>) -> io::Result<u32> {
        let index = self.choose();
        let number = u32::try_from(index).map_err(io::Error::other)?;
        let slot = self.slots.get_mut(index).ok_or(io::ErrorKind::NotFound)?;
        ring.submitter().register_files_update(number, &[file.as_raw_fd()])?;
        if let Some(old) = slot.file.replace(file.clone()) {
            self.by_file.remove(&key(&old));
        }
        slot.used = true;
        self.by_file.insert(key(file), number);
        Ok(number)
    }

    fn choose(&mut self) -> usize {
        if !self.is_full()
            && let Some(free) = self.slots.iter().position(|slot| slot.file.is_none())
        {
            return free;
        }
        loop {
            self.hand = (self.hand + 1) % self.slots.len().max(1);
            match self.slots.get_mut(self.hand) {
                Some(slot) if slot.used => slot.used = false,
                _ => return self.hand,
            }
        }
    }

    /// Take out the files that nobody else holds. The caller drops them where closing may block.
    pub fn take_unused(&mut self, ring: &IoUring) -> Vec<Arc<OwnedFd>> {
        let mut unused = Vec::new();
        for (number, slot) in (0u32..).zip(&mut self.slots) {
            // Operations hold the file too, so such a slot is in no entry.
            if slot.file.as_ref().is_some_and(|file| Arc::strong_count(file) == 1)
                && ring.submitter().register_files_update(number, &[-1]).is_ok()
                && let Some(file) = slot.file.take()
            {
                self.by_file.remove(&key(&file));
                unused.push(file);
            }
        }
        unused
    }

    /// Files in the table.
    pub fn len(&self) -> usize {
        self.by_file.len()
    }
}
