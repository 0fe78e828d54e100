//! Identities that the ring knows.
//!
//! `sqe.personality` makes the kernel carry out one operation with credentials that were registered before,
//! also on its own worker threads. Ids are scarce (16 bits for each ring), so the least recently used one
//! gives way. The lane's thread wears the identity for the moment of the registration.

use std::{collections::HashMap, io, sync::Arc};

use io_uring::IoUring;

use crate::{blocking::creds, identity::Identity};

#[derive(Debug)]
struct Known {
    id: u16,
    used: u64,
}

/// The identities registered with one ring.
#[derive(Debug)]
pub struct Personalities {
    known: HashMap<Arc<Identity>, Known>,
    limit: usize,
    clock: u64,
}

impl Personalities {
    /// At most `limit` identities at a time (at least 1).
    pub fn new(limit: usize) -> Self {
        Self { known: HashMap::new(), limit: limit.clamp(1, 60_000), clock: 0 }
    }

    /// Id of `identity` if it is registered.
    pub fn get(&mut self, identity: &Arc<Identity>) -> Option<u16> {
        self.clock += 1;
        let known = self.known.get_mut(identity)?;
        known.used = self.clock;
        Some(known.id)
    }

    /// Whether the next registration has to give up an id. Entries that carry it must be submitted before.
    pub fn is_full(&self) -> bool {
        self.known.len() >= self.limit
    }

    /// Register `identity`.
    ///
    /// # Errors
    /// When it cannot be assumed or the kernel refuses.
    pub fn register(&mut self, ring: &IoUring, identity: &Arc<Identity>) -> io::Result<u16> {
        if self.is_full() {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(identity, _)| identity.clone())
                && let Some(gone) = self.known.remove(&oldest)
            {
                ring.submitter().unregister_personality(gone.id)?;
            }
        }
        let id = creds::with(identity, || ring.submitter().register_personality())??;
        self.known.insert(identity.clone(), Known { id, used: self.clock });
        Ok(id)
    }
}
