//! The fabric: where providers listen and clients connect, and where a test pulls the plug.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use buffers::Arena;
use bytes::{Bytes, BytesMut};

use super::{
    SoftEndpoint, SoftProvider,
    device::{Device, refused},
    fault::{FaultPlan, Violations},
    memory::KeyTable,
    queue::{Client, ClientPhase},
    wake::Wake,
};
use crate::{
    endpoint::EndpointEvent,
    wire::{ConnectRequest, QpId, WireError, WireEvent, WireLimits},
};

/// Private data of a connection request, as InfiniBand delivers it: always this long.
const REQUEST_PRIVATE_DATA_BYTES: usize = 56;

/// What the fabric is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FabricSettings {
    /// Limits of the server's device.
    pub limits: WireLimits,
    /// Address of the server.
    pub address: SocketAddr,
    /// How often a client's Send may find the server without a Receive (7: for ever), as the server's
    /// acceptance tells it. 0 as in the field: once is fatal.
    pub server_rnr_retry: u8,
}

impl Default for FabricSettings {
    fn default() -> Self {
        Self {
            limits: WireLimits {
                send_requests_max: 4096,
                receives_max: 4096,
                reads_outstanding_max: 16,
                send_with_invalidate: true,
            },
            address: SocketAddr::from((Ipv4Addr::new(10, 77, 0, 1), 20049)),
            server_rnr_retry: 0,
        }
    }
}

/// How a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Receives posted before the request goes out.
    pub receives_posted: usize,
    /// Size of the Receive buffers, in bytes.
    pub receive_bytes: usize,
    /// Most Receives posted at a time.
    pub receives_max: usize,
    /// Most Sends under way at a time.
    pub sends_max: usize,
    /// RDMA Reads that the server may keep outstanding.
    pub reads_outstanding: u8,
    /// How often a Send of the server may find us without a Receive (7: for ever).
    pub rnr_retry: u8,
}

impl Default for ConnectOptions {
    /// What a Linux client does: 8 Receives, 4 KiB, RNR is fatal.
    fn default() -> Self {
        Self {
            receives_posted: 8,
            receive_bytes: 4096,
            receives_max: 4096,
            sends_max: 4096,
            reads_outstanding: 16,
            rnr_retry: 0,
        }
    }
}

/// Clients, one server device, and what lies between them.
#[derive(Debug)]
pub struct Fabric {
    device: Mutex<Device>,
}

impl Fabric {
    /// A fabric with the server's device present and nobody listening.
    pub fn new(settings: FabricSettings) -> Arc<Self> {
        Arc::new(Self { device: Mutex::new(Device::new(settings)) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Open the device for one lane, which from now on gets every n-th connection request.
    ///
    /// # Errors
    /// While the device is removed.
    pub fn provider(self: &Arc<Self>, arena: Arc<Arena>) -> Result<SoftProvider, WireError> {
        SoftProvider::open(self.clone(), arena)
    }

    /// Connect from `peer`. The endpoint reports when the server has answered.
    ///
    /// # Errors
    /// When nobody listens, or the private data is too long for a request.
    pub fn connect(
        self: &Arc<Self>,
        peer: SocketAddr,
        private_data: &[u8],
        options: ConnectOptions,
    ) -> Result<SoftEndpoint, WireError> {
        if private_data.len() > REQUEST_PRIVATE_DATA_BYTES {
            return Err(refused("rdma_connect", libc::EINVAL));
        }
        let wake =
            Wake::new().map_err(|source| WireError::System { operation: "eventfd", source })?;
        let client = Client {
            phase: ClientPhase::Connecting,
            queue_pair: None,
            options,
            rnr_left: 0,
            receives: options.receives_posted.min(options.receives_max),
            outgoing: VecDeque::new(),
            keys: KeyTable::default(),
            next_address: 0x5a01_0000_0000,
            events: VecDeque::new(),
            wake,
        };
        let wake_fd = client.wake.shared_fd();
        let private_data = padded(private_data, REQUEST_PRIVATE_DATA_BYTES);
        let request = |id, settings: &FabricSettings| ConnectRequest {
            id,
            peer,
            local: settings.address,
            private_data,
            reads_outstanding_max: options.reads_outstanding,
        };
        let client = self.lock().request(client, request)?;
        Ok(SoftEndpoint::new(self.clone(), client, wake_fd))
    }

    /// What the server's posters did wrong so far.
    pub fn violations(&self) -> Violations {
        self.lock().violations
    }

    /// Let things go wrong from now on; replaces the plan before.
    pub fn inject(&self, plan: FaultPlan) {
        self.lock().plan = plan;
    }

    /// Let completions through that [`FaultPlan::hold_completions`] kept back, and keep no more back.
    pub fn release_completions(&self) {
        let mut device = self.lock();
        device.plan.hold_completions = false;
        device.release_completions();
    }

    /// Break a connection between the ends: both learn it from their connection managers, nothing is flushed.
    pub fn drop_connection(&self, qp: QpId) {
        let mut device = self.lock();
        device.tell_disconnected(qp.0);
        let client = device.queue_pairs.get(&qp.0).map(|qp| qp.client);
        if let Some(client) = client.and_then(|id| device.clients.get_mut(&id)) {
            client.end(EndpointEvent::Disconnected);
        }
    }

    /// Fail a queue pair with an asynchronous event and no completion.
    pub fn fail_queue_pair(&self, qp: QpId) {
        let mut device = self.lock();
        let Some((lane, client)) = device.queue_pairs.get(&qp.0).map(|qp| (qp.lane, qp.client))
        else {
            return;
        };
        if let Some(client) = device.clients.get_mut(&client) {
            client.end(EndpointEvent::Disconnected);
        }
        device.lanes[lane].tell(WireEvent::Failed(qp));
    }

    /// Fail the completion queue of the lane that a queue pair belongs to: its provider is lost without a
    /// further completion.
    pub fn fail_completion_queue(&self, qp: QpId) {
        let mut device = self.lock();
        if let Some(lane) = device.queue_pairs.get(&qp.0).map(|qp| qp.lane) {
            device.fail_lane(lane, true);
        }
    }

    /// Take the device away. Posted work comes back with [`DeviceGone`](crate::wire::WireFault::DeviceGone), or not at all when
    /// `silent`; open providers stay dead for ever.
    pub fn remove_device(&self, silent: bool) {
        let mut device = self.lock();
        device.present = false;
        for lane in 0..device.lanes.len() {
            device.fail_lane(lane, silent);
        }
    }

    /// Bring the device back. Providers can be opened again.
    pub fn restore_device(&self) {
        self.lock().present = true;
    }

    /// Connections that a client believes to be up.
    pub fn connected_clients(&self) -> usize {
        self.lock().clients.values().filter(|c| c.phase == ClientPhase::Connected).count()
    }
}

/// Private data as InfiniBand delivers it.
pub(super) fn padded(private_data: &[u8], bytes: usize) -> Bytes {
    let mut padded = BytesMut::from(private_data);
    padded.resize(bytes.max(private_data.len()), 0);
    padded.freeze()
}
