//! The sections that there is one of: their keys, bounds and defaults.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{
    de::of,
    machine::Machine,
    problem::Problems,
    schema::{
        IoUring, Limits, Log, LogFormat, Pinning, Portmap, Rdma, RdmaMode, Server, StateDir, Tcp,
    },
    section::{Section, shown},
    tree::{Node, Value},
    value::{AbsolutePath, Listen, Wrong, auto, duration, list, number, size},
};

/// Most lanes.
pub const LANES_MAX: usize = 256;
const LANES_DEFAULT_MAX: usize = 8;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// Payload memory of a lane when nothing is configured.
const LANE_PAYLOAD_BYTES: u64 = 128 * MIB;
/// With less a lane could not hold a handful of large transfers.
const LANE_PAYLOAD_BYTES_MIN: u64 = 16 * MIB;

/// `[server]`
pub fn server(problems: &mut Problems, mut section: Section<'_>, machine: &Machine) -> Server {
    let cpus = machine.cpus.len().max(1);
    let lanes = section.get(problems, "lanes", auto(number(1..=LANES_MAX))).flatten();
    let lanes = lanes.unwrap_or(cpus.min(LANES_DEFAULT_MAX));
    let pinning = section.get(problems, "cpus", |node| pinning(node, lanes, machine));
    let spin_max = Duration::from_millis(100);
    let spin = section.get(problems, "spin", duration(Duration::ZERO..=spin_max));
    let payload_range = LANE_PAYLOAD_BYTES_MIN..=TIB;
    let payload_memory = section.get(problems, "payload_memory", auto(size(payload_range)));
    let memory_max = section.get(problems, "memory_max", auto(size(64 * MIB..=16 * TIB)));
    let state_dir = section.get(problems, "state_dir", of::<AbsolutePath>);
    let threads = section.get(problems, "blocking_threads", auto(number(1..=1024_usize)));
    let open_files = section.get(problems, "open_files_max", number(64..=4_000_000_usize));
    let io_uring = section.get(problems, "io_uring", of::<IoUring>);
    let drain_max = Duration::from_secs(3600);
    let drain = section.get(problems, "drain_timeout", duration(Duration::ZERO..=drain_max));
    section.finish(problems);
    let payload_auto = (lanes as u64 * LANE_PAYLOAD_BYTES)
        .min(machine.memory_bytes / 4)
        .max(lanes as u64 * LANE_PAYLOAD_BYTES_MIN);
    Server {
        lanes,
        pinning: pinning.unwrap_or_else(|| default_pinning(lanes, machine)),
        spin: spin.unwrap_or(Duration::from_micros(50)),
        payload_memory: payload_memory.flatten().unwrap_or(payload_auto),
        memory_max: memory_max.flatten().unwrap_or(machine.memory_bytes / 2),
        state_dir: state_dir_of(state_dir.map(|path| path.0), machine),
        blocking_threads: threads.flatten().unwrap_or((2 * cpus).clamp(4, 64)),
        open_files_max: open_files.unwrap_or(65_536),
        io_uring: io_uring.unwrap_or(IoUring::Auto),
        drain_timeout: drain.unwrap_or(Duration::from_secs(10)),
    }
}

fn default_pinning(lanes: usize, machine: &Machine) -> Pinning {
    match machine.cpus.get(..lanes) {
        Some(cpus) => Pinning::Cpus(cpus.to_vec()),
        None => Pinning::None,
    }
}

/// What can be said in place of processors.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Anywhere {
    Auto,
    None,
}

fn pinning(node: &Node, lanes: usize, machine: &Machine) -> Result<Pinning, Wrong> {
    if matches!(node.value, Value::Text(_)) {
        let default = default_pinning(lanes, machine);
        return Ok(match of(node)? {
            Anywhere::Auto => default,
            Anywhere::None => Pinning::None,
        });
    }
    let cpus = list(|item| {
        let cpu = number(0..=65_535_usize)(item)?;
        if machine.cpus.contains(&cpu) {
            return Ok(cpu);
        }
        let allowed = machine.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let problem = format!("the gateway may not run on processor {cpu}");
        Err(Wrong::new(problem, format!("there are {allowed}")))
    })(node)?;
    if cpus.len() != lanes {
        let problem = format!("there are {} processors for {lanes} lanes", cpus.len());
        return Err(Wrong::new(problem, format!("list {lanes}, or set server.lanes")));
    }
    Ok(Pinning::Cpus(cpus))
}

fn state_dir_of(configured: Option<PathBuf>, machine: &Machine) -> StateDir {
    match (configured, &machine.state_dir) {
        (Some(path), _) => StateDir::Configured(path),
        (None, Some(path)) => StateDir::Default(path.clone()),
        (None, None) => StateDir::None,
    }
}

/// `[tcp]`
pub fn tcp(problems: &mut Problems, mut section: Section<'_>) -> Tcp {
    let listen = section.get(problems, "listen", addresses);
    section.finish(problems);
    Tcp { listen: listen.unwrap_or_else(|| vec![any_address(2049)]) }
}

/// `[rdma]`
pub fn rdma(problems: &mut Problems, mut section: Section<'_>, machine: &Machine) -> Rdma {
    let mode = section.get(problems, "enabled", |node| match node.value {
        Value::Flag(true) => Ok(RdmaMode::Yes),
        Value::Flag(false) => Ok(RdmaMode::No),
        _ => of(node),
    });
    let mode = mode.unwrap_or(RdmaMode::Auto);
    let listen = section.get(problems, "listen", addresses);
    let devices = section.get(problems, "devices", list(|node| device(node, machine)));
    let inline = section.get(problems, "inline_bytes", |node| {
        let bytes = size(4096..=65_536)(node)?;
        // The private data of a connection says it in units of 1 KiB (RFC 8797 section 4).
        if bytes.is_multiple_of(KIB) {
            return Ok(bytes);
        }
        Err(Wrong::new(format!("{bytes} is no multiple of 1 KiB"), "give a size like \"8KiB\""))
    });
    let credits = section.get(problems, "credits", number(1..=1024_u32));
    let connections = section.get(problems, "connections_max", number(1..=65_536_usize));
    if mode == RdmaMode::Yes && !cfg!(feature = "rdma") {
        problems.add(
            &section.place_of("enabled"),
            section.key("enabled"),
            "this build has no RDMA (cargo feature `rdma`)",
            "use a build with it, or set enabled = \"no\"",
        );
    }
    section.finish(problems);
    Rdma {
        mode,
        listen: listen.unwrap_or_else(|| vec![any_address(20_049)]),
        devices: devices.unwrap_or_default(),
        inline_bytes: usize_or(inline, 4096),
        credits: credits.unwrap_or(64),
        connections_max: connections.unwrap_or(256),
    }
}

/// A device may be missing now and come later; but a name that is nearly one that is there is a mistake.
fn device(node: &Node, machine: &Machine) -> Result<String, Wrong> {
    let name: String = of(node)?;
    if name.is_empty() || name.contains('/') {
        let problem = format!("`{}` is not the name of an RDMA device", shown(&name));
        return Err(Wrong::new(problem, "`aqueduct doctor` lists the devices"));
    }
    if machine.rdma_devices.is_empty() || machine.rdma_devices.contains(&name) {
        return Ok(name);
    }
    let problem = format!("there is no RDMA device `{}`", shown(&name));
    Err(Wrong::new(problem, format!("there are {}", machine.rdma_devices.join(", "))))
}

/// `[portmap]`
pub fn portmap(problems: &mut Problems, mut section: Section<'_>) -> Portmap {
    #[derive(Clone, Copy, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Register,
        Serve,
        Off,
    }
    let mode = section.get(problems, "mode", of).unwrap_or(Mode::Register);
    let listen = section.get(problems, "listen", of::<Listen>).map(|listen| listen.0);
    if mode != Mode::Serve && section.has("listen") {
        problems.add(
            &section.place_of("listen"),
            section.key("listen"),
            "this address is used only by mode = \"serve\"",
            "remove it, or set the mode",
        );
    }
    section.finish(problems);
    match mode {
        Mode::Register => Portmap::Register,
        Mode::Serve => Portmap::Serve { listen: listen.unwrap_or_else(|| any_address(111)) },
        Mode::Off => Portmap::Off,
    }
}

/// `[limits]`
pub fn limits(problems: &mut Problems, mut section: Section<'_>) -> Limits {
    let hour = Duration::from_secs(3600);
    let connections = section.get(problems, "connections_max", number(1..=1_000_000_usize));
    let per_address =
        section.get(problems, "connections_per_address_max", number(1..=1_000_000_usize));
    let calls = section.get(problems, "calls_per_connection_max", number(1..=4096_usize));
    let payload = section.get(problems, "payload_per_connection_max", size(2 * MIB..=64 * GIB));
    let record = section.get(problems, "record_bytes_max", size(64 * KIB..=MIB));
    let idle = section.get(problems, "idle_timeout", duration(Duration::ZERO..=24 * hour));
    let partial_range = Duration::from_secs(1)..=hour;
    let partial = section.get(problems, "partial_record_timeout", duration(partial_range));
    let entries = section.get(problems, "reply_cache_entries", number(64..=10_000_000_usize));
    let cache = section.get(problems, "reply_cache_bytes", size(MIB..=64 * GIB));
    section.finish(problems);
    Limits {
        connections_max: connections.unwrap_or(1024),
        connections_per_address_max: per_address.unwrap_or(128),
        calls_per_connection_max: calls.unwrap_or(128),
        payload_per_connection_max: usize_or(payload, 16 * MIB),
        record_bytes_max: usize_or(record, 256 * KIB),
        idle_timeout: idle.unwrap_or(hour),
        partial_record_timeout: partial.unwrap_or(Duration::from_secs(60)),
        reply_cache_entries: entries.unwrap_or(16_384),
        reply_cache_bytes: cache.unwrap_or(64 * MIB),
    }
}

/// `[log]`
pub fn log(problems: &mut Problems, mut section: Section<'_>) -> Log {
    let level = section.get(problems, "level", |node| {
        let written: String = of(node)?;
        if written.contains(['=', ',']) {
            return match written.parse::<tracing_subscriber::filter::Targets>() {
                Ok(_) => Ok(written),
                Err(error) => {
                    Err(Wrong::new(format!("not a log filter ({error})"), "try \"info\""))
                }
            };
        }
        of::<Level>(node).map(|_| written)
    });
    let format = section.get(problems, "format", of::<LogFormat>);
    section.finish(problems);
    Log {
        level: level.unwrap_or_else(|| "info".to_owned()),
        format: format.unwrap_or(LogFormat::Text),
    }
}

/// Levels of the log.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

fn addresses(node: &Node) -> Result<Vec<SocketAddr>, Wrong> {
    let listen: Vec<Listen> = of(node)?;
    Ok(listen.into_iter().map(|listen| listen.0).collect())
}

fn usize_or(value: Option<u64>, default: u64) -> usize {
    usize::try_from(value.unwrap_or(default)).unwrap_or(usize::MAX)
}

/// All addresses of both families.
fn any_address(port: u16) -> SocketAddr {
    SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port))
}
