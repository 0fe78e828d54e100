//! The calls of a connection.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use std::time::Instant;

use super::{draft::Draft, gather::Gather};
use crate::{chunk::ChunkLists, wire::Work};

const SLOT_BITS: u32 = 14;
const SLOTS_MAX: usize = 1 << SLOT_BITS;
const GENERATION_MASK: u32 = u32::MAX >> SLOT_BITS;

/// Names a call of one connection: a slot and how often it was used, so that a late reply finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(pub u32);

impl CallId {
    /// Bits that an id takes.
    pub const BITS: u32 = 32;

    fn new(slot: usize, generation: u32) -> Self {
        Self(generation << SLOT_BITS | slot as u32)
    }

    fn slot(self) -> usize {
        (self.0 & (SLOTS_MAX as u32 - 1)) as usize
    }

    fn generation(self) -> u32 {
        self.0 >> SLOT_BITS
    }
}

/// One call, from its header to the completion of its reply.
#[derive(Debug)]
pub(super) struct Call {
    /// Transaction id.
    pub xid: u32,
    /// What the client offered for the reply; the read list is not kept.
    pub offered: ChunkLists,
    /// Key to invalidate with the reply.
    pub invalidate: Option<u32>,
    /// Bytes of the connection's gather budget that it holds.
    pub gather_bytes: usize,
    /// When its work was posted, while it is.
    pub posted_at: Option<Instant>,
    /// How far it is.
    pub stage: Stage,
}

/// How far a call is.
#[derive(Debug)]
pub(super) enum Stage {
    /// Its Read chunks are being fetched.
    Gathering(Box<Gather>),
    /// With the program.
    Executing,
    /// Its reply waits for buffers.
    Preparing(Box<Draft>),
    /// Its reply waits for the send queue.
    Queued(Work),
    /// Its reply is posted.
    Sending {
        /// Work requests that it takes.
        requests: usize,
    },
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    call: Option<Call>,
}

/// All calls under way.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    slots: Vec<Slot>,
    free: Vec<usize>,
    len: usize,
}

impl CallTable {
    /// Add a call, or `None` when the table is full (which more calls than any grant would take).
    pub fn insert(&mut self, call: Call) -> Option<CallId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = self.slots.get_mut(index)?;
        slot.call = Some(call);
        self.len += 1;
        Some(CallId::new(index, slot.generation))
    }

    pub fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation == id.generation() { slot.call.as_mut() } else { None }
    }

    pub fn get(&self, id: CallId) -> Option<&Call> {
        let slot = self.slots.get(id.slot())?;
        if slot.generation == id.generation() { slot.call.as_ref() } else { None }
    }

    pub fn remove(&mut self, id: CallId) -> Option<Call> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.generation != id.generation() {
            return None;
        }
        let call = slot.call.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(id.slot());
        self.len -= 1;
        Some(call)
    }

    /// Ids of all calls.
    pub fn ids(&self) -> Vec<CallId> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.call.is_some());
        used.map(|(index, slot)| CallId::new(index, slot.generation)).collect()
    }

    /// When the oldest posted work was posted.
    pub fn posted_first(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.call.as_ref()?.posted_at).min()
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn call(xid: u32) -> Call {
        Call {
            xid,
            offered: ChunkLists::default(),
            invalidate: None,
            gather_bytes: 0,
            posted_at: None,
            stage: Stage::Executing,
        }
    }

    #[test]
    fn a_late_id_finds_nothing() {
        let mut table = CallTable::default();
        let first = table.insert(call(1)).unwrap();
        assert_eq!(table.remove(first).unwrap().xid, 1);
        let second = table.insert(call(2)).unwrap();
        assert_eq!(first.slot(), second.slot());
        assert!(table.get(first).is_none() && table.remove(first).is_none());
        assert_eq!(table.get_mut(second).unwrap().xid, 2);
        assert_eq!((table.len(), table.ids()), (1, vec![second]));
    }

    #[test]
    fn is_bounded() {
        let mut table = CallTable::default();
        for xid in 0..SLOTS_MAX as u32 {
            assert!(table.insert(call(xid)).is_some());
        }
        assert_eq!(table.insert(call(0)), None.map(|()| CallId(0)));
    }
}
