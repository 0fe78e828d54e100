//! The connections of a lane, and the tickets of their calls.

use std::net::SocketAddr;

use crate::{
    conn::{CallId, Connection},
    driver::limits::Admission,
    service::Ticket,
    wire::QpId,
};

/// RDMA tickets have this bit set, tickets of other transports have not.
const RDMA_BIT: u64 = 1 << 63;
const SLOT_BITS: u32 = 13;
const GENERATION_MASK: u32 = (1 << (63 - CallId::BITS - SLOT_BITS)) - 1;

/// Most connections that one lane can have.
pub(super) const LINKS_MAX: usize = 1 << SLOT_BITS;

/// Names a connection: a slot and how often it was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LinkKey {
    slot: u16,
    generation: u32,
}

impl LinkKey {
    /// The ticket of one of its calls.
    pub fn ticket(self, call: CallId) -> Ticket {
        let link = u64::from(self.generation) << SLOT_BITS | u64::from(self.slot);
        Ticket(RDMA_BIT | link << CallId::BITS | u64::from(call.0))
    }

    /// The connection and the call of a ticket, unless another transport gave it out.
    pub fn of(ticket: Ticket) -> Option<(Self, CallId)> {
        if ticket.0 & RDMA_BIT == 0 {
            return None;
        }
        let call = CallId(ticket.0 as u32);
        let link = (ticket.0 & !RDMA_BIT) >> CallId::BITS;
        let slot = (link & (LINKS_MAX as u64 - 1)) as u16;
        Some((Self { slot, generation: (link >> SLOT_BITS) as u32 }, call))
    }

    #[cfg(test)]
    pub fn test(slot: u16) -> Self {
        Self { slot, generation: 0 }
    }
}

/// A connection on a device.
#[derive(Debug)]
pub(super) struct Link {
    /// Index of the device.
    pub device: usize,
    /// Its queue pair there.
    pub qp: QpId,
    /// The client.
    pub peer: SocketAddr,
    /// The state machine.
    pub conn: Connection,
    /// Its place among the connections of all lanes.
    pub _admission: Admission,
    /// Whether it stands in the list of those that have something to do.
    pub listed: bool,
    /// Whether it waits for the end of what it has posted.
    pub awaits: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    link: Option<Link>,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Slot>,
    free: Vec<u16>,
}

impl Links {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Add a connection, or `None` when there are [`LINKS_MAX`].
    pub fn insert(&mut self, link: Link) -> Option<LinkKey> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < LINKS_MAX => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u16
            }
            None => return None,
        };
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.link = Some(link);
        Some(LinkKey { slot: index, generation: slot.generation })
    }

    pub fn get_mut(&mut self, key: LinkKey) -> Option<&mut Link> {
        let slot = self.slots.get_mut(usize::from(key.slot))?;
        if slot.generation == key.generation { slot.link.as_mut() } else { None }
    }

    pub fn remove(&mut self, key: LinkKey) -> Option<Link> {
        let slot = self.slots.get_mut(usize::from(key.slot))?;
        if slot.generation != key.generation {
            return None;
        }
        let link = slot.link.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(key.slot);
        Some(link)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.slots.iter().filter_map(|slot| slot.link.as_ref())
    }

    /// Keys of the connections that `wanted` picks.
    pub fn keys(&self, wanted: impl Fn(&Link) -> bool) -> Vec<LinkKey> {
        let used = self.slots.iter().enumerate();
        used.filter(|(_, slot)| slot.link.as_ref().is_some_and(&wanted))
            .map(|(index, slot)| LinkKey { slot: index as u16, generation: slot.generation })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_carry_all_of_the_key_and_the_call() {
        for slot in [0, 1, LINKS_MAX as u16 - 1] {
            for generation in [0, 5, GENERATION_MASK] {
                for call in [0, 77, u32::MAX] {
                    let key = LinkKey { slot, generation };
                    let ticket = key.ticket(CallId(call));
                    assert_ne!(ticket.0 & RDMA_BIT, 0);
                    assert_eq!(LinkKey::of(ticket), Some((key, CallId(call))));
                }
            }
        }
        assert_eq!(LinkKey::of(Ticket(77)), None);
    }
}
