//! What the defaults depend on. A value, so that tests decide what machine they run on.

use std::{env, fs, path::PathBuf, thread};

/// What is known of the machine and the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Processors that the process may use, by number.
    pub cpus: Vec<usize>,
    /// Memory that the process may use, in bytes.
    pub memory_bytes: u64,
    /// Names of RDMA devices.
    pub rdma_devices: Vec<String>,
    /// Where state goes when the configuration does not say.
    pub state_dir: Option<PathBuf>,
}

const RDMA_CLASS: &str = "/sys/class/infiniband";

impl Machine {
    /// This one.
    pub fn detect() -> Self {
        let cpus = allowed_cpus();
        Self {
            cpus,
            memory_bytes: memory_bytes(),
            rdma_devices: rdma_devices(),
            state_dir: default_state_dir(),
        }
    }
}

/// Names of the RDMA devices that the kernel shows.
pub fn rdma_devices() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(RDMA_CLASS)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

fn allowed_cpus() -> Vec<usize> {
    let listed = rustix::thread::sched_getaffinity(None).map_or_else(
        |_| Vec::new(),
        |set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
    );
    if !listed.is_empty() {
        return listed;
    }
    (0..thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Physical memory, or what the control group allows if that is less.
fn memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let physical = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map_or(1 << 30, |kib: u64| kib.saturating_mul(1024));
    control_group_limit().map_or(physical, |limit| limit.min(physical))
}

fn control_group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut directory = PathBuf::from("/sys/fs/cgroup").join(path);
    let mut limit = None;
    // The tightest on the way up to the root counts.
    while directory.starts_with("/sys/fs/cgroup") {
        let text = fs::read_to_string(directory.join("memory.max")).unwrap_or_default();
        if let Ok(bytes) = text.trim().parse::<u64>() {
            limit = Some(limit.map_or(bytes, |least: u64| least.min(bytes)));
        }
        directory.pop();
    }
    limit
}

/// What systemd says, or the system's place for the superuser, or the user's own.
fn default_state_dir() -> Option<PathBuf> {
    let from_env = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(given) = from_env("STATE_DIRECTORY") {
        return Some(given);
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/aqueduct"));
    }
    let states =
        from_env("XDG_STATE_HOME").or_else(|| Some(from_env("HOME")?.join(".local/state")));
    states.map(|states| states.join("aqueduct"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Eight processors, 16 GiB, one device.
    pub(crate) fn machine() -> Machine {
        Machine {
            cpus: (0..8).collect(),
            memory_bytes: 16 << 30,
            rdma_devices: vec!["mlx5_0".to_owned()],
            state_dir: None,
        }
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = Machine::detect();
        assert!(!machine.cpus.is_empty());
        assert!(machine.memory_bytes > 16 << 20);
    }
}
