//! What the lanes of one gateway share.

use std::{sync::Arc, time::Duration};

use super::{Metrics, ReplyCache};
use crate::{
    exports::{Exports, HandleKey},
    mount::MountTable,
};

/// Bounds of the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries of the reply cache.
    pub cached_replies_max: usize,
    /// Bytes of replies in the reply cache.
    pub cached_reply_bytes_max: usize,
    /// How long a reply is kept for a client that asks again; at least 120 seconds.
    pub cached_reply_lifetime: Duration,
    /// Reads on one lane that may wait for buffer memory; the next is told to come back later.
    pub waiting_reads_max: usize,
    /// Mounts that are remembered for DUMP.
    pub mounts_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cached_replies_max: 64 << 10,
            cached_reply_bytes_max: 32 << 20,
            cached_reply_lifetime: Duration::from_secs(240),
            waiting_reads_max: 16 << 10,
            mounts_max: 1024,
        }
    }
}

/// What all lanes share. Made once.
#[derive(Debug)]
pub struct Shared {
    /// What is served.
    pub exports: Arc<Exports>,
    /// Seals the handles.
    pub handle_key: HandleKey,
    /// Replies for repeated calls.
    pub reply_cache: ReplyCache,
    /// Who says that it has mounted what.
    pub mounts: MountTable,
    /// Counters.
    pub metrics: Metrics,
    /// Bounds.
    pub limits: Limits,
}

impl Shared {
    /// Begin with nothing cached and nothing counted.
    pub fn new(exports: Arc<Exports>, handle_key: HandleKey, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            exports,
            handle_key,
            reply_cache: ReplyCache::new(&limits),
            mounts: MountTable::new(limits.mounts_max),
            metrics: Metrics::default(),
            limits,
        })
    }
}
