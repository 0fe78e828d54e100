//! Load generation for NFS servers: ours and others.
//!
//! * [`load`]: a pipelined NFSv3 load against any server, over TCP or RDMA
//! * [`nfs3`]: the client's side of NFSv3 and MOUNT3 (RFC 1813)
//! * [`soft`]: our own server in this process, as the target of a load
//! * [`target`]: where the server is
//! * [`report`]: what came of it, as JSON
//! * `histogram`: latencies
//! * [`pattern`]: file content that can be checked at any place
//! * [`cli`]: the command line

pub mod cli;
pub mod histogram;
pub mod load;
pub mod nfs3;
pub mod pattern;
pub mod report;
pub mod soft;
pub mod target;
