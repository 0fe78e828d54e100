//! The mapping: anonymous memory in chunks, huge pages where the system has them.

#![allow(unsafe_code)]

use std::{io, ptr::NonNull, sync::Arc};

/// io_uring takes at most 1 GiB in one fixed buffer, so no chunk is larger.
pub const CHUNK_BYTES_MAX: usize = 1 << 30;

const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Why the memory could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Nothing was asked for.
    #[error("a buffer arena needs at least one byte")]
    Empty,
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes of buffer memory: {source}")]
    Map {
        /// How much was asked for, in bytes.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What kind of pages the chunks were mapped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 2 MiB pages (`vm.nr_hugepages`).
    Huge,
    /// Ordinary pages, with the advice to make huge ones of them.
    Ordinary,
}

#[derive(Debug)]
struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
}

/// Where some bytes lie in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// Index of the chunk; a device keeps one registration for each.
    pub chunk: u16,
    /// Offset from the start of the chunk, in bytes.
    pub offset: usize,
}

/// All buffer memory of the process. It is mapped once and never grows.
#[derive(Debug)]
pub struct Arena {
    chunks: Vec<Chunk>,
    pages: Pages,
}

// SAFETY: the arena owns its mappings for its whole life and hands out only addresses; access to the bytes
// goes through `Lease`, of which at most one exists for any piece.
unsafe impl Send for Arena {}
// SAFETY: as above; `&Arena` gives no access to the bytes.
unsafe impl Sync for Arena {}

impl Arena {
    /// Map `bytes` of memory (rounded up to 2 MiB), reserved huge pages first, ordinary pages otherwise.
    pub fn map(bytes: usize) -> Result<Arc<Self>, ArenaError> {
        if bytes == 0 {
            return Err(ArenaError::Empty);
        }
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let (chunks, pages) = match map_chunks(bytes, Pages::Huge) {
            Ok(chunks) => (chunks, Pages::Huge),
            Err(_) => {
                let chunks = map_chunks(bytes, Pages::Ordinary)
                    .map_err(|source| ArenaError::Map { bytes, source })?;
                (chunks, Pages::Ordinary)
            }
        };
        Ok(Arc::new(Self { chunks, pages }))
    }

    /// The kind of pages behind the arena.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Size of the arena in bytes.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|c| c.bytes).sum()
    }

    /// Never true: an arena has at least one chunk.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Start address and length of every chunk, in the order of their indices: what a device registers.
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = (*mut u8, usize)> + '_ {
        self.chunks.iter().map(|c| (c.start.as_ptr(), c.bytes))
    }

    /// Where `bytes` lie, if they lie wholly inside one chunk of this arena.
    pub fn locate(&self, bytes: &[u8]) -> Option<Location> {
        let start = bytes.as_ptr() as usize;
        let end = start.checked_add(bytes.len())?;
        self.chunks.iter().enumerate().find_map(|(index, chunk)| {
            let base = chunk.start.as_ptr() as usize;
            (start >= base && end <= base + chunk.bytes)
                .then(|| Location { chunk: index as u16, offset: start - base })
        })
    }

    /// Address of `offset` bytes into `chunk`. Only the pool uses it, for pieces that it made itself.
    pub(crate) fn address(&self, chunk: usize, offset: usize, bytes: usize) -> NonNull<u8> {
        let chunk = &self.chunks[chunk];
        assert!(offset + bytes <= chunk.bytes, "a piece must lie inside its chunk");
        // SAFETY: `offset` is inside the mapping (asserted), so the result is in bounds and not null.
        unsafe { chunk.start.add(offset) }
    }

    pub(crate) fn chunk_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.chunks.iter().map(|c| c.bytes)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            // SAFETY: the chunk was mapped by `map_one` with this length and nobody holds a piece of it:
            // every lease keeps the arena alive.
            unsafe { libc::munmap(chunk.start.as_ptr().cast(), chunk.bytes) };
        }
    }
}

fn map_chunks(bytes: usize, pages: Pages) -> io::Result<Vec<Chunk>> {
    let mut chunks = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let size = left.min(CHUNK_BYTES_MAX);
        match map_one(size, pages) {
            Ok(start) => chunks.push(Chunk { start, bytes: size }),
            Err(error) => {
                for chunk in &chunks {
                    // SAFETY: mapped above with this length, and not handed out yet.
                    unsafe { libc::munmap(chunk.start.as_ptr().cast(), chunk.bytes) };
                }
                return Err(error);
            }
        }
        left -= size;
    }
    Ok(chunks)
}

fn map_one(bytes: usize, pages: Pages) -> io::Result<NonNull<u8>> {
    let base = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let flags = match pages {
        Pages::Huge => base | libc::MAP_HUGETLB,
        Pages::Ordinary => base,
    };
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
    let start = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: advice on a mapping that this function has just made; failure changes nothing.
    unsafe {
        if pages == Pages::Ordinary {
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        libc::madvise(start, bytes, libc::MADV_DONTFORK);
    }
    NonNull::new(start.cast()).ok_or_else(|| io::Error::other("the kernel mapped address zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_up_and_locates() {
        let arena = Arena::map(3 << 20).unwrap();
        assert_eq!(arena.len(), 4 << 20);
        let (start, bytes) = arena.chunks().next().unwrap();
        // SAFETY: the slice lies inside the mapping and nobody writes to it.
        let inside = unsafe { std::slice::from_raw_parts(start.add(4096), 100) };
        assert_eq!(arena.locate(inside), Some(Location { chunk: 0, offset: 4096 }));
        assert_eq!(bytes, 4 << 20);
        assert_eq!(arena.locate(&[1, 2, 3]), None);
    }

    #[test]
    fn refuses_nothing() {
        assert!(matches!(Arena::map(0), Err(ArenaError::Empty)));
    }
}
