//! Buffers, lanes and listeners.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use buffers::{Arena, ArenaError, Pool, pool::Carver};
use rpc_rdma::{
    driver::{
        ConnectionLimits, Lane, LaneContext, LaneHandle, LaneSettings, rdma::RdmaSettings,
        stream::StreamSettings,
    },
    service::Service,
};

use super::listen::{self, ListenError};
use crate::config::{
    Config, Machine,
    memory::lane_layout,
    schema::{Limits, Pinning},
    value::format_size,
};

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No memory for the buffers.
    #[error("cannot map the buffers: {0}; lower server.payload_memory or rdma.connections_max")]
    Arena(#[from] ArenaError),
    /// A lane did not start.
    #[error("lane {lane} does not start: {source}")]
    Lane {
        /// Which.
        lane: usize,
        /// Why.
        source: io::Error,
    },
    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// RDMA was asked for and cannot be had.
    #[error("{0}; rdma.enabled = \"auto\" starts without")]
    Rdma(String),
}

/// Makes the programs of a lane, on its thread; told the lane's number.
pub type ServiceFactory =
    Arc<dyn Fn(usize, &LaneContext) -> io::Result<Box<dyn Service>> + Send + Sync>;

/// The running lanes.
#[derive(Debug)]
pub struct Lanes {
    handles: Arc<Vec<LaneHandle>>,
}

/// All buffer memory, and each lane's share of it.
#[derive(Debug)]
pub struct Buffers {
    /// The memory: what an RDMA device registers.
    pub arena: Arc<Arena>,
    /// One pool for each lane.
    pub pools: Vec<Arc<Pool>>,
}

/// Map the buffers and share them out.
///
/// # Errors
/// When there is not enough memory.
pub fn buffers(config: &Config, machine: &Machine) -> Result<Buffers, ArenaError> {
    let layout = lane_layout(config, machine);
    let lanes = config.server.lanes;
    // A piece does not cross chunks of the arena: at the end of each, part of a piece is lost.
    let whole = layout.bytes() * lanes;
    let lost = (whole / buffers::arena::CHUNK_BYTES_MAX + 1) * buffers::pool::CLASS_BYTES[3];
    // The kernel hands out and clears every page when a ring or a device registers it: nothing else is said
    // until that is done.
    let size = format_size((whole + lost) as u64);
    tracing::info!("preparing {size} of buffers; with much memory this takes seconds");
    let arena = Arena::map(whole + lost)?;
    let mut carver = Carver::new(Arc::clone(&arena));
    let pools = (0..lanes).map(|_| carver.pool(layout)).collect();
    Ok(Buffers { arena, pools })
}

impl Lanes {
    /// Start the lanes.
    ///
    /// # Errors
    /// When one of them does not start; those that have started end again.
    pub fn start(
        config: &Config,
        pools: &[Arc<Pool>],
        factory: &ServiceFactory,
    ) -> Result<Self, StartError> {
        let limits = &config.limits;
        let (tcp, rdma) = (limits.connections_max, config.rdma.connections_max);
        let connections = ConnectionLimits::new(tcp, rdma, limits.connections_per_address_max);
        let mut handles = Vec::with_capacity(pools.len());
        for (lane, pool) in pools.iter().enumerate() {
            let cpu = match &config.server.pinning {
                Pinning::Cpus(cpus) => cpus.get(lane).copied(),
                Pinning::None => None,
            };
            let settings = LaneSettings {
                name: format!("lane{lane}"),
                cpu,
                spin: config.server.spin,
                stream: stream_settings(limits),
                rdma: rdma_settings(config),
                limits: Arc::clone(&connections),
            };
            let factory = Arc::clone(factory);
            let make = Box::new(move |context: &LaneContext| factory(lane, context));
            let handle = Lane::spawn(settings, Arc::clone(pool), make)
                .map_err(|source| StartError::Lane { lane, source })?;
            handles.push(handle);
        }
        Ok(Self { handles: Arc::new(handles) })
    }

    /// Accept TCP connections on all configured addresses.
    ///
    /// # Errors
    /// When one of them cannot be listened on.
    pub fn listen(&self, config: &Config) -> Result<(), StartError> {
        let addresses = &config.tcp.listen;
        // All addresses first: either all are to be had or nobody is served on any.
        let mut all = Vec::new();
        for address in addresses {
            all.push(listen::tcp(*address, addresses, self.handles.len())?);
        }
        for listeners in all {
            for (lane, listener) in listeners.into_iter().enumerate() {
                self.handles[lane]
                    .listen_tcp(listener)
                    .map_err(|source| StartError::Lane { lane, source })?;
            }
        }
        Ok(())
    }

    /// A hold on the lanes for whoever adds providers; it does not keep them alive.
    pub fn handles(&self) -> Weak<Vec<LaneHandle>> {
        Arc::downgrade(&self.handles)
    }

    /// Take no more calls, finish those under way within `deadline`, end.
    pub async fn drain(self, deadline: Duration) {
        let draining: Vec<_> = self.handles.iter().map(|lane| lane.drain(deadline)).collect();
        for lane in draining.into_iter().flatten() {
            // A lane that is gone has nothing left to finish.
            let _ = lane.await;
        }
        // Somebody may be adding a provider at this very moment: then the threads end by themselves.
        if let Some(handles) = Arc::into_inner(self.handles) {
            handles.into_iter().for_each(LaneHandle::join);
        }
    }
}

fn stream_settings(limits: &Limits) -> StreamSettings {
    let mut settings = StreamSettings {
        calls_max: limits.calls_per_connection_max,
        outbound_bytes_max: limits.payload_per_connection_max,
        stall_timeout: limits.partial_record_timeout,
        stall_timeout_starved: limits.starved_timeout,
        idle_timeout: idle_timeout(limits),
        ..StreamSettings::default()
    };
    settings.records.plain_bytes_max = limits.record_bytes_max;
    settings
}

fn rdma_settings(config: &Config) -> RdmaSettings {
    let limits = &config.limits;
    let mut settings = RdmaSettings {
        inline_bytes: config.rdma.inline_bytes,
        credits: config.rdma.credits as usize,
        ..RdmaSettings::default()
    };
    settings.connection.gather_bytes_max = limits.payload_per_connection_max;
    settings.connection.idle_timeout = idle_timeout(limits);
    settings.connection.drain_timeout = config.server.drain_timeout;
    settings
}

fn idle_timeout(limits: &Limits) -> Option<Duration> {
    Some(limits.idle_timeout).filter(|timeout| !timeout.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{from_text, machine::tests::machine},
        lifecycle::logging::tests::logged,
    };

    #[test]
    fn the_start_is_not_silent_while_buffers_are_prepared() {
        let text = "[server]\nlanes = 1\npayload_memory = \"16MiB\"\n[rdma]\nenabled = \"no\"\n\
                    [[export]]\npath = \"/m\"\nid = 1\nbackend = \"memory\"\n";
        let config = from_text("test.toml", text, &machine()).unwrap();
        let log = logged(|| drop(buffers(&config, &machine()).unwrap()));
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("INFO") && log.contains("preparing "), "{log}");
        assert!(log.contains("MiB of buffers"), "{log}");
    }

    #[test]
    fn every_limit_of_a_stream_is_the_configured_one() {
        let limits = Limits {
            calls_per_connection_max: 11,
            payload_per_connection_max: 5 << 20,
            record_bytes_max: 70_000,
            idle_timeout: Duration::from_secs(7),
            partial_record_timeout: Duration::from_secs(8),
            starved_timeout: Duration::from_secs(3),
            ..Limits::default()
        };
        let stream = stream_settings(&limits);
        assert_eq!((stream.calls_max, stream.outbound_bytes_max), (11, 5 << 20));
        assert_eq!(stream.records.plain_bytes_max, 70_000);
        assert_eq!(stream.idle_timeout, Some(Duration::from_secs(7)));
        assert_eq!(stream.stall_timeout, Duration::from_secs(8));
        assert_eq!(stream.stall_timeout_starved, Duration::from_secs(3));
    }
}
