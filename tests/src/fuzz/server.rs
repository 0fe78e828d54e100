//! A gateway of one lane over memory, without sockets.

use std::{
    sync::{Arc, OnceLock},
    task::Waker,
};

use backends::{
    Backend, LaneResources,
    attr::Timestamp,
    blocking::BlockingPool,
    memory::{Clock, MemoryBackend, MemorySettings},
};
use buffers::Pool;
use bytes::Bytes;
use gateway::{
    dispatch::{LaneService, Limits, Shared},
    exports::{
        ClientRules, Export, ExportSettings, ExportTable, Exports, HandleKey, Rights, Squash,
    },
};
use rpc_rdma::{
    rpc::{Rejected, call, reply::ACCEPTED_BYTES},
    service::{Begun, Peer, ReplyBudget, Service, Ticket, Transport},
    xdr::{Rope, Writer},
};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// Turns after which a backend in memory has answered.
const TURNS_MAX: usize = 10;
/// Smallest reply that says anything: the head of an accepted one, a status and four absent items.
const REPLY_BYTES_MIN: usize = ACCEPTED_BYTES + 20;

/// In the first byte of an item: the rest is a whole RPC message. Otherwise the byte has the procedure.
pub(super) const RAW: u8 = 0x80;
/// The item is a call of the MOUNT program, not of NFS.
pub(super) const MOUNTING: u8 = 0x40;
/// There is little room for the reply.
pub(super) const NARROW: u8 = 0x20;

pub(super) fn key() -> HandleKey {
    HandleKey::new([7; 16])
}

pub(super) fn memory() -> Arc<MemoryBackend> {
    MemoryBackend::new(MemorySettings {
        clock: Clock::Stepping(Timestamp { seconds: 1_000_000, nanos: 0 }),
        ..MemorySettings::default()
    })
}

pub(super) fn export(id: u32, path: &str, backend: Arc<dyn Backend>) -> Arc<Export> {
    let settings = ExportSettings {
        id,
        path: path.to_owned(),
        origin: format!("memory {path}"),
        read_only: id == 2,
        squash: Squash::None,
        anonymous_uid: 65534,
        anonymous_gid: 65534,
        clients: ClientRules::everyone(Rights::ReadWrite),
        require_reserved_port: false,
    };
    Arc::new(Export::new(settings, backend))
}

pub(super) fn pool() -> Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Pool::standalone(16 << 20)).clone()
}

fn blocking() -> Arc<BlockingPool> {
    static BLOCKING: OnceLock<Arc<BlockingPool>> = OnceLock::new();
    BLOCKING.get_or_init(|| BlockingPool::start(1, 16).expect("a thread can be started")).clone()
}

/// The gateway: `/data` may be written, `/fixed` may not.
pub(super) struct Server {
    lane: LaneService,
    peer: Peer,
    tickets: u64,
}

impl Default for Server {
    fn default() -> Self {
        let exports = vec![export(1, "/data", memory()), export(2, "/fixed", memory())];
        let table = ExportTable::new(exports).expect("the paths differ");
        let shared = Shared::new(Exports::new(table), key(), Limits::default());
        let resources = LaneResources {
            pool: pool(),
            ring: None,
            blocking: blocking(),
            waker: Waker::noop().clone(),
        };
        let lane = LaneService::new(shared, resources).expect("memory can be attached");
        let address = ([10, 0, 0, 1], 700).into();
        Self { lane, peer: Peer { address, transport: Transport::Tcp }, tickets: 0 }
    }
}

impl Server {
    /// Items: a byte of what it is, two bytes of its length, and its bytes.
    pub(super) fn converse(&mut self, mut data: &[u8]) {
        while let Some((&[what, high, low], rest)) = data.split_first_chunk() {
            let len = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
            let (item, rest) = rest.split_at(len);
            data = rest;
            let room = if what & NARROW != 0 { len } else { 64 << 10 };
            let message = if what & RAW != 0 { item.to_vec() } else { self.call(what, item) };
            self.exchange(message, room);
        }
    }

    /// The arguments with an RPC header in front.
    fn call(&self, what: u8, args: &[u8]) -> Vec<u8> {
        let program = if what & MOUNTING != 0 { MOUNT } else { NFS };
        let procedure = u32::from(what & 0x1f);
        let mut writer = Writer::default();
        for word in [self.tickets as u32, 0, 2, program, 3, procedure, 1, 24, 0, 0] {
            writer.u32(word);
        }
        for word in [1000, 1000, 1, 77, 0, 0] {
            writer.u32(word);
        }
        [&writer.finish().flatten(), args].concat()
    }

    fn exchange(&mut self, message: Vec<u8>, room: usize) {
        let message = Bytes::from(message);
        let call = match call::decode(Rope::inline(message.clone())) {
            Ok(call) => call,
            Err(Rejected::Answer(reply)) => return check(&message, &reply, REPLY_BYTES_MIN),
            Err(Rejected::Drop(_)) => return,
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let budget = ReplyBudget { message_bytes_max: room, direct_bytes_max: None };
        let mut replies = Vec::new();
        if let Begun::Reply(reply) = self.lane.call(ticket, &self.peer, budget, call) {
            replies.push((ticket, reply));
        }
        for _ in 0..TURNS_MAX {
            self.lane.flush();
            self.lane.finished(&mut replies);
        }
        assert_eq!(replies.len(), 1, "a call has one reply");
        assert_eq!(replies[0].0, ticket);
        assert_eq!(self.lane.in_flight(), 0);
        check(&message, &replies[0].1, room.max(REPLY_BYTES_MIN));
    }
}

fn check(message: &[u8], reply: &Rope, room: usize) {
    assert_eq!(reply.head[..4], message[..4], "the xid comes back");
    assert_eq!(reply.len() % 4, 0, "whole words");
    assert!(reply.len() <= room, "{} bytes for {room}", reply.len());
}
