//! What this machine offers: what one asks first when something is slow or does not start.

use std::{
    fmt::Write,
    fs,
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{Resource, getrlimit};

use crate::{
    config::{Machine, machine::rdma_devices, value::format_size},
    portmap::register::{SOCKET_PATHS, TCP_ADDRESS},
};

const RDMA_CLASS: &str = "/sys/class/infiniband";
/// GIDs of a port that are shown.
const GIDS_SHOWN_MAX: usize = 16;
const IO_URING_SYSCTL: &str = "/proc/sys/kernel/io_uring_disabled";

/// The report.
pub fn report(machine: &Machine) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "processors   {} ({})",
        machine.cpus.len(),
        machine.cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    );
    let _ = writeln!(text, "memory       {}", format_size(machine.memory_bytes));
    let _ = writeln!(text, "memlock      {}", limit(Resource::Memlock, true));
    let _ = writeln!(text, "open files   {}", limit(Resource::Nofile, false));
    let _ = writeln!(text, "io_uring     {}", io_uring());
    let user = rustix::process::geteuid();
    let _ = writeln!(
        text,
        "user         {}{}",
        user.as_raw(),
        if user.is_root() {
            ""
        } else {
            " (serving local files as their users needs the superuser)"
        }
    );
    let _ = writeln!(text, "rpcbind      {}", rpcbind());
    text.push_str(&devices());
    text
}

fn limit(resource: Resource, is_size: bool) -> String {
    let limits = getrlimit(resource);
    let one = |value: Option<u64>| match value {
        None => "unlimited".to_owned(),
        Some(value) if is_size => format_size(value),
        Some(value) => value.to_string(),
    };
    let advice = match limits.current {
        Some(current) if is_size && current < 1 << 30 => {
            " (RDMA pins its buffers: LimitMEMLOCK=infinity, or CAP_IPC_LOCK)"
        }
        _ => "",
    };
    format!("{}, at most {}{advice}", one(limits.current), one(limits.maximum))
}

fn io_uring() -> &'static str {
    match fs::read_to_string(IO_URING_SYSCTL).as_deref().map(str::trim) {
        Ok("0") => "allowed (a seccomp filter can still forbid it)",
        Ok("1") => "only for the group in kernel.io_uring_group, and the superuser",
        Ok(_) => "forbidden (sysctl kernel.io_uring_disabled); blocking threads do its work",
        Err(_) => "allowed, or not in this kernel (no kernel.io_uring_disabled)",
    }
}

fn rpcbind() -> &'static str {
    if answers(&SOCKET_PATHS, &TCP_ADDRESS) {
        "running: `mount` finds our ports"
    } else {
        "not running: clients give port= and mountport=, or set portmap.mode = \"serve\""
    }
}

/// Whether somebody listens there. An rpcbind that was killed leaves its socket in the file system.
fn answers(sockets: &[&str], address: &SocketAddr) -> bool {
    sockets.iter().any(|path| UnixStream::connect(path).is_ok())
        || TcpStream::connect_timeout(address, Duration::from_secs(1)).is_ok()
}

fn devices() -> String {
    let names = rdma_devices();
    if names.is_empty() {
        let build = if cfg!(feature = "rdma") { "" } else { ", and this build has no RDMA" };
        return format!("RDMA         no device under {RDMA_CLASS}{build}\n");
    }
    let mut text = String::new();
    for name in names {
        let device = Path::new(RDMA_CLASS).join(&name);
        let kind = attribute(&device, "node_type");
        let _ = writeln!(text, "RDMA         {name} {kind}{}", driver(&name));
        for port in sorted(&device.join("ports")) {
            let of = |file| attribute(&port, file);
            let number = port.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (state, rate, link) = (of("state"), of("rate"), of("link_layer"));
            let _ = writeln!(text, "  port {number}     {state}, {rate}, {link}");
            for gid in gids(&port) {
                let _ = writeln!(text, "    GID      {gid}");
            }
        }
    }
    text
}

/// What keeps the gateway from using a device that the kernel has, if anything does.
#[cfg(feature = "rdma")]
fn driver(name: &str) -> String {
    match rpc_rdma::verbs::list() {
        Ok(usable) if usable.iter().any(|device| device.name == name) => String::new(),
        Ok(_) => " (libibverbs has no driver for it: install ibverbs-providers)".to_owned(),
        Err(error) => format!(" (libibverbs cannot list it: {error})"),
    }
}

#[cfg(not(feature = "rdma"))]
fn driver(_name: &str) -> &'static str {
    " (this build has no RDMA)"
}

/// The port's GIDs that are set, with their types and network devices.
pub fn gids(port: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in sorted(&port.join("gids")) {
        let gid = fs::read_to_string(&file).unwrap_or_default();
        let gid = gid.trim();
        let Ok(address) = gid.parse::<std::net::Ipv6Addr>() else { continue };
        // An unset entry is all zeros, or the link-local prefix alone.
        if address.is_unspecified() || address.to_bits() == 0xfe80 << 112 {
            continue;
        }
        let index = file.file_name().unwrap_or_default();
        let kind = attribute(&port.join("gid_attrs/types"), Path::new(index));
        let netdev = attribute(&port.join("gid_attrs/ndevs"), Path::new(index));
        let shown = std::net::IpAddr::V6(address).to_canonical();
        found.push(format!("{} {shown} {kind} {netdev}", index.to_string_lossy()));
        if found.len() == GIDS_SHOWN_MAX {
            break;
        }
    }
    found
}

fn attribute(directory: &Path, name: impl AsRef<Path>) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default().trim().to_owned()
}

/// Entries of a directory, in the order of their numbers.
fn sorted(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    entries.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name.parse::<u32>().unwrap_or(u32::MAX), name)
    });
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_has_an_answer() {
        let report = report(&Machine::detect());
        for question in
            ["processors", "memory", "memlock", "open files", "io_uring", "rpcbind", "RDMA"]
        {
            let line = report.lines().find(|line| line.starts_with(question)).unwrap();
            assert!(line.trim().len() > question.len(), "{line}");
        }
    }

    #[test]
    fn a_socket_that_was_left_behind_is_no_rpcbind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rpcbind.sock");
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let asked = || answers(&[path.to_str().unwrap()], &nobody);
        assert!(asked());
        drop(listener);
        assert!(path.exists() && !asked());
        let somebody = std::net::TcpListener::bind(nobody).unwrap();
        assert!(asked());
        drop(somebody);
    }

    #[test]
    fn only_gids_that_are_set_are_shown() {
        let port = tempfile::tempdir().unwrap();
        let gids_dir = port.path().join("gids");
        fs::create_dir_all(&gids_dir).unwrap();
        fs::create_dir_all(port.path().join("gid_attrs/types")).unwrap();
        for (index, gid) in [
            (0, "fe80:0000:0000:0000:0000:0000:0000:0000"),
            (1, "0000:0000:0000:0000:0000:ffff:0a4d:0001"),
            (2, "0000:0000:0000:0000:0000:0000:0000:0000"),
            (10, "fe80:0000:0000:0000:0211:22ff:fe33:4455"),
        ] {
            fs::write(gids_dir.join(index.to_string()), format!("{gid}\n")).unwrap();
        }
        fs::write(port.path().join("gid_attrs/types/1"), "RoCE v2\n").unwrap();
        let found = gids(port.path());
        assert_eq!(found, ["1 10.77.0.1 RoCE v2 ", "10 fe80::211:22ff:fe33:4455  "]);
    }
}
