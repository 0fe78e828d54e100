//! RDMA connections of one lane.

use std::{os::fd::RawFd, sync::Arc, time::Instant};

use buffers::Pool;

use crate::{
    service::{Peer, ReplyBudget, Ticket},
    wire::Provider,
    xdr::Rope,
};

/// Settings of the RDMA side.
#[derive(Debug, Clone, Default)]
pub struct RdmaSettings {}

/// A call that has arrived whole.
#[derive(Debug)]
pub struct DeliveredCall {
    /// Names it.
    pub ticket: Ticket,
    /// Who asks.
    pub peer: Peer,
    /// How long the reply may be.
    pub budget: ReplyBudget,
    /// The RPC message.
    pub message: Rope,
}

/// The providers of a lane.
#[derive(Debug)]
pub struct RdmaSide {
    providers: Vec<Box<dyn Provider>>,
}

impl RdmaSide {
    /// Without any provider.
    pub fn new(_settings: RdmaSettings, _pool: Arc<Pool>) -> Self {
        Self { providers: Vec::new() }
    }

    /// Serve connections of this provider.
    pub fn add_provider(&mut self, provider: Box<dyn Provider>) {
        self.providers.push(provider);
    }

    /// One pass.
    pub fn turn(&mut self, _now: Instant, _calls: &mut Vec<DeliveredCall>) -> usize {
        0
    }

    /// Reply to a call.
    pub fn reply(&mut self, _ticket: Ticket, _reply: Rope) {}

    /// A call gets no reply.
    pub fn abandon(&mut self, _ticket: Ticket) {}

    /// Hand posted work over.
    pub fn flush(&mut self) {}

    /// Ask for wake-ups.
    pub fn arm(&mut self) {}

    /// Where they come.
    pub fn wake_fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Take no more connections.
    pub fn drain(&mut self) {}

    /// Connections now.
    pub fn connections(&self) -> usize {
        0
    }
}
