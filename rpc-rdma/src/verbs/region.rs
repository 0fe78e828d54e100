//! Memory of a client that the server may reach.

#![allow(unsafe_code)]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    io,
    ptr::NonNull,
    sync::Arc,
};

use super::device::{Device, RegionHandle};
use crate::{
    endpoint::{Access, Region},
    wire::WireError,
};

const PAGE_BYTES: usize = 4096;

/// Page-aligned zeroed memory of its own.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: owned memory without ties to a thread.
unsafe impl Send for Memory {}

impl Memory {
    fn new(len: usize) -> Result<Self, WireError> {
        let out = || WireError::System {
            operation: "memory for a region",
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        };
        let layout = Layout::from_size_align(len.max(1), PAGE_BYTES).map_err(|_| out())?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(out)?;
        Ok(Self { start, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; the registration was ended before (field order).
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Memory that the server may reach. Fields are released from top to bottom.
#[derive(Debug)]
pub struct VerbsRegion {
    registration: Option<RegionHandle>,
    memory: Memory,
    len: usize,
    access: Access,
}

impl VerbsRegion {
    /// New zeroed memory, registered.
    pub(super) fn register(
        device: Arc<Device>,
        len: usize,
        access: Access,
    ) -> Result<Self, WireError> {
        let mut region = Self { registration: None, memory: Memory::new(len)?, len, access };
        region.refresh(device)?;
        Ok(region)
    }

    /// End the registration and make another: a new key.
    pub(super) fn refresh(&mut self, device: Arc<Device>) -> Result<(), WireError> {
        self.registration = None;
        let start = self.memory.start.as_ptr();
        let bytes = self.memory.layout.size();
        let writable = self.access == Access::RemoteWrite;
        // SAFETY: the memory belongs to the region and outlives its registration; it is read and written by
        // copies only.
        let made = unsafe { RegionHandle::new(device, start, bytes, writable) };
        let registration = made.map_err(|error| WireError::System {
            operation: "register memory",
            source: io::Error::other(error),
        })?;
        self.registration = Some(registration);
        Ok(())
    }
}

impl Region for VerbsRegion {
    fn rkey(&self) -> u32 {
        self.registration.as_ref().map_or(0, RegionHandle::rkey)
    }

    fn address(&self) -> u64 {
        self.memory.start.as_ptr() as u64
    }

    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "outside the region");
        // SAFETY: the range lies inside the memory (asserted); the device may read it at the same time, which
        // is the caller's matter as with any shared memory.
        unsafe {
            let target = self.memory.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "outside the region");
        // SAFETY: the range lies inside the memory (asserted), which is initialised; the device may write to
        // it at the same time, and the copy then has some mixture of old and new bytes.
        unsafe {
            let source = self.memory.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unregistered(len: usize) -> VerbsRegion {
        let memory = Memory::new(len).unwrap();
        VerbsRegion { registration: None, memory, len, access: Access::RemoteRead }
    }

    #[test]
    fn starts_zeroed_and_keeps_what_is_written() {
        let mut region = unregistered(10);
        region.write(3, b"abc");
        let mut all = [1; 10];
        region.read(0, &mut all);
        assert_eq!(&all, b"\0\0\0abc\0\0\0\0");
        assert_eq!(region.address() % PAGE_BYTES as u64, 0);
    }

    #[test]
    #[should_panic(expected = "outside the region")]
    fn does_not_write_past_its_end() {
        unregistered(10).write(8, b"abc");
    }
}
