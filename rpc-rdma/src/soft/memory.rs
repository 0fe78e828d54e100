//! Registered memory of a client: what the server's RDMA Reads and Writes may touch.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    endpoint::Access,
    wire::{RemoteMemory, WireFault},
};

/// Bytes of a region, shared between its owner and the fabric.
pub(super) type Memory = Arc<Mutex<Vec<u8>>>;

pub(super) fn lock(memory: &Memory) -> MutexGuard<'_, Vec<u8>> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Registration {
    memory: Memory,
    address: u64,
    access: Access,
}

impl Registration {
    /// Offset of `remote.address` in the memory, if `len` bytes from there are inside.
    fn locate(&self, remote: RemoteMemory, len: usize) -> Option<usize> {
        let offset = usize::try_from(remote.address.checked_sub(self.address)?).ok()?;
        let end = offset.checked_add(len)?;
        (end <= lock(&self.memory).len()).then_some(offset)
    }
}

/// Keys of one client connection. As on a device, the low byte of a key changes with every registration and
/// the rest is an index.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    registrations: BTreeMap<u32, Registration>,
    made: u32,
}

impl KeyTable {
    /// Register memory at `address`; returns its key.
    pub(super) fn register(&mut self, memory: Memory, address: u64, access: Access) -> u32 {
        self.made = self.made.wrapping_add(1);
        let rkey = (self.made << 8) | (self.made.wrapping_mul(7) & 0xff);
        self.registrations.insert(rkey, Registration { memory, address, access });
        rkey
    }

    /// Make a key invalid. False when it was not valid.
    pub(super) fn invalidate(&mut self, rkey: u32) -> bool {
        self.registrations.remove(&rkey).is_some()
    }

    fn registration(&self, remote: RemoteMemory, need: Access) -> Result<&Registration, WireFault> {
        self.registrations
            .get(&remote.rkey)
            .filter(|r| r.access == need)
            .ok_or(WireFault::RemoteAccess)
    }

    /// An RDMA Write of the server.
    pub(super) fn write(&self, remote: RemoteMemory, bytes: &[u8]) -> Result<(), WireFault> {
        let registration = self.registration(remote, Access::RemoteWrite)?;
        let at = registration.locate(remote, bytes.len()).ok_or(WireFault::RemoteAccess)?;
        lock(&registration.memory)[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// An RDMA Read of the server.
    pub(super) fn read(&self, remote: RemoteMemory, bytes: &mut [u8]) -> Result<(), WireFault> {
        let registration = self.registration(remote, Access::RemoteRead)?;
        let at = registration.locate(remote, bytes.len()).ok_or(WireFault::RemoteAccess)?;
        bytes.copy_from_slice(&lock(&registration.memory)[at..at + bytes.len()]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(access: Access) -> (KeyTable, Memory, u32) {
        let memory = Memory::new(Mutex::new(vec![0; 100]));
        let mut table = KeyTable::default();
        let rkey = table.register(memory.clone(), 0x1000, access);
        (table, memory, rkey)
    }

    #[test]
    fn writes_inside_the_bounds_only() {
        let (table, memory, rkey) = table(Access::RemoteWrite);
        let at = |address| RemoteMemory { rkey, address };
        assert_eq!(table.write(at(0x1000 + 97), b"abc"), Ok(()));
        assert_eq!(&lock(&memory)[97..], b"abc");
        assert_eq!(table.write(at(0x1000 + 98), b"abc"), Err(WireFault::RemoteAccess));
        assert_eq!(table.write(at(0xfff), b"a"), Err(WireFault::RemoteAccess));
        assert_eq!(table.write(at(u64::MAX), b"ab"), Err(WireFault::RemoteAccess));
    }

    #[test]
    fn access_rights_are_separate() {
        let (table, _, rkey) = table(Access::RemoteWrite);
        let remote = RemoteMemory { rkey, address: 0x1000 };
        assert_eq!(table.read(remote, &mut [0; 4]), Err(WireFault::RemoteAccess));
    }

    #[test]
    fn an_invalidated_key_is_gone_and_never_given_again() {
        let (mut table, memory, rkey) = table(Access::RemoteRead);
        assert!(table.invalidate(rkey));
        assert!(!table.invalidate(rkey));
        let remote = RemoteMemory { rkey, address: 0x1000 };
        assert_eq!(table.read(remote, &mut [0; 4]), Err(WireFault::RemoteAccess));
        assert_ne!(table.register(memory, 0x1000, Access::RemoteRead), rkey);
    }
}
