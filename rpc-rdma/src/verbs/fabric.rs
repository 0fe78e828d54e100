//! The RDMA side of the process: starting it, what it says about itself, stopping it.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use buffers::Arena;

use super::{
    diagnose::FabricError,
    mailbox::{Mailbox, Order},
    manager::Manager,
};
use crate::wire::Provider;

/// What to serve, on what.
#[derive(Debug, Clone)]
pub struct FabricSettings {
    /// Addresses to listen on. A wildcard takes every device, also one that comes later; the IPv6 wildcard
    /// stands for IPv4 too, as it does for TCP.
    pub listen: Vec<SocketAddr>,
    /// Names of the devices to use; empty for all.
    pub devices: Vec<String>,
    /// The memory that every device registers.
    pub arena: Arc<Arena>,
    /// How many lanes there are: each gets a provider of every device.
    pub lanes: usize,
    /// Start also when there is nothing to serve on yet, and begin when there is.
    pub wait_for_device: bool,
}

/// How it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FabricStatus {
    /// Devices in use, for people.
    pub devices: Vec<String>,
    /// Addresses that are listened on.
    pub listening: Vec<SocketAddr>,
    /// What does not work, if anything.
    pub trouble: Option<String>,
}

/// Handed a provider for a lane: at start, and whenever a device comes (back).
pub type ProviderSink = Box<dyn Fn(usize, Box<dyn Provider + Send>) + Send>;

/// The running RDMA side. Dropping it stops listening; connections live on in their providers.
pub struct Fabric {
    orders: Arc<Mailbox<Order>>,
    status: Arc<Mutex<FabricStatus>>,
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Fabric {
    /// Open the devices, register the memory, listen. `on_lane_provider` is called on the fabric's own
    /// thread, for each device and each lane.
    ///
    /// # Errors
    /// When there is nothing to serve on; with `wait_for_device` only when not even waiting is possible.
    pub fn start(
        settings: FabricSettings,
        on_lane_provider: impl Fn(usize, Box<dyn Provider + Send>) + Send + 'static,
    ) -> Result<Self, FabricError> {
        let system = |operation| move |source| FabricError::System { operation, source };
        let orders = Mailbox::new().map_err(system("event descriptor"))?;
        let status = Arc::new(Mutex::new(FabricStatus::default()));
        let (report, started) = mpsc::channel();
        let (orders_there, status_there) = (orders.clone(), status.clone());
        let sink: ProviderSink = Box::new(on_lane_provider);
        thread::Builder::new()
            .name("rdma-cm".to_owned())
            .spawn(move || {
                let wait = settings.wait_for_device;
                let mut manager = Manager::new(settings, sink, orders_there, status_there);
                let first = manager.bring_up();
                let go_on = first.is_ok() || wait;
                if let (Err(error), true) = (&first, wait) {
                    tracing::warn!("{error}; waiting for it");
                }
                let told = report.send(if wait { Ok(()) } else { first }).is_ok();
                if go_on && told {
                    manager.run();
                }
            })
            .map_err(system("start a thread"))?;
        let ended = || std::io::Error::other("the thread ended early");
        started.recv().map_err(|_| system("start a thread")(ended()))??;
        Ok(Self { orders, status })
    }

    /// How it stands now.
    pub fn status(&self) -> FabricStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // When the thread has ended already there is nothing to stop.
        let _ = self.orders.put(Order::Stop);
    }
}

impl FabricSettings {
    /// What [`Self::listen`] stands for.
    pub(super) fn listen_addresses(&self) -> Vec<SocketAddr> {
        both_families(&self.listen)
    }
}

/// The addresses to listen on: the IPv6 wildcard of a port brings the IPv4 one with it. (An rdma_cm listener
/// takes one family; one for both would keep others from listening on the IPv4 address.)
fn both_families(listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = Vec::with_capacity(2 * listen.len());
    for &address in listen {
        let also = (address.is_ipv6() && address.ip().is_unspecified())
            .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
        for address in std::iter::once(address).chain(also) {
            if !all.contains(&address) {
                all.push(address);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bug_the_default_listener_refused_ipv4_clients() {
        let listen = |list: &[&str]| {
            let list: Vec<SocketAddr> = list.iter().map(|a| a.parse().unwrap()).collect();
            both_families(&list).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(listen(&["[::]:20049"]), ["[::]:20049", "0.0.0.0:20049"]);
        assert_eq!(listen(&["0.0.0.0:1", "[::]:1"]), ["0.0.0.0:1", "[::]:1"]);
        assert_eq!(listen(&["[fd00::1]:1", "10.0.0.1:2"]), ["[fd00::1]:1", "10.0.0.1:2"]);
    }
}
