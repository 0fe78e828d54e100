//! The programs of a lane with what they need: ring, blocking threads, shared state.

use std::{io, sync::Arc};

use backends::{
    LaneResources,
    blocking::BlockingPool,
    uring::{LaneRing, RingSettings},
};
use rpc_rdma::{driver::LaneContext, service::Service};

use super::start::ServiceFactory;
use crate::{
    config::{
        Config,
        schema::{IoUring, Limits},
    },
    dispatch::{self, LaneService, Shared},
    exports::{Exports, HandleKey},
};

/// Calls that wait for a blocking thread, for each of them.
const QUEUE_OF_THREAD: usize = 64;

/// What the programs of all lanes share.
pub fn shared(config: &Config, exports: Arc<Exports>, key: HandleKey) -> Arc<Shared> {
    Shared::new(exports, key, dispatch_limits(&config.limits))
}

/// What makes the programs of each lane.
///
/// # Errors
/// When the blocking threads cannot be started.
pub fn factory(config: &Config, shared: Arc<Shared>) -> io::Result<ServiceFactory> {
    let threads = config.server.blocking_threads;
    let blocking = BlockingPool::start(threads, threads * QUEUE_OF_THREAD)?;
    let io_uring = config.server.io_uring;
    Ok(Arc::new(move |lane, context: &LaneContext| {
        let resources = LaneResources {
            pool: Arc::clone(&context.pool),
            ring: ring(io_uring, lane, context),
            blocking: Arc::clone(&blocking),
            waker: context.waker.clone(),
        };
        let service = LaneService::new(Arc::clone(&shared), resources)?;
        Ok(Box::new(service) as Box<dyn Service>)
    }))
}

/// The lane's ring, where the kernel lets us have one. To be called on the lane's thread, which it belongs
/// to.
fn ring(io_uring: IoUring, lane: usize, context: &LaneContext) -> Option<LaneRing> {
    if io_uring == IoUring::Off {
        return None;
    }
    match LaneRing::open(&RingSettings::default(), context.pool.arena()) {
        Ok(ring) => Some(ring),
        Err(error) => {
            // The same for all lanes: said once.
            if lane == 0 {
                tracing::warn!(%error, "no io_uring; blocking threads do its work");
            }
            None
        }
    }
}

fn dispatch_limits(limits: &Limits) -> dispatch::Limits {
    dispatch::Limits {
        cached_replies_max: limits.reply_cache_entries,
        cached_reply_bytes_max: usize::try_from(limits.reply_cache_bytes).unwrap_or(usize::MAX),
        ..dispatch::Limits::default()
    }
}
