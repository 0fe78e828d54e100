//! The calls in flight on a lane: a slab whose keys are never taken for one another.

use backends::Token;
use rpc_rdma::service::Ticket;

use super::reply_cache::Key;
use crate::{
    mount::Walk,
    nfs3::{Request, Scope},
};

/// What a call is waiting for the backend to do.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one; a box would cost each call"
)]
pub enum Job {
    /// An NFSv3 procedure.
    Nfs3 {
        /// Its arguments.
        request: Request,
        /// Its surroundings.
        scope: Scope,
    },
    /// A path being walked for MOUNT.
    Mount(Walk),
}

/// A call in flight.
#[derive(Debug)]
pub struct InFlight {
    /// The transport's mark.
    pub ticket: Ticket,
    /// Transaction id.
    pub xid: u32,
    /// Number of the procedure.
    pub procedure: u32,
    /// What is being done.
    pub job: Job,
    /// Which of the lane's backends does it.
    pub attachment: usize,
    /// Where the reply is to be kept, if it is.
    pub cached: Option<Key>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    call: Option<InFlight>,
}

/// All calls in flight.
#[derive(Debug, Default)]
pub struct Calls {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Calls {
    /// Keep a call.
    pub fn insert(&mut self, call: InFlight) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.call = Some(call);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// The call with this key, if it is still in flight.
    pub fn get(&self, token: Token) -> Option<&InFlight> {
        self.slot(token)?.call.as_ref()
    }

    /// Take the call out; its key is never given out again.
    pub fn remove(&mut self, token: Token) -> Option<InFlight> {
        self.slot(token)?;
        let index = token as u32;
        let slot = self.slots.get_mut(index as usize)?;
        let call = slot.call.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(call)
    }

    /// Keys of the calls that one of the lane's backends has.
    pub fn of_attachment(&self, attachment: usize) -> Vec<Token> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.call.as_ref().is_some_and(|it| it.attachment == attachment))
            .map(|(index, slot)| u64::from(slot.generation) << 32 | index as u64)
            .collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, token: Token) -> Option<&Slot> {
        let slot = self.slots.get(token as u32 as usize)?;
        (u64::from(slot.generation) == token >> 32).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use backends::{Backend, Identity, memory::MemoryBackend};
    use bytes::Bytes;

    use super::*;
    use crate::exports::{ClientRules, Export, ExportSettings, Rights, Squash};

    fn call(ticket: u64) -> InFlight {
        let settings = ExportSettings {
            id: 1,
            path: "/data".to_owned(),
            origin: "memory".to_owned(),
            read_only: false,
            squash: Squash::None,
            anonymous_uid: 1,
            anonymous_gid: 1,
            clients: ClientRules::everyone(Rights::ReadOnly),
            require_reserved_port: false,
        };
        let backend: Arc<dyn Backend> = MemoryBackend::new(Default::default());
        let export = Arc::new(Export::new(settings, backend));
        let client = "10.0.0.1".parse().unwrap();
        let walk = Walk::new(export, Arc::new(Identity::root()), client, Bytes::new(), Vec::new());
        let job = Job::Mount(walk);
        InFlight { ticket: Ticket(ticket), xid: 1, procedure: 1, job, attachment: 0, cached: None }
    }

    /// A completion that comes twice, or late, must not answer somebody else's call.
    #[test]
    fn a_key_is_never_taken_for_another_call() {
        let mut calls = Calls::default();
        let first = calls.insert(call(1));
        assert_eq!(calls.remove(first).map(|call| call.ticket), Some(Ticket(1)));
        let second = calls.insert(call(2));
        assert_ne!(first, second);
        assert!(calls.get(first).is_none() && calls.remove(first).is_none());
        assert_eq!(calls.len(), 1);
        assert_eq!(calls.get(second).map(|call| call.ticket), Some(Ticket(2)));
        assert!(calls.get(u64::MAX).is_none() && calls.remove(7 << 32 | 9).is_none());
        assert!(calls.remove(second).is_some() && calls.is_empty());
    }
}
