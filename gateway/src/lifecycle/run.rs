//! The whole life of a gateway: up, signals, down.

use std::sync::Arc;

use super::{
    banner::{self, Served},
    logging,
    ports::Ports,
    rdma::{self, RdmaHold},
    reload::Reloader,
    resources, services,
    signals::Signals,
    start::{self, Lanes, StartError},
    state::{self, StateError},
    statistics,
    storage::{self, StorageError},
};
use crate::{
    cli::source::Source,
    config::{Config, Machine},
    exports::Exports,
};

/// Why a gateway ends before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No key for the file handles.
    #[error(transparent)]
    State(#[from] StateError),
    /// An export cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Lanes or listeners.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No runtime, or no signals.
    #[error("cannot set up the control thread: {0}")]
    Control(#[from] std::io::Error),
}

/// Serve until SIGTERM or SIGINT.
///
/// # Errors
/// When it does not come up.
pub fn run(source: Source, machine: Machine, mut config: Config) -> Result<(), RunError> {
    logging::begin(&config.log);
    config.server.open_files_max = resources::raise(&config);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::catch() })?;
    let (key, handles_persist) = state::handle_key(&config.server.state_dir)?;
    let opened = storage::open(&config.exports, config.server.open_files_max, &[])?;
    let exports = Exports::new(storage::table(&opened)?);
    let buffers = start::buffers(&config, &machine).map_err(StartError::from)?;
    let shared = services::shared(&config, Arc::clone(&exports), key);
    let factory = services::factory(&config, Arc::clone(&shared))?;
    let lanes = Lanes::start(&config, &buffers.pools, &factory)?;
    lanes.listen(&config)?;
    let rdma = rdma::start(&config, &buffers, &lanes)?;
    let ports = runtime.block_on(announce(&config, &exports, &rdma, handles_persist));
    let drain_timeout = config.server.drain_timeout;
    let reloader = Reloader::new(source, machine, config, opened, exports);
    runtime.block_on(async {
        signals.until_end(reloader, &shared).await;
        tracing::info!("finishing the calls under way; the same signal again ends at once");
        let end = async {
            rdma.close();
            ports.withdraw().await;
            lanes.drain(drain_timeout).await;
        };
        tokio::select! {
            () = end => tracing::info!("ended"),
            () = signals.again() => tracing::warn!("ended at once"),
        }
    });
    statistics::log(&shared.metrics);
    // A look-up or a reload may hang on a server that does not answer.
    runtime.shutdown_background();
    Ok(())
}

/// Say what is served, to rpcbind and to people.
async fn announce(
    config: &Config,
    exports: &Exports,
    rdma: &RdmaHold,
    handles_persist: bool,
) -> Ports {
    let (rdma_listen, rdma_devices) = rdma.served();
    let mut served = Served {
        tcp: config.tcp.listen.clone(),
        rdma: rdma_listen,
        rdma_devices,
        portmapped: false,
        handles_persist,
    };
    let ports = Ports::publish(config.portmap, &served).await;
    served.portmapped = ports.can_be_asked();
    for line in banner::lines(config, &exports.load(), &served) {
        tracing::info!("{line}");
    }
    ports
}
