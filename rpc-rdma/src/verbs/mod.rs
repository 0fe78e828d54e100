//! Real RDMA devices: the one place of this crate that talks to device drivers and the kernel's connection
//! manager, and holds the unsafe code for it.
//!
//! Verbs come from `ibverbs-sys` (which links the system's libibverbs, and only that: it builds its vendored
//! rdma-core no further than the headers). Connections come from the kernel's own interface, see [`cm_sys`].
//!
//! * [`fabric`]: the process-wide part; [`manager`] is its thread
//! * [`device`]: an open device with the registered arena
//! * [`lane`]: a device as one lane sees it, the [`crate::wire::Provider`]
//! * [`queue`], [`completions`], [`chain`], [`batch`], [`slots`]: the verbs, chains of requests, those that wait
//!   for the end of the turn, and who owns what was posted
//! * [`posting`]: from a lane's work to the device, and back when the device does not take it
//! * [`mailbox`]: between lanes and the thread
//! * [`endpoint`], [`region`]: the active side, for tests and load tools
//! * [`cm`], [`cm_sys`]: the connection manager
//! * [`diagnose`]: why it does not work, for people

mod batch;
mod chain;
mod cm;
#[allow(missing_docs)]
mod cm_sys;
mod completions;
mod device;
mod diagnose;
mod endpoint;
mod fabric;
mod lane;
mod mailbox;
mod manager;
mod posting;
mod queue;
mod region;
mod slots;

pub use device::{DeviceError, DeviceName, list};
pub use diagnose::FabricError;
pub use endpoint::{EndpointSettings, VerbsEndpoint};
pub use fabric::{Fabric, FabricSettings, FabricStatus, ProviderSink};
pub use region::VerbsRegion;
