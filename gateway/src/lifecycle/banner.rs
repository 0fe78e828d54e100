//! What is said at the start: what is served where, what it may take, and how to mount it.

use std::{
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

use crate::{
    config::{
        Config,
        schema::{BackendConfig, Portmap},
    },
    exports::{ClientRule, ExportTable, Rights},
};

/// Where `mount` looks without a port option when nobody tells it otherwise.
const NFS_PORT: u16 = 2049;

/// What has come up.
#[derive(Debug, Clone, Default)]
pub struct Served {
    /// TCP addresses.
    pub tcp: Vec<SocketAddr>,
    /// RDMA addresses.
    pub rdma: Vec<SocketAddr>,
    /// RDMA devices: name, port, GID.
    pub rdma_devices: Vec<String>,
    /// Whether clients can ask a portmapper for our ports.
    pub portmapped: bool,
    /// Whether file handles survive a restart.
    pub handles_persist: bool,
}

/// The lines.
pub fn lines(config: &Config, table: &ExportTable, served: &Served) -> Vec<String> {
    let mut lines = Vec::new();
    for address in &served.tcp {
        lines.push(format!("TCP ready on {address}"));
    }
    for address in &served.rdma {
        lines.push(format!("RDMA ready on {address}: {}", served.rdma_devices.join("; ")));
    }
    if !served.handles_persist {
        lines.push(
            "file handles will not survive a restart: there is no state directory".to_owned(),
        );
    }
    match (config.portmap, served.portmapped) {
        (Portmap::Register, true) => lines.push("registered with rpcbind".to_owned()),
        (Portmap::Serve { listen }, true) => lines.push(format!("portmapper ready on {listen}")),
        _ => {}
    }
    for export in table.iter() {
        lines.push(export_line(config, export));
        lines.extend(mount_lines(&export.path, served));
    }
    let sum = config.memory.table();
    lines.push(format!("memory when all limits are reached:\n{sum}"));
    lines
}

fn export_line(config: &Config, export: &crate::exports::Export) -> String {
    let clients: Vec<String> = export.clients.listed().into_iter().map(client).collect();
    let mut line = format!(
        "export {} (id {}): {}, {}, squash {}, clients {}",
        export.path,
        export.id,
        export.origin,
        if export.read_only { "read-only" } else { "read-write" },
        word(export.squash),
        clients.join(", ")
    );
    let of = |config: &&crate::config::schema::ExportConfig| config.settings.id == export.id;
    if let Some(BackendConfig::Local(local)) = config.exports.iter().find(of).map(|c| &c.backend) {
        let _ = write!(line, ", io {}", word(local.io));
    }
    line
}

/// A choice as the configuration writes it.
fn word(choice: impl std::fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

fn client(rule: &ClientRule) -> String {
    match rule.rights {
        Rights::ReadOnly => format!("{} ro", rule.pattern),
        Rights::ReadWrite => rule.pattern.to_string(),
    }
}

/// The exact command for each transport. Without a portmapper, or beside port 2049, the MOUNT protocol's
/// port must be given too; it is always TCP, also for RDMA mounts.
pub fn mount_lines(path: &str, served: &Served) -> Vec<String> {
    let mut lines = Vec::new();
    let tcp = served.tcp.first().copied();
    let mount_options = match tcp {
        Some(address) if !served.portmapped || address.port() != NFS_PORT => {
            format!(",mountport={},mountproto=tcp", address.port())
        }
        _ => String::new(),
    };
    if tcp.is_none() {
        lines.push(format!(
            "{path} cannot be mounted by Linux clients: they ask for its root over TCP, and tcp.listen is off"
        ));
        return lines;
    }
    if let Some(address) = served.rdma.first() {
        let host = host_of(*address, tcp);
        let port = address.port();
        lines.push(format!(
            "mount -t nfs -o vers=3,proto=rdma,port={port}{mount_options},nolock {host}:{path} /mnt"
        ));
    }
    if let Some(address) = tcp {
        let host = host_of(address, None);
        let port = match address.port() {
            NFS_PORT if served.portmapped => String::new(),
            port => format!(",port={port}"),
        };
        lines.push(format!(
            "mount -t nfs -o vers=3,proto=tcp{port}{mount_options},nolock {host}:{path} /mnt"
        ));
    }
    lines
}

/// The address that a client would give: a listener's own if it has one, or SERVER.
fn host_of(address: SocketAddr, other: Option<SocketAddr>) -> String {
    let own = [Some(address), other].into_iter().flatten().map(|address| address.ip());
    match own.into_iter().find(|ip| !ip.is_unspecified()) {
        Some(IpAddr::V6(v6)) => format!("[{v6}]"),
        Some(IpAddr::V4(v4)) => v4.to_string(),
        None => "SERVER".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(tcp: &[&str], rdma: &[&str], portmapped: bool) -> Served {
        Served {
            tcp: tcp.iter().map(|text| text.parse().unwrap()).collect(),
            rdma: rdma.iter().map(|text| text.parse().unwrap()).collect(),
            rdma_devices: vec!["rxe0/1".to_owned()],
            portmapped,
            handles_persist: true,
        }
    }

    #[test]
    fn without_tcp_no_command_is_shown_that_cannot_work() {
        let lines = mount_lines("/data", &served(&[], &["10.0.0.1:20049"], true));
        assert!(lines.len() == 1 && lines[0].contains("tcp.listen is off"), "{lines:?}");
    }

    #[test]
    fn mount_commands() {
        for (served, commands) in [
            (
                served(&["[::]:2049"], &["[::]:20049"], true),
                &[
                    "mount -t nfs -o vers=3,proto=rdma,port=20049,nolock SERVER:/data /mnt",
                    "mount -t nfs -o vers=3,proto=tcp,nolock SERVER:/data /mnt",
                ][..],
            ),
            (
                served(&["[::]:2049"], &[], false),
                &[
                    "mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock SERVER:/data /mnt",
                ],
            ),
            (
                served(&["10.0.0.1:12049"], &["[::]:20049"], true),
                &[
                    "mount -t nfs -o vers=3,proto=rdma,port=20049,mountport=12049,mountproto=tcp,nolock 10.0.0.1:/data /mnt",
                    "mount -t nfs -o vers=3,proto=tcp,port=12049,mountport=12049,mountproto=tcp,nolock 10.0.0.1:/data /mnt",
                ],
            ),
            (
                served(&["[fd00::1]:2049"], &[], true),
                &["mount -t nfs -o vers=3,proto=tcp,nolock [fd00::1]:/data /mnt"],
            ),
        ] {
            assert_eq!(mount_lines("/data", &served), commands);
        }
    }
}
