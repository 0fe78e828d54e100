//! The checked configuration: every value within its bounds, every default filled in.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{
    memory::MemorySum,
    value::{DeviceName, InlineBytes, Listen, LogFilter, Number, Size, Time, any_address, plain},
};
use crate::exports::ExportSettings;

/// A whole configuration, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[server]`
    pub server: Server,
    /// `[tcp]`
    pub tcp: Tcp,
    /// `[rdma]`
    pub rdma: Rdma,
    /// `[portmap]`
    pub portmap: Portmap,
    /// `[limits]`
    pub limits: Limits,
    /// `[[export]]`
    pub exports: Vec<ExportConfig>,
    /// `[log]`
    pub log: Log,
    /// What all of it may take in memory; never more than `server.memory_max`.
    pub memory: MemorySum,
}

/// Whether to use io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoUring {
    /// Where the kernel lets us.
    Auto,
    /// Never.
    Off,
}

/// On which processors the lanes run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinning {
    /// Wherever the kernel puts them.
    None,
    /// Lane i on the i-th of these.
    Cpus(Vec<usize>),
}

/// `[server]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Threads that serve connections.
    pub lanes: usize,
    /// Where they run.
    pub pinning: Pinning,
    /// How long an idle lane polls before it sleeps.
    pub spin: Duration,
    /// Registered memory for payloads, of all lanes together, in bytes.
    pub payload_memory: u64,
    /// Most memory of the whole gateway, in bytes.
    pub memory_max: u64,
    /// Where the handle key and other state is kept.
    pub state_dir: StateDir,
    /// Threads for calls that can block, shared by all lanes.
    pub blocking_threads: usize,
    /// Files kept open between calls.
    pub open_files_max: usize,
    /// Whether to use io_uring.
    pub io_uring: IoUring,
    /// How long to finish calls under way when asked to stop.
    pub drain_timeout: Duration,
}

/// Where state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateDir {
    /// There, or the gateway does not start.
    Configured(PathBuf),
    /// There if possible; otherwise handles last until the gateway stops.
    Default(PathBuf),
    /// Nowhere.
    None,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// `[tcp]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a section; write the header [tcp]")]
pub struct Tcp {
    /// Where to listen; nowhere turns TCP off.
    #[serde(deserialize_with = "plain::<Vec<Listen>, _>")]
    pub listen: Vec<SocketAddr>,
}

impl Default for Tcp {
    fn default() -> Self {
        Self { listen: vec![any_address(2049)] }
    }
}

/// Whether to serve RDMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RdmaMode {
    /// Where a device is or comes.
    Auto,
    /// Yes: a gateway without a device does not start.
    Yes,
    /// No.
    No,
}

/// `[rdma]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a section; write the header [rdma]")]
pub struct Rdma {
    /// Whether.
    #[serde(rename = "enabled")]
    pub mode: RdmaMode,
    /// Where to listen.
    #[serde(deserialize_with = "plain::<Vec<Listen>, _>")]
    pub listen: Vec<SocketAddr>,
    /// Devices to use, by name; empty means all.
    #[serde(deserialize_with = "plain::<Vec<DeviceName>, _>")]
    pub devices: Vec<String>,
    /// Longest message without chunks, in bytes.
    #[serde(deserialize_with = "plain::<InlineBytes, _>")]
    pub inline_bytes: usize,
    /// Calls that a client may have under way on a connection.
    #[serde(deserialize_with = "plain::<Number<u32, 1, 1024>, _>")]
    pub credits: u32,
    /// Most RDMA connections.
    #[serde(deserialize_with = "plain::<Number<usize, 1, 65_536>, _>")]
    pub connections_max: usize,
}

impl Default for Rdma {
    fn default() -> Self {
        Self {
            mode: RdmaMode::Auto,
            listen: vec![any_address(20_049)],
            devices: Vec::new(),
            inline_bytes: 4096,
            credits: 64,
            connections_max: 256,
        }
    }
}

/// `[portmap]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portmap {
    /// Tell the rpcbind of this machine where the programs are.
    Register,
    /// Be the portmapper.
    Serve {
        /// Where.
        listen: SocketAddr,
    },
    /// Neither; clients give the ports.
    Off,
}

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a section; write the header [limits]")]
pub struct Limits {
    /// Most TCP connections.
    #[serde(deserialize_with = "plain::<Number<usize, 1, 1_000_000>, _>")]
    pub connections_max: usize,
    /// Most connections from one address.
    #[serde(deserialize_with = "plain::<Number<usize, 1, 1_000_000>, _>")]
    pub connections_per_address_max: usize,
    /// Most calls under way on a TCP connection.
    #[serde(deserialize_with = "plain::<Number<usize, 1, 4096>, _>")]
    pub calls_per_connection_max: usize,
    /// Most payload bytes under way on a connection: incoming over RDMA, outgoing over TCP.
    #[serde(deserialize_with = "plain::<Size<usize, { 2 * MIB }, { 64 * GIB }>, _>")]
    pub payload_per_connection_max: usize,
    /// Longest RPC record on TCP without the data of a WRITE, in bytes.
    #[serde(deserialize_with = "plain::<Size<usize, { 64 * KIB }, MIB>, _>")]
    pub record_bytes_max: usize,
    /// A connection without a call for so long is closed; zero: never.
    #[serde(deserialize_with = "plain::<Time<0, { 24 * HOUR }>, _>")]
    pub idle_timeout: Duration,
    /// A record must arrive whole within this time.
    #[serde(deserialize_with = "plain::<Time<1000, HOUR>, _>")]
    pub partial_record_timeout: Duration,
    /// While others wait for the buffers that a TCP client holds, it must move something within this time.
    #[serde(deserialize_with = "plain::<Time<1000, HOUR>, _>")]
    pub starved_timeout: Duration,
    /// Answers remembered for repeated calls.
    #[serde(deserialize_with = "plain::<Number<usize, 64, 10_000_000>, _>")]
    pub reply_cache_entries: usize,
    /// Memory for them, in bytes.
    #[serde(deserialize_with = "plain::<Size<u64, MIB, { 64 * GIB }>, _>")]
    pub reply_cache_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            connections_per_address_max: 128,
            calls_per_connection_max: 128,
            payload_per_connection_max: 16 << 20,
            record_bytes_max: 256 << 10,
            idle_timeout: Duration::from_millis(HOUR),
            partial_record_timeout: Duration::from_millis(MINUTE),
            starved_timeout: Duration::from_secs(5),
            reply_cache_entries: 16_384,
            reply_cache_bytes: 64 * MIB,
        }
    }
}

/// One `[[export]]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// What every export has.
    pub settings: ExportSettings,
    /// What stands behind it.
    pub backend: BackendConfig,
    /// Another export's path or directory may lie within this one or around it.
    pub allow_overlap: bool,
}

/// What stands behind an export.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendConfig {
    /// A directory of a local file system.
    Local(LocalConfig),
    /// Memory; gone when the gateway stops.
    Memory {
        /// Most bytes of file data.
        bytes_max: u64,
    },
}

/// How file data moves between buffers and drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoMode {
    /// Through the page cache.
    Buffered,
    /// Through the page cache, dropped from it at once.
    DontCache,
    /// Past the page cache (O_DIRECT).
    Direct,
}

/// A directory of a local file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// The directory, canonical.
    pub directory: PathBuf,
    /// How data moves.
    pub io: IoMode,
    /// Creating, removing and renaming is on the drive before it is answered.
    pub metadata_sync: bool,
    /// Programs on this machine change the files too.
    pub local_writers: bool,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a section; write the header [log]")]
pub struct Log {
    /// `info`, or a filter like `info,gateway=debug`.
    #[serde(deserialize_with = "plain::<LogFilter, _>")]
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}
