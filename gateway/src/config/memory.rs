//! The limits, summed: what the gateway may take in memory when all of them are reached at once.

use std::fmt::Write;

use buffers::{PoolLayout, pages::PIPE_BYTES, pool::CLASS_BYTES};

use super::{
    machine::Machine,
    schema::{BackendConfig, Config, IoUring, RdmaMode},
    value::format_size,
};

/// READs of one lane that are sent by reference at a time; those beyond are copied.
pub const PIPES_MAX: usize = 32;
/// Small pieces of a lane that are there for TCP and for the rest, whatever RDMA needs.
const LANE_MESSAGES_MIN: usize = 1024;
/// Kernel and own memory of an open file: file, dentry, inode, entry in the cache.
const OPEN_FILE_BYTES: u64 = 2048;
/// Own bookkeeping of a connection, and what a TCP socket's kernel buffers hold by default.
const TCP_CONNECTION_BYTES: u64 = 256 << 10;
/// Own bookkeeping of an RDMA connection; its messages are counted apart.
const RDMA_CONNECTION_BYTES: u64 = 32 << 10;
/// Submission and completion entries of a lane's io_uring.
const RING_BYTES: u64 = 1024 * 64 + 4096 * 16;
/// What a blocking thread's stack comes to in practice, with its queue.
const THREAD_BYTES: u64 = 256 << 10;

/// One line of the sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryItem {
    /// What for.
    pub name: &'static str,
    /// How it comes about.
    pub derivation: String,
    /// Which keys decide it.
    pub keys: &'static str,
    /// How much.
    pub bytes: u64,
}

/// The sum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemorySum {
    /// Its lines.
    pub items: Vec<MemoryItem>,
}

impl MemorySum {
    /// Sum up a configuration.
    pub fn of(config: &Config, machine: &Machine) -> Self {
        let mut sum = Self::default();
        let (server, limits) = (&config.server, &config.limits);
        let lanes = server.lanes as u64;
        let layout = lane_layout(config, machine);
        let messages = layout.counts[0] as u64 * CLASS_BYTES[0] as u64;
        let payload = layout.bytes() as u64 - messages;
        sum.add("payload buffers", "server.payload_memory", lanes, payload, "lanes");
        let keys = "rdma.connections_max, rdma.credits or rdma.inline_bytes";
        sum.add("message buffers", keys, lanes, messages, "lanes");
        if !config.tcp.listen.is_empty() {
            let pipes = (PIPES_MAX * PIPE_BYTES) as u64;
            sum.add("pages being sent", "server.lanes", lanes, pipes, "lanes");
        }
        let connections = limits.connections_max as u64;
        let keys = "limits.connections_max";
        sum.add("TCP connections", keys, connections, TCP_CONNECTION_BYTES, "connections");
        if serves_rdma(config, machine) {
            let connections = config.rdma.connections_max as u64;
            let keys = "rdma.connections_max";
            sum.add("RDMA connections", keys, connections, RDMA_CONNECTION_BYTES, "connections");
        }
        sum.add("reply cache", "limits.reply_cache_bytes", 1, limits.reply_cache_bytes, "cache");
        let files = server.open_files_max as u64;
        sum.add("open files", "server.open_files_max", files, OPEN_FILE_BYTES, "files");
        if server.io_uring == IoUring::Auto {
            sum.add("io_uring", "server.lanes", lanes, RING_BYTES, "lanes");
        }
        let threads = server.blocking_threads as u64;
        sum.add("blocking threads", "server.blocking_threads", threads, THREAD_BYTES, "threads");
        for export in &config.exports {
            if let BackendConfig::Memory { bytes_max } = export.backend {
                sum.add("memory export", "export.memory", 1, bytes_max, "export");
            }
        }
        sum
    }

    fn add(
        &mut self,
        name: &'static str,
        keys: &'static str,
        count: u64,
        bytes: u64,
        of: &'static str,
    ) {
        let derivation = match count {
            1 => String::new(),
            _ => format!("{count} {of} x {}", format_size(bytes)),
        };
        let bytes = count.saturating_mul(bytes);
        self.items.push(MemoryItem { name, derivation, keys, bytes });
    }

    /// All together, in bytes.
    pub fn total(&self) -> u64 {
        self.items.iter().fold(0, |sum, item| sum.saturating_add(item.bytes))
    }

    /// The line that weighs most.
    pub fn largest(&self) -> &MemoryItem {
        static NOTHING: MemoryItem =
            MemoryItem { name: "nothing", derivation: String::new(), keys: "the limits", bytes: 0 };
        self.items.iter().max_by_key(|item| item.bytes).unwrap_or(&NOTHING)
    }

    /// The sum as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for item in &self.items {
            let size = format_size(item.bytes);
            let _ = writeln!(text, "  {:<18} {size:>12}  {}", item.name, item.derivation);
        }
        let _ = write!(text, "  {:<18} {:>12}", "sum", format_size(self.total()));
        text
    }
}

/// Whether memory for RDMA is set aside.
pub fn serves_rdma(config: &Config, machine: &Machine) -> bool {
    match config.rdma.mode {
        RdmaMode::No => false,
        RdmaMode::Yes => true,
        // A device that comes later is served with the message buffers that there are.
        RdmaMode::Auto => cfg!(feature = "rdma") && !machine.rdma_devices.is_empty(),
    }
}

/// The pool of one lane: payload pieces within its share of the payload memory, and beside them a Receive
/// and a Send buffer for each credit of its share of the RDMA connections.
pub fn lane_layout(config: &Config, machine: &Machine) -> PoolLayout {
    let lanes = config.server.lanes.max(1);
    let payload = usize::try_from(config.server.payload_memory).unwrap_or(usize::MAX) / lanes;
    let mut layout = PoolLayout::within(payload);
    layout.counts[0] = layout.counts[0].max(LANE_MESSAGES_MIN);
    if serves_rdma(config, machine) {
        let connections = config.rdma.connections_max.div_ceil(lanes);
        let messages = connections.saturating_mul(config.rdma.credits as usize).saturating_mul(2);
        let class = CLASS_BYTES.iter().position(|bytes| *bytes >= config.rdma.inline_bytes);
        let class = class.unwrap_or(CLASS_BYTES.len() - 1);
        layout.counts[class] = layout.counts[class].saturating_add(messages);
    }
    layout
}
