//! Entry points of the fuzzer: any bytes, no panic, bounded work.
//!
//! They are plain functions, so that `cargo test` replays the corpus on every machine and libFuzzer drives
//! the same code where it is there (`cargo xtask fuzz`).

mod engine;
mod gateway;
pub mod seeds;
mod server;
mod transport;

/// One fuzz target: its name, which is also the name of its corpus folder, and what to do with the bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[
    ("rpc_call", transport::rpc_call),
    ("record_stream", transport::record_stream),
    ("rdma_call_header", transport::rdma_call_header),
    ("rdma_reply_header", transport::rdma_reply_header),
    ("rdma_private_data", transport::rdma_private_data),
    ("rdma_connection", engine::connection),
    ("nfs3_arguments", gateway::nfs3_arguments),
    ("nfs3_attributes", gateway::nfs3_attributes),
    ("conversation", gateway::conversation),
    ("file_handle", gateway::file_handle),
    ("bulk_offset", gateway::bulk_offset),
    ("portmap_message", gateway::portmap_message),
    ("config_text", gateway::config_text),
    ("client_rule", gateway::client_rule),
];

/// Run one target by name.
///
/// # Panics
/// When there is no such target, or the target finds a fault.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a known target");
    target(data);
}
