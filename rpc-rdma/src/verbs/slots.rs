//! Who owns what the device works on. Every work request carries a number that leads back to its slot, so a
//! completion finds its owner even when nothing but the number is valid (an error), and a completion that
//! comes late for a queue pair that is gone finds nobody.

use buffers::Lease;
use bytes::Bytes;

use crate::wire::{QpId, RdmaWrite, WireFault, WorkCompletion, WorkId};

/// What a chain of send work requests works on.
#[derive(Debug)]
pub(super) enum Owner {
    /// Held until the last request has completed, then dropped.
    Reply {
        _writes: Vec<RdmaWrite>,
        _send: Bytes,
    },
    Fetch {
        sink: Lease,
    },
}

#[derive(Debug)]
pub(super) enum Posted {
    Receive { qp: QpId, buffer: Lease },
    Chain { qp: QpId, id: WorkId, requests: usize, owner: Owner, fault: Option<WireFault> },
}

impl Posted {
    fn qp(&self) -> QpId {
        match self {
            Self::Receive { qp, .. } | Self::Chain { qp, .. } => *qp,
        }
    }

    /// What its owner is told.
    pub(super) fn complete(self, result: Result<usize, WireFault>) -> WorkCompletion {
        match self {
            Self::Receive { qp, buffer } => match result {
                Ok(len) => {
                    let len = len.min(buffer.capacity());
                    WorkCompletion::Received { qp, buffer, len }
                }
                Err(fault) => WorkCompletion::ReceiveFailed { qp, buffer, fault },
            },
            Self::Chain { qp, id, owner, fault, .. } => {
                // The first fault of the chain says more than the flush of its last request.
                let result = match fault {
                    Some(fault) => Err(fault),
                    None => result.map(|_| ()),
                };
                match owner {
                    Owner::Reply { .. } => WorkCompletion::Replied { qp, id, result },
                    Owner::Fetch { sink } => WorkCompletion::Fetched { qp, id, sink, result },
                }
            }
        }
    }
}

/// Names a slot, as long as what was put there is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotId {
    index: u32,
    generation: u32,
}

/// Marks the last request of a chain.
const LAST: u64 = 1 << 31;
const INDEX_MAX: u32 = (1 << 31) - 1;

impl SlotId {
    /// Number for a work request.
    pub(super) fn wr_id(self, last: bool) -> u64 {
        let mark = if last { LAST } else { 0 };
        (u64::from(self.generation) << 32) | mark | u64::from(self.index)
    }

    fn from_wr_id(wr_id: u64) -> (Self, bool) {
        let low = wr_id & u64::from(u32::MAX);
        let index = (low & u64::from(INDEX_MAX)) as u32;
        (Self { index, generation: (wr_id >> 32) as u32 }, ends_chain(wr_id))
    }
}

/// Whether a number is that of the last request of a chain.
pub(super) fn ends_chain(wr_id: u64) -> bool {
    wr_id & LAST != 0
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    posted: Option<Posted>,
}

/// The table of one lane. It grows to the most that was ever posted at a time and stays there.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    /// Put something; `None` when there are more than 2³¹.
    pub(super) fn insert(&mut self, posted: Posted) -> Option<SlotId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok().filter(|&i| i <= INDEX_MAX)?;
                self.slots.push(Slot::default());
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        slot.posted = Some(posted);
        Some(SlotId { index, generation: slot.generation })
    }

    /// Take it out again.
    pub(super) fn remove(&mut self, id: SlotId) -> Option<Posted> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let posted = slot.posted.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        Some(posted)
    }

    /// The device reports a work request. Returns what is complete with it, and how.
    pub(super) fn completed(
        &mut self,
        wr_id: u64,
        result: Result<usize, WireFault>,
    ) -> Option<(Posted, Result<usize, WireFault>)> {
        let (id, last) = SlotId::from_wr_id(wr_id);
        if last {
            return self.remove(id).map(|posted| (posted, result));
        }
        // An earlier request of a chain reports only when it has failed; the last one still comes.
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation == id.generation
            && let Some(Posted::Chain { fault, .. }) = &mut slot.posted
            && let Err(reported) = result
        {
            fault.get_or_insert(reported);
        }
        None
    }

    /// Everything that a queue pair still has posted.
    pub(super) fn take_all_of(&mut self, qp: QpId) -> Vec<Posted> {
        let ids: Vec<_> = (0_u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.posted.as_ref().is_some_and(|p| p.qp() == qp))
            .map(|(index, slot)| SlotId { index, generation: slot.generation })
            .collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use buffers::Pool;

    use super::*;

    const QP: QpId = QpId(7);

    fn reply(id: WorkId) -> Posted {
        let owner = Owner::Reply { _writes: Vec::new(), _send: Bytes::from_static(b"x") };
        Posted::Chain { qp: QP, id, requests: 2, owner, fault: None }
    }

    #[test]
    fn only_the_last_request_completes_and_the_first_fault_is_told() {
        let mut slots = Slots::default();
        let id = slots.insert(reply(42)).unwrap();
        assert!(slots.completed(id.wr_id(false), Err(WireFault::RemoteAccess)).is_none());
        let (posted, result) = slots.completed(id.wr_id(true), Err(WireFault::Flushed)).unwrap();
        match posted.complete(result) {
            WorkCompletion::Replied { id: 42, result: Err(WireFault::RemoteAccess), .. } => {}
            other => panic!("{other:?}"),
        }
        // A second report of the same number finds nobody.
        assert!(slots.completed(id.wr_id(true), Ok(0)).is_none());
    }

    #[test]
    fn a_late_completion_does_not_hit_the_next_tenant() {
        let mut slots = Slots::default();
        let old = slots.insert(reply(1)).unwrap();
        assert_eq!(slots.take_all_of(QP).len(), 1);
        let new = slots.insert(reply(2)).unwrap();
        assert_ne!(old, new);
        assert!(slots.completed(old.wr_id(true), Ok(0)).is_none());
        assert!(slots.completed(new.wr_id(true), Ok(0)).is_some());
    }

    #[test]
    fn a_reported_length_is_bounded_by_the_buffer() {
        let buffer = Pool::standalone(4 << 20).take(100).unwrap();
        let capacity = buffer.capacity();
        match (Posted::Receive { qp: QP, buffer }).complete(Ok(usize::MAX)) {
            WorkCompletion::Received { len, .. } => assert_eq!(len, capacity),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn take_all_leaves_other_queue_pairs_alone() {
        let mut slots = Slots::default();
        slots.insert(reply(1)).unwrap();
        let owner = Owner::Reply { _writes: Vec::new(), _send: Bytes::new() };
        let other = Posted::Chain { qp: QpId(8), id: 2, requests: 1, owner, fault: None };
        let kept = slots.insert(other).unwrap();
        assert_eq!(slots.take_all_of(QP).len(), 1);
        assert!(slots.remove(kept).is_some());
    }
}
