//! How clients find the ports: at the machine's rpcbind, or at ours. Never in the way of serving.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::banner::Served;
use crate::{
    config::schema::Portmap,
    portmap::{self, Registered, Registrations},
};

/// What has been arranged; to be ended within the same runtime.
#[derive(Debug)]
pub enum Ports {
    /// Nothing: clients give the ports.
    Given,
    /// rpcbind has been told.
    Registered(Registered),
    /// We answer as rpcbind.
    Served(JoinHandle<()>),
}

impl Ports {
    /// Arrange what the configuration says. What fails is said in the log, and clients give the ports.
    pub async fn publish(portmap: Portmap, served: &Served) -> Self {
        let registrations = Registrations::new(&served.tcp, &served.rdma);
        match portmap {
            Portmap::Off => Self::Given,
            Portmap::Register => match portmap::register(&registrations).await {
                Ok(registered) => Self::Registered(registered),
                Err(error) => {
                    tracing::warn!("{error}; until then clients give port= and mountport=");
                    Self::Given
                }
            },
            Portmap::Serve { listen } => {
                let registrations = Arc::new(registrations.with_portmapper(listen));
                let task = tokio::spawn(async move {
                    if let Err(error) = portmap::serve(listen, registrations).await {
                        tracing::error!(%listen, %error, "no portmapper; clients give port= and mountport=");
                    }
                });
                // It binds at once or ends at once.
                tokio::task::yield_now().await;
                if task.is_finished() { Self::Given } else { Self::Served(task) }
            }
        }
    }

    /// Whether clients can ask for the ports.
    pub fn can_be_asked(&self) -> bool {
        !matches!(self, Self::Given)
    }

    /// Take it back.
    pub async fn withdraw(self) {
        match self {
            Self::Given => {}
            Self::Registered(registered) => {
                if let Err(error) = registered.unregister().await {
                    tracing::warn!(%error, "rpcbind keeps our ports");
                }
            }
            Self::Served(task) => task.abort(),
        }
    }
}
