//! Who says that it has mounted what. For people only (`showmount -a`): clients crash without a word, and
//! unmount with a call that may get lost.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// The client.
    pub client: IpAddr,
    /// The path as the client asked for it.
    pub path: Bytes,
}

/// The mounts; the oldest is forgotten when there are too many.
#[derive(Debug)]
pub struct MountTable {
    mounts: Mutex<VecDeque<Mounted>>,
    mounts_max: usize,
}

impl MountTable {
    /// An empty table for at most `mounts_max` mounts.
    pub fn new(mounts_max: usize) -> Self {
        Self { mounts: Mutex::new(VecDeque::new()), mounts_max }
    }

    /// Remember a mount.
    pub fn add(&self, client: IpAddr, path: &[u8]) {
        let mounted = Mounted { client, path: Bytes::copy_from_slice(path) };
        let mut mounts = self.lock();
        mounts.retain(|other| *other != mounted);
        while mounts.len() >= self.mounts_max.max(1) {
            mounts.pop_front();
        }
        mounts.push_back(mounted);
    }

    /// Forget a mount.
    pub fn remove(&self, client: IpAddr, path: &[u8]) {
        self.lock().retain(|mounted| mounted.client != client || mounted.path != path);
    }

    /// Forget all mounts of a client.
    pub fn remove_all(&self, client: IpAddr) {
        self.lock().retain(|mounted| mounted.client != client);
    }

    /// All mounts, oldest first.
    pub fn list(&self) -> Vec<Mounted> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Mounted>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_and_without_duplicates() {
        let table = MountTable::new(2);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse::<IpAddr>().unwrap());
        table.add(a, b"/x");
        table.add(a, b"/x");
        table.add(b, b"/x");
        assert_eq!(table.list().len(), 2);
        table.add(b, b"/y");
        assert!(table.list().iter().all(|mounted| mounted.client == b));
        table.remove(a, b"/y");
        table.remove(b, b"/y");
        assert_eq!(table.list(), [Mounted { client: b, path: Bytes::from_static(b"/x") }]);
        table.remove_all(b);
        assert!(table.list().is_empty());
    }
}
