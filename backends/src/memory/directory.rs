//! Content of a directory: entries by name, and by the order in which they came.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::tree::Id;

/// Cookie of "."; 0 is the start of a listing.
pub(super) const COOKIE_SELF: u64 = 1;
/// Cookie of "..".
pub(super) const COOKIE_PARENT: u64 = 2;

/// The entries, without "." and "..". Each gets the next number of its directory as its cookie, and a number
/// is never used twice, so a listing neither repeats nor misses an entry that stays.
#[derive(Debug)]
pub(super) struct Directory {
    /// What ".." is.
    pub(super) parent: Id,
    by_name: BTreeMap<Bytes, (Id, u64)>,
    by_cookie: BTreeMap<u64, Bytes>,
    last_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: Id) -> Self {
        Self {
            parent,
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            last_cookie: COOKIE_PARENT,
        }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Id> {
        self.by_name.get(name).map(|&(id, _)| id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Whether such a cookie was ever given.
    pub(super) fn knows(&self, cookie: u64) -> bool {
        cookie <= self.last_cookie
    }

    /// Add an entry under a name that is free.
    pub(super) fn insert(&mut self, name: Bytes, id: Id) {
        debug_assert!(!self.by_name.contains_key(&name), "the name is taken");
        self.last_cookie += 1;
        self.by_cookie.insert(self.last_cookie, name.clone());
        self.by_name.insert(name, (id, self.last_cookie));
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Id> {
        let (id, cookie) = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie);
        Some(id)
    }

    /// Entries with a cookie above `cookie`, in the order of their cookies.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &Bytes, Id)> {
        self.by_cookie
            .range(cookie.saturating_add(1)..)
            .filter_map(|(&cookie, name)| Some((cookie, name, self.get(name)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_the_removal_of_their_entry() {
        let mut directory = Directory::new(0);
        for (name, id) in [("c", 1), ("a", 2), ("b", 3)] {
            directory.insert(Bytes::from_static(name.as_bytes()), id);
        }
        let order: Vec<_> = directory.after(0).map(|(cookie, _, id)| (cookie, id)).collect();
        assert_eq!(order, [(3, 1), (4, 2), (5, 3)]);
        assert_eq!(directory.remove(b"a"), Some(2));
        directory.insert(Bytes::from_static(b"a"), 2);
        assert_eq!(directory.after(4).map(|entry| entry.0).collect::<Vec<_>>(), [5, 6]);
        assert!(directory.knows(6) && !directory.knows(7));
        assert_eq!(directory.after(u64::MAX).count(), 0);
    }
}
