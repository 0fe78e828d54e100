//! The objects that are held open between requests, by handle.
//!
//! One table serves all lanes and the blocking threads: a file's unwritten data, the number of its
//! descriptors and the limit are things of the process, not of a lane. It is cut into shards, so that two
//! lanes rarely meet at a lock, and the locks guard a look into a map and nothing that blocks.
//!
//! Who gives way is decided by the clock algorithm. An object in somebody's hands, or with data that is not
//! on stable storage, is passed over; a thread that may block makes such data stable first.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::handle::ObjectHandle;

use super::open_file::OpenFile;

const SHARDS: usize = 16;

#[derive(Debug)]
struct Place {
    file: Arc<OpenFile>,
    used: bool,
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<ObjectHandle, Place>,
    clock: VecDeque<ObjectHandle>,
}

/// The table.
#[derive(Debug)]
pub struct FileCache {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    shard_max: usize,
}

/// What became of [`FileCache::remove_unused`].
#[derive(Debug)]
pub enum Unused {
    /// It was asked for meanwhile and stays.
    InUse,
    /// It is not in the table any more.
    Gone(Option<Arc<OpenFile>>),
}

/// What an insertion leaves to do.
#[derive(Debug)]
pub struct Inserted {
    /// The object that the table now has: an older one if there was one.
    pub file: Arc<OpenFile>,
    /// An object with unwritten data that should give way: make it stable, then [`FileCache::remove_idle`].
    pub dirty: Option<Arc<OpenFile>>,
    /// What gave way; dropping it closes descriptors.
    pub gone: Vec<Arc<OpenFile>>,
}

impl FileCache {
    /// Room for `files_max` objects (at least 64).
    pub fn new(files_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            shard_max: files_max.max(64).div_ceil(SHARDS),
        }
    }

    fn shard(&self, handle: &ObjectHandle) -> MutexGuard<'_, Shard> {
        let index = self.hasher.hash_one(handle) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object with this handle, if it is held open.
    pub fn get(&self, handle: &ObjectHandle) -> Option<Arc<OpenFile>> {
        let mut shard = self.shard(handle);
        let place = shard.places.get_mut(handle)?;
        place.used = true;
        Some(place.file.clone())
    }

    /// The object with this handle, if it is held open; looking does not count as use.
    pub fn peek(&self, handle: &ObjectHandle) -> Option<Arc<OpenFile>> {
        self.shard(handle).places.get(handle).map(|place| place.file.clone())
    }

    /// Hold `file` open.
    pub fn insert(&self, file: Arc<OpenFile>) -> Inserted {
        let mut shard = self.shard(&file.handle);
        if let Some(place) = shard.places.get_mut(&file.handle) {
            place.used = true;
            return Inserted { file: place.file.clone(), dirty: None, gone: vec![file] };
        }
        let (gone, dirty) = shard.make_room(self.shard_max);
        shard.clock.push_back(file.handle);
        shard.places.insert(file.handle, Place { file: file.clone(), used: true });
        drop(shard);
        Inserted { file, dirty, gone }
    }

    /// Forget an object, whoever uses it. It stays open in the hands that have it.
    pub fn remove(&self, handle: &ObjectHandle) -> Option<Arc<OpenFile>> {
        let mut shard = self.shard(handle);
        let place = shard.places.remove(handle)?;
        shard.clock.retain(|known| known != handle);
        Some(place.file)
    }

    /// Forget an object that nobody but the caller has in hand and that has no unwritten data.
    pub fn remove_idle(&self, file: &Arc<OpenFile>) -> bool {
        let mut shard = self.shard(&file.handle);
        let idle = shard.places.get(&file.handle).is_some_and(|place| {
            Arc::ptr_eq(&place.file, file) && Arc::strong_count(file) <= 2 && !file.is_dirty()
        });
        if idle {
            shard.places.remove(&file.handle);
            shard.clock.retain(|known| *known != file.handle);
        }
        idle
    }

    /// Forget an object that has not been asked for since this was called last.
    pub fn remove_unused(&self, handle: &ObjectHandle) -> Unused {
        let mut shard = self.shard(handle);
        let Some(place) = shard.places.get_mut(handle) else { return Unused::Gone(None) };
        if std::mem::take(&mut place.used) {
            return Unused::InUse;
        }
        shard.clock.retain(|known| known != handle);
        Unused::Gone(shard.places.remove(handle).map(|place| place.file))
    }

    /// Objects held open.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let lock = |shard: &Mutex<Shard>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).places.len()
        };
        self.shards.iter().map(lock).sum()
    }
}

impl Shard {
    /// Make room for one more, in a bounded number of steps. Returns what left, and the first object that
    /// stayed only because of unwritten data, if nothing else could leave.
    fn make_room(&mut self, limit: usize) -> (Vec<Arc<OpenFile>>, Option<Arc<OpenFile>>) {
        let mut gone = Vec::new();
        let mut dirty = None;
        let mut steps = (2 * self.clock.len()).min(4096);
        while self.places.len() >= limit && steps > 0 {
            steps -= 1;
            let Some(handle) = self.clock.pop_front() else { break };
            let Some(place) = self.places.get_mut(&handle) else { continue };
            let busy = Arc::strong_count(&place.file) > 1;
            if std::mem::take(&mut place.used) || busy {
                self.clock.push_back(handle);
            } else if place.file.is_dirty() {
                if dirty.is_none() {
                    dirty = Some(place.file.clone());
                }
                self.clock.push_back(handle);
            } else if let Some(place) = self.places.remove(&handle) {
                gone.push(place.file);
            }
        }
        let dirty = dirty.filter(|_| self.places.len() >= limit);
        (gone, dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::attr::stat;

    fn file(number: u16) -> Arc<OpenFile> {
        let fd = std::fs::File::open("/").unwrap();
        let about = stat(&fd).unwrap();
        let handle = ObjectHandle::new(&number.to_be_bytes()).unwrap();
        Arc::new(OpenFile::new(handle, fd.into(), &about))
    }

    #[test]
    fn the_limit_holds_and_busy_or_dirty_files_stay() {
        let cache = FileCache::new(64);
        let busy = cache.insert(file(0)).file;
        let dirty = file(1);
        dirty.set_dirty(true);
        let dirty_handle = dirty.handle;
        drop(cache.insert(dirty));
        for number in 2..2_000 {
            drop(cache.insert(file(number)));
        }
        assert!(cache.len() <= 64 + 2, "{}", cache.len());
        assert!(cache.get(&busy.handle).is_some());
        let dirty = cache.get(&dirty_handle).expect("unwritten data keeps a file open");
        assert!(!cache.remove_idle(&dirty));
        dirty.set_dirty(false);
        assert!(cache.remove_idle(&dirty));
        assert!(cache.get(&dirty_handle).is_none());
    }

    #[test]
    fn the_first_of_two_openers_wins() {
        let cache = FileCache::new(64);
        let first = cache.insert(file(9)).file;
        let second = cache.insert(file(9)).file;
        assert!(Arc::ptr_eq(&first, &second));
    }
}
