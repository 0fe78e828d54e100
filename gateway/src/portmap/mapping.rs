//! What is registered: program, version, transport, address (RFC 1833 section 2.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{mount, nfs3};

/// Program number of rpcbind itself.
pub const PROGRAM: u32 = 100_000;

/// A transport, as rpcbind names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Netid {
    /// TCP over IPv4.
    Tcp,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4; only rpcbind itself is served there.
    Udp,
    /// UDP over IPv6.
    Udp6,
    /// RDMA with an IPv4 address.
    Rdma,
    /// RDMA with an IPv6 address.
    Rdma6,
}

impl Netid {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Tcp, Self::Tcp6, Self::Udp, Self::Udp6, Self::Rdma, Self::Rdma6];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
            Self::Udp => "udp",
            Self::Udp6 => "udp6",
            Self::Rdma => "rdma",
            Self::Rdma6 => "rdma6",
        }
    }

    /// The transport with this name.
    pub fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|netid| netid.name().as_bytes() == name)
    }

    /// Its number in version 2 of the protocol, which knows IPv4 only: IPPROTO_TCP or IPPROTO_UDP.
    pub fn protocol(self) -> Option<u32> {
        match self {
            Self::Tcp => Some(6),
            Self::Udp => Some(17),
            _ => None,
        }
    }
}

/// One program in one version at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// Program number.
    pub program: u32,
    /// Version number.
    pub version: u32,
    /// Transport.
    pub netid: Netid,
    /// Where it listens.
    pub address: SocketAddr,
}

/// All programs of the gateway at all its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registrations {
    mappings: Vec<Mapping>,
}

/// Programs and versions that are served at every address.
const PROGRAMS: [(u32, u32); 3] =
    [(nfs3::types::PROGRAM, nfs3::types::VERSION), (mount::PROGRAM, 3), (mount::PROGRAM, 1)];

impl Registrations {
    /// NFS and MOUNT at these addresses. A listener at `[::]` takes IPv4 as well, so it is registered for
    /// both.
    pub fn new(tcp: &[SocketAddr], rdma: &[SocketAddr]) -> Self {
        let mut registrations = Self::default();
        for (addresses, v4, v6) in
            [(tcp, Netid::Tcp, Netid::Tcp6), (rdma, Netid::Rdma, Netid::Rdma6)]
        {
            for address in addresses {
                let netid = if address.is_ipv4() { v4 } else { v6 };
                registrations.add(netid, *address);
                if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
                    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
                    registrations.add(v4, any);
                }
            }
        }
        registrations
    }

    fn add(&mut self, netid: Netid, address: SocketAddr) {
        for (program, version) in PROGRAMS {
            // rpcbind has one address for each program, version and transport: the first wins.
            if self.find(program, version, netid).is_none() {
                self.mappings.push(Mapping { program, version, netid, address });
            }
        }
    }

    /// With rpcbind itself at this address over TCP and UDP.
    pub fn with_portmapper(mut self, address: SocketAddr) -> Self {
        let netids =
            if address.is_ipv4() { [Netid::Tcp, Netid::Udp] } else { [Netid::Tcp6, Netid::Udp6] };
        for netid in netids {
            for version in 2..=4 {
                self.mappings.push(Mapping { program: PROGRAM, version, netid, address });
            }
        }
        self
    }

    /// The mappings.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Mapping> {
        self.mappings.iter()
    }

    /// Where exactly this version is.
    pub fn find(&self, program: u32, version: u32, netid: Netid) -> Option<&Mapping> {
        self.of(program, netid).find(|mapping| mapping.version == version)
    }

    /// Where this version is, or else another one of the program (RFC 1833 section 2.2.1, GETADDR).
    pub fn find_any(&self, program: u32, version: u32, netid: Netid) -> Option<&Mapping> {
        self.find(program, version, netid).or_else(|| self.of(program, netid).next())
    }

    fn of(&self, program: u32, netid: Netid) -> impl Iterator<Item = &Mapping> {
        self.mappings
            .iter()
            .filter(move |mapping| mapping.program == program && mapping.netid == netid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dual_stack_listener_counts_for_both() {
        let registrations = Registrations::new(
            &["[::]:2049".parse().unwrap()],
            &["0.0.0.0:20049".parse().unwrap(), "[::]:20049".parse().unwrap()],
        );
        for netid in [Netid::Tcp, Netid::Tcp6, Netid::Rdma, Netid::Rdma6] {
            let port = if netid.name().starts_with("rdma") { 20049 } else { 2049 };
            for (program, version) in PROGRAMS {
                let mapping = registrations.find(program, version, netid).unwrap();
                assert_eq!(mapping.address.port(), port);
            }
        }
        assert_eq!(registrations.iter().len(), 12);
        assert!(registrations.find(100_003, 3, Netid::Udp).is_none());
        assert_eq!(registrations.find_any(100_003, 2, Netid::Tcp).unwrap().version, 3);
    }
}
