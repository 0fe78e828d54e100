//! TCP listeners: one for each address and lane, among which the kernel spreads the connections.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, socket_with, sockopt,
};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}{}", advice(source))]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another server has the port, perhaps the kernel's (`systemctl stop nfs-server`) or a second \
             gateway: end it, or choose another port with --tcp or tcp.listen"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 are for the superuser",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}

/// Listeners on `address`, `count` of them. `others` are all addresses that will be listened on.
///
/// # Errors
/// When the address is taken, not ours or not for us.
pub fn tcp(
    address: SocketAddr,
    others: &[SocketAddr],
    count: usize,
) -> Result<Vec<TcpListener>, ListenError> {
    let failed = |source: io::Error| ListenError { address, source };
    // [::] takes IPv4 too, unless 0.0.0.0 or another IPv4 address is to be listened on for itself.
    let port = address.port();
    let only_v6 = others.iter().any(|other| other.is_ipv4() && other.port() == port);
    // With SO_REUSEPORT a second gateway would share the port unnoticed: first see whether it is free.
    drop(open(address, only_v6, false).map_err(failed)?);
    (0..count).map(|_| Ok(open(address, only_v6, true).map_err(failed)?.into())).collect()
}

fn open(address: SocketAddr, only_v6: bool, shared: bool) -> io::Result<OwnedFd> {
    let family = match address.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, only_v6)?;
    }
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    }

    #[test]
    fn several_lanes_share_an_address_and_a_second_gateway_does_not() {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listeners = tcp(address, &[address], 3).unwrap();
        assert_eq!(listeners.len(), 3);
        TcpStream::connect(address).unwrap();
        let error = tcp(address, &[address], 1).unwrap_err();
        assert!(error.to_string().contains("systemctl stop nfs-server"), "{error}");
    }

    #[test]
    fn any_address_of_both_families_can_be_listed() {
        let port = free_port();
        let all = [
            SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port)),
            SocketAddr::from(([0, 0, 0, 0], port)),
        ];
        let _v6 = tcp(all[0], &all, 2).unwrap();
        let _v4 = tcp(all[1], &all, 2).unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn both_families_on_one_listener() {
        let address = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, free_port()));
        let _listeners = tcp(address, &[address], 1).unwrap();
        TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    }
}
