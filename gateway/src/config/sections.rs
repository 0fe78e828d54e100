//! The sections that depend on the machine or on more than one of their keys: as they are written, and what
//! they come to.

use std::time::Duration;

use buffers::PoolLayout;
use serde::Deserialize;

use super::{
    export::Exports,
    machine::Machine,
    problem::{Problems, shown},
    read::Part,
    schema::{IoUring, Limits, Log, Pinning, Portmap, Rdma, RdmaMode, Server, StateDir, Tcp},
    value::{AbsolutePath, Held, Listen, Number, Size, Time, any_address, format_size},
};

/// Most lanes.
const LANES_MAX: u64 = 256;
const LANES_DEFAULT_MAX: usize = 8;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
/// Payload memory of a lane when nothing is configured.
const LANE_PAYLOAD_BYTES: u64 = 128 * MIB;
/// With less a lane could not hold a handful of large transfers.
const LANE_PAYLOAD_BYTES_MIN: u64 = 16 * MIB;

/// A whole file as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Written {
    /// `[server]`
    pub server: ServerKeys,
    /// `[tcp]`
    pub tcp: Tcp,
    /// `[rdma]`
    pub rdma: Rdma,
    /// `[portmap]`
    pub portmap: PortmapKeys,
    /// `[limits]`
    pub limits: Limits,
    /// `[log]`
    pub log: Log,
    /// `[[export]]`
    pub export: Exports,
}

/// `[server]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a section; write the header [server]")]
pub struct ServerKeys {
    lanes: Option<Number<usize, 1, LANES_MAX>>,
    cpus: Cpus,
    spin: Time<0, 100>,
    payload_memory: Option<Size<u64, LANE_PAYLOAD_BYTES_MIN, TIB>>,
    memory_max: Option<Size<u64, { 64 * MIB }, { 16 * TIB }>>,
    state_dir: AbsolutePath,
    blocking_threads: Option<Number<usize, 1, 1024>>,
    open_files_max: Number<usize, 64, 4_000_000>,
    io_uring: IoUring,
    drain_timeout: Time<0, 3_600_000>,
}

impl Default for ServerKeys {
    fn default() -> Self {
        Self {
            lanes: None,
            cpus: Cpus::Word(CpusWord::Auto),
            spin: Time(Duration::from_micros(50)),
            payload_memory: None,
            memory_max: None,
            state_dir: AbsolutePath::default(),
            blocking_threads: None,
            open_files_max: Number(65_536),
            io_uring: IoUring::Auto,
            drain_timeout: Time(Duration::from_secs(10)),
        }
    }
}

/// On which processors the lanes run, as it is written.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this says no processors; give a list like [2, 3], \"auto\" or \"none\""
)]
enum Cpus {
    Word(CpusWord),
    Listed(Vec<u16>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CpusWord {
    Auto,
    None,
}

/// `[server]`: what is left to the gateway, decided.
pub fn server(
    problems: &mut Problems,
    part: &Part<'_>,
    keys: ServerKeys,
    machine: &Machine,
) -> Server {
    let cpus = machine.cpus.len().max(1);
    let lanes = keys.lanes.map(Held::held).unwrap_or(cpus.min(LANES_DEFAULT_MAX));
    let default_pinning = match machine.cpus.get(..lanes) {
        Some(cpus) => Pinning::Cpus(cpus.to_vec()),
        None => Pinning::None,
    };
    let pinning = match keys.cpus {
        Cpus::Word(CpusWord::Auto) => default_pinning,
        Cpus::Word(CpusWord::None) => Pinning::None,
        Cpus::Listed(cpus) => {
            let cpus: Vec<usize> = cpus.into_iter().map(usize::from).collect();
            allowed(problems, part, &cpus, lanes, machine);
            Pinning::Cpus(cpus)
        }
    };
    let payload_auto = (lanes as u64 * LANE_PAYLOAD_BYTES)
        .min(machine.memory_bytes / 4)
        .max(lanes as u64 * LANE_PAYLOAD_BYTES_MIN);
    let payload_memory = keys.payload_memory.map(Held::held).unwrap_or(payload_auto);
    enough_for_the_lanes(problems, part, payload_memory, lanes);
    let state_dir = match &machine.state_dir {
        _ if part.has("state_dir") => StateDir::Configured(keys.state_dir.held()),
        Some(path) => StateDir::Default(path.clone()),
        None => StateDir::None,
    };
    Server {
        lanes,
        pinning,
        spin: keys.spin.held(),
        payload_memory,
        memory_max: keys.memory_max.map(Held::held).unwrap_or(machine.memory_bytes / 2),
        state_dir,
        blocking_threads: keys.blocking_threads.map(Held::held).unwrap_or((2 * cpus).clamp(4, 64)),
        open_files_max: keys.open_files_max.held(),
        io_uring: keys.io_uring,
        drain_timeout: keys.drain_timeout.held(),
    }
}

/// Every lane has some buffers of every size, or it could not carry out some calls at all.
fn enough_for_the_lanes(problems: &mut Problems, part: &Part<'_>, memory: u64, lanes: usize) {
    let share = usize::try_from(memory).unwrap_or(usize::MAX) / lanes;
    let Some((buffer, enough)) = PoolLayout::shortage(share) else { return };
    if part.refused("payload_memory") || part.refused("lanes") {
        return;
    }
    let problem = format!(
        "{} are too little for {lanes} lanes: the share of each has no room for its buffers of {}",
        format_size(memory),
        format_size(buffer as u64)
    );
    let enough = (enough as u64).next_multiple_of(MIB).saturating_mul(lanes as u64);
    let fix = format!("set at least {}, or fewer lanes", format_size(enough));
    part.wrong(problems, "payload_memory", problem, fix);
}

fn allowed(
    problems: &mut Problems,
    part: &Part<'_>,
    cpus: &[usize],
    lanes: usize,
    machine: &Machine,
) {
    let mut good = !part.refused("cpus") && !part.refused("lanes");
    for (cpu, place) in cpus.iter().zip(part.item_places("cpus")) {
        if machine.cpus.contains(cpu) {
            continue;
        }
        let there: Vec<String> = machine.cpus.iter().map(ToString::to_string).collect();
        let problem = format!("the gateway may not run on processor {cpu}");
        problems.add(place, part.key("cpus"), problem, format!("there are {}", there.join(", ")));
        good = false;
    }
    if good && cpus.len() != lanes {
        let problem = format!("there are {} processors for {lanes} lanes", cpus.len());
        part.wrong(problems, "cpus", problem, format!("list {lanes}, or set server.lanes"));
    }
}

/// What `[rdma]` takes of this build and this machine. A device may be missing now and come later; but
/// another name where there are devices is a mistake.
pub fn rdma(problems: &mut Problems, part: &Part<'_>, rdma: &Rdma, machine: &Machine) {
    if rdma.mode == RdmaMode::Yes && !cfg!(feature = "rdma") {
        let problem = "this build has no RDMA (cargo feature `rdma`)";
        part.wrong(problems, "enabled", problem, "use a build with it, or set enabled = \"no\"");
    }
    for (name, place) in rdma.devices.iter().zip(part.item_places("devices")) {
        if !machine.rdma_devices.is_empty() && !machine.rdma_devices.contains(name) {
            let problem = format!("there is no RDMA device `{}`", shown(name));
            let fix = format!("there are {}", machine.rdma_devices.join(", "));
            problems.add(place, part.key("devices"), problem, fix);
        }
    }
}

/// `[limits]`: a timeout that never comes into effect is a mistake.
pub fn limits(problems: &mut Problems, part: &Part<'_>, limits: &Limits) {
    let wrong = part.refused("starved_timeout") || part.refused("partial_record_timeout");
    if part.has("starved_timeout")
        && !wrong
        && limits.starved_timeout > limits.partial_record_timeout
    {
        let problem =
            "this is longer than limits.partial_record_timeout, which ends the connection before";
        part.wrong(problems, "starved_timeout", problem, "lower it, or raise the other");
    }
}

/// `[portmap]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "a section; write the header [portmap]")]
pub struct PortmapKeys {
    mode: PortmapMode,
    listen: Listen,
}

impl Default for PortmapKeys {
    fn default() -> Self {
        Self { mode: PortmapMode::Register, listen: Listen(any_address(111)) }
    }
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PortmapMode {
    Register,
    Serve,
    Off,
}

/// `[portmap]`: one of three.
pub fn portmap(problems: &mut Problems, part: &Part<'_>, keys: PortmapKeys) -> Portmap {
    if part.has("listen") && keys.mode != PortmapMode::Serve && !part.refused("mode") {
        let problem = "this address is used only by mode = \"serve\"";
        part.wrong(problems, "listen", problem, "remove it, or set the mode");
    }
    match keys.mode {
        PortmapMode::Register => Portmap::Register,
        PortmapMode::Serve => Portmap::Serve { listen: keys.listen.held() },
        PortmapMode::Off => Portmap::Off,
    }
}
