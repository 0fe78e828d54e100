//! A userspace RPC client over every transport, for tests and load generation.
//!
//! * [`RpcClient`]: make calls, collect replies, whatever the transport
//! * [`rdma`]: RPC-over-RDMA as the Linux client speaks it, over any [`Endpoint`]
//! * [`tcp`]: record-marked streams
//! * [`settings`]: how the RDMA client behaves
//! * [`shape`]: which chunks a call and its reply travel by
//! * [`message`]: calls and replies as bytes

mod memory;
pub mod message;
pub mod rdma;
pub mod rpc_client;
pub mod settings;
pub mod shape;
pub mod tcp;
#[cfg(test)]
mod tests;

pub use crate::endpoint::{Access, Endpoint, EndpointEvent, Region};
pub use message::{Procedure, RpcFault, results};
pub use rdma::RdmaClient;
pub use rpc_client::{CallFault, ClientError, Reply, ReplyOptions, RpcClient};
pub use settings::RdmaClientSettings;
pub use shape::{CallForm, ReplyForm, Shape};
pub use tcp::{TcpClient, TcpClientSettings};
