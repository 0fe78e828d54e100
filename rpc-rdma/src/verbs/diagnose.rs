//! Why RDMA does not work here, in words that say what to do.

use std::{fs, io, path::Path};

use super::cm::DEVICE_FILE;

/// Why there is no RDMA now. The rest of the gateway goes on without it.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The kernel's connection manager cannot be opened.
    #[error("RDMA is not available: cannot open {file}: {source}; {advice}")]
    ConnectionManager {
        /// The device file.
        file: &'static str,
        /// What the system said.
        source: io::Error,
        /// What to do.
        advice: String,
    },
    /// The kernel has no RDMA device, or none that was chosen.
    #[error("RDMA is not available: {0}")]
    NoDevice(String),
    /// A device is there but cannot be used.
    #[error("RDMA device {device} cannot be used: {source}")]
    Device {
        /// Its name.
        device: String,
        /// Why.
        source: super::device::DeviceError,
    },
    /// No address to listen on could be taken.
    #[error("RDMA cannot listen on {address}: {source}; {advice}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// What the system said.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// The system refused something else.
    #[error("RDMA cannot start: {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What to do when the connection manager cannot be opened.
pub(super) fn connection_manager_unavailable(source: io::Error) -> FabricError {
    let advice = match source.kind() {
        io::ErrorKind::NotFound if !Path::new("/sys/class/infiniband").exists() => {
            "this kernel has no RDMA subsystem loaded (`modprobe ib_uverbs rdma_ucm`, and the driver of \
             the network adapter)"
                .to_owned()
        }
        io::ErrorKind::NotFound if Path::new("/sys/class/misc/rdma_cm").exists() => {
            "the kernel has it but the file is missing: in a container, pass /dev/infiniband in".to_owned()
        }
        io::ErrorKind::NotFound => {
            "load the kernel module with `modprobe rdma_ucm` (and list it in /etc/modules-load.d)".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "the service may not open it: give its user access to /dev/infiniband, and allow the device in \
             the service's DeviceAllow= or the container's device list"
                .to_owned()
        }
        _ => "see the kernel log".to_owned(),
    };
    FabricError::ConnectionManager { file: DEVICE_FILE, source, advice }
}

/// Why no device can be used although the connection manager is there.
pub(super) fn no_device(wanted: &[String], present: &[String]) -> FabricError {
    let text = if present.is_empty() {
        let names = names_in("/sys/class/infiniband");
        let has_module = Path::new("/sys/class/infiniband_verbs/abi_version").exists();
        none_present(&names, has_module, !user_interfaces().is_empty())
    } else {
        format!(
            "no device is both chosen ({}) and present ({})",
            if wanted.is_empty() { "any".to_owned() } else { wanted.join(", ") },
            present.join(", ")
        )
    };
    FabricError::NoDevice(text)
}

fn none_present(names: &[String], has_module: bool, has_interface: bool) -> String {
    let has = format!("the kernel has {}", names.join(", "));
    if names.is_empty() {
        "the kernel has no RDMA device (`rdma link` lists them; for soft-RoCE: `rdma link add rxe0 type rxe \
         netdev eth0`)"
            .to_owned()
    } else if !has_module {
        format!("{has} but the module ib_uverbs is not loaded (`modprobe ib_uverbs`)")
    } else if !has_interface {
        format!("{has} but offers no user interface for it (it is being removed)")
    } else {
        format!(
            "{has} but libibverbs has no driver for it (install the package ibverbs-providers; in a \
             container, pass /dev/infiniband in)"
        )
    }
}

/// What to do when an address cannot be listened on.
pub(super) fn cannot_listen(address: std::net::SocketAddr, source: io::Error) -> FabricError {
    let advice = match source.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            "another process listens there (the kernel's NFS server? `cat /proc/fs/nfsd/portlist`)"
        }
        Some(libc::EADDRNOTAVAIL | libc::ENODEV) => {
            "no RDMA device has this address; it is tried again every second"
        }
        Some(libc::EACCES) => "ports below 1024 need CAP_NET_BIND_SERVICE",
        _ => "it is tried again every second",
    };
    FabricError::Listen { address, source, advice }
}

fn names_in(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The user interfaces that there are, each with a number that changes when it goes and comes back.
pub(super) fn user_interfaces() -> Vec<(String, u64)> {
    use std::os::unix::fs::MetadataExt;
    let folder = Path::new("/sys/class/infiniband_verbs");
    let mut found: Vec<_> = names_in("/sys/class/infiniband_verbs")
        .into_iter()
        .filter(|name| name.starts_with("uverbs"))
        .filter_map(|name| {
            let inode = fs::metadata(folder.join(&name)).ok()?.ino();
            Some((name, inode))
        })
        .collect();
    found.sort();
    found
}

/// The device's first port and its addresses, for people: `rxe0/1 GID ::ffff:10.77.0.1`.
pub(super) fn describe(device: &str) -> String {
    let folder = Path::new("/sys/class/infiniband").join(device).join("ports/1/gids");
    let gids = names_in(&folder.to_string_lossy());
    let readable = |index: &String| {
        let text = fs::read_to_string(folder.join(index)).ok()?;
        let address: std::net::Ipv6Addr = text.trim().parse().ok()?;
        (!address.is_unspecified()).then_some(address)
    };
    let addresses: Vec<_> = gids.iter().take(32).filter_map(readable).collect();
    // The address that people know is the IPv4 one.
    let best = addresses.iter().find(|a| a.to_ipv4_mapped().is_some()).or(addresses.first());
    match best {
        Some(gid) => format!("{device}/1 GID {gid}"),
        None => format!("{device}/1"),
    }
}

/// The limit of locked memory, for people.
pub(super) fn locked_memory_limit() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) => format!("{bytes} bytes"),
        None => "unlimited".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_which_file_and_what_to_do() {
        let error = connection_manager_unavailable(io::Error::from_raw_os_error(libc::EACCES));
        let text = error.to_string();
        assert!(text.contains("/dev/infiniband/rdma_cm"), "{text}");
        assert!(text.contains("DeviceAllow"), "{text}");
    }

    #[test]
    fn names_what_was_chosen_and_what_is_there() {
        let text = no_device(&["mlx5_0".into()], &["rxe0".into()]).to_string();
        assert!(text.contains("mlx5_0") && text.contains("rxe0"), "{text}");
    }

    #[test]
    fn says_what_is_missing_between_the_kernel_and_us() {
        let names = ["mlx5_0".to_owned()];
        for (names, has_module, has_interface, advice) in [
            (&[][..], true, true, "rdma link add"),
            (&names, false, false, "modprobe ib_uverbs"),
            (&names, true, false, "being removed"),
            (&names, true, true, "ibverbs-providers"),
        ] {
            let text = none_present(names, has_module, has_interface);
            assert!(text.contains(advice), "{text}");
        }
    }

    #[test]
    fn a_port_in_use_points_at_the_kernels_server() {
        let error = io::Error::from_raw_os_error(libc::EADDRINUSE);
        let text = cannot_listen("0.0.0.0:20049".parse().unwrap(), error).to_string();
        assert!(text.contains("0.0.0.0:20049") && text.contains("nfsd"), "{text}");
    }
}
