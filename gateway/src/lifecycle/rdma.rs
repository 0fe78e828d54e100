//! The RDMA side: started beside TCP, never before it, and never in its way.

use super::start::{Buffers, Lanes, StartError};
use crate::config::{Config, schema::RdmaMode};

/// What holds the RDMA side up; it stops listening when it is closed or dropped.
#[derive(Debug, Default)]
pub struct RdmaHold {
    #[cfg(feature = "rdma")]
    fabric: Option<rpc_rdma::verbs::Fabric>,
}

impl RdmaHold {
    /// What is served: addresses, and devices for people.
    pub fn served(&self) -> (Vec<std::net::SocketAddr>, Vec<String>) {
        #[cfg(feature = "rdma")]
        if let Some(fabric) = &self.fabric {
            let status = fabric.status();
            return (status.listening, status.devices);
        }
        (Vec::new(), Vec::new())
    }

    /// Listen no more. Connections go on until their lanes have drained.
    pub fn close(self) {
        #[cfg(feature = "rdma")]
        drop(self.fabric);
    }
}

/// Serve RDMA where a device is, and where one comes.
///
/// # Errors
/// Only when the configuration insists on RDMA and there is none.
#[cfg(feature = "rdma")]
pub fn start(config: &Config, buffers: &Buffers, lanes: &Lanes) -> Result<RdmaHold, StartError> {
    use rpc_rdma::verbs::{Fabric, FabricSettings};

    if config.rdma.mode == RdmaMode::No {
        return Ok(RdmaHold::default());
    }
    let settings = FabricSettings {
        listen: config.rdma.listen.clone(),
        devices: config.rdma.devices.clone(),
        arena: std::sync::Arc::clone(&buffers.arena),
        lanes: config.server.lanes,
        wait_for_device: config.rdma.mode == RdmaMode::Auto,
    };
    let handles = lanes.handles();
    let add = move |lane: usize, provider| {
        let Some(handles) = handles.upgrade() else { return };
        let Some(handle) = handles.get(lane) else { return };
        if let Err(error) = handle.add_provider(provider) {
            tracing::error!(lane, %error, "a lane takes no RDMA device");
        }
    };
    match Fabric::start(settings, add) {
        Ok(fabric) => Ok(RdmaHold { fabric: Some(fabric) }),
        Err(error) if config.rdma.mode == RdmaMode::Auto => {
            tracing::warn!("{error}; serving TCP only");
            Ok(RdmaHold::default())
        }
        Err(error) => Err(StartError::Rdma(error.to_string())),
    }
}

/// This build has no RDMA.
///
/// # Errors
/// Only when the configuration insists on it; the check of the configuration has said so before.
#[cfg(not(feature = "rdma"))]
pub fn start(config: &Config, _buffers: &Buffers, _lanes: &Lanes) -> Result<RdmaHold, StartError> {
    match config.rdma.mode {
        RdmaMode::Yes => Err(StartError::Rdma("this build has no RDMA".to_owned())),
        RdmaMode::Auto => {
            tracing::info!("this build has no RDMA; serving TCP only");
            Ok(RdmaHold::default())
        }
        RdmaMode::No => Ok(RdmaHold::default()),
    }
}
