//! ONC RPC (RFC 5531) over TCP and over RDMA (RFC 8166, 8267, 8797), for servers and for tools.
//!
//! Nothing here knows NFS. Modules, top to bottom; each uses only what stands below it:
//!
//! * [`client`]: a userspace RPC client over every transport, for tests and load generation
//! * [`driver`]: the lane: one thread that polls, dispatches and flushes
//! * [`tcp`]: record-marked streams
//! * [`verbs`]: real RDMA devices (feature `rdma`)
//! * [`soft`]: an in-process RDMA fabric with the same rules, for tests
//! * [`endpoint`]: what an RDMA device does for a client: one connection, memory that the server may reach
//! * [`conn`]: the RPC-over-RDMA connection as a state machine without I/O
//! * [`wire`]: what an RDMA provider does: post work, poll completions, connection events
//! * [`service`]: what a program above does: take a call, give a reply
//! * [`credit`]: flow control arithmetic
//! * [`chunk`], [`header`]: the RPC-over-RDMA transport header
//! * [`rpc`]: calls, replies, authentication, record marking
//! * [`xdr`]: ropes, reader, writer
//! * [`log_rate`]: log lines that a peer can cause, at a bounded rate

pub mod chunk;
pub mod client;
pub mod conn;
pub mod credit;
pub mod driver;
pub mod endpoint;
pub mod header;
pub mod log_rate;
pub mod rpc;
pub mod service;
pub mod soft;
pub mod tcp;
#[cfg(feature = "rdma")]
pub mod verbs;
pub mod wire;
pub mod xdr;
