//! Where the server is, and how to get its root.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
    sync::Arc,
};

use rpc_rdma::{
    client::{
        ClientError, RdmaClient, RdmaClientSettings, RpcClient, TcpClient, TcpClientSettings,
    },
    rpc::Credential,
    soft::{ConnectOptions, Fabric},
    wire::WireError,
};

use crate::nfs3::{FileHandle, Nfs3Client, Nfs3Error, mount};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// TCP.
    #[error("cannot connect to {0}: {1}")]
    Tcp(SocketAddr, io::Error),
    /// RDMA.
    #[error("cannot connect over RDMA: {0}")]
    Rdma(#[from] WireError),
    /// This binary speaks no RDMA.
    #[error("built without the `rdma` feature: only TCP targets work")]
    NoRdma,
}

/// A server and a transport to it.
#[derive(Debug, Clone)]
pub enum Target {
    /// Over TCP.
    Tcp(SocketAddr),
    /// Over an RDMA device.
    Rdma(SocketAddr),
    /// In this process.
    Soft(Arc<Fabric>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Rdma(address) => write!(f, "rdma:{address}"),
            Self::Soft(_) => f.write_str("soft"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is not of the form tcp:HOST:PORT or rdma:HOST:PORT");
        let (transport, address) = text.split_once(':').ok_or_else(expected)?;
        let address = address
            .to_socket_addrs()
            .map_err(|error| format!("{address:?}: {error}"))?
            .next()
            .ok_or_else(|| format!("{address:?} has no address"))?;
        match transport {
            "tcp" => Ok(Self::Tcp(address)),
            "rdma" => Ok(Self::Rdma(address)),
            _ => Err(expected()),
        }
    }
}

/// A connection of any kind.
pub type Connection = Box<dyn RpcClient>;

impl Target {
    /// Connect; `connection` is its number, `depth` the calls that it will have under way.
    ///
    /// # Errors
    /// When the server cannot be reached. A rejection shows only at the first call.
    pub fn connect(&self, connection: usize, depth: usize) -> Result<Connection, ConnectError> {
        let rdma = RdmaClientSettings {
            credits: u32::try_from(depth).unwrap_or(u32::MAX).clamp(1, 1024),
            receives_posted: 0,
            new_keys: false,
            first_xid: 0x5a00_0000 + ((connection as u32) << 20),
            ..RdmaClientSettings::default()
        };
        match self {
            Self::Tcp(address) => {
                let client = TcpClient::connect(*address, TcpClientSettings::default());
                Ok(Box::new(client.map_err(|error| ConnectError::Tcp(*address, error))?))
            }
            Self::Soft(fabric) => {
                let options = ConnectOptions { receives_posted: 0, ..ConnectOptions::default() };
                let peer = SocketAddr::from(([10, 77, 0, 2], 0));
                let endpoint = fabric.connect(peer, &rdma.private_data(true), options)?;
                Ok(Box::new(RdmaClient::new(endpoint, rdma)))
            }
            Self::Rdma(address) => device::connect(*address, rdma),
        }
    }

    /// The root of an export: by MNT on the connection itself, or on `mount_port`, or where the server's
    /// portmapper says.
    ///
    /// # Errors
    /// When none of them gives it.
    pub fn root(
        &self,
        export: &str,
        mount_port: Option<u16>,
        credential: &Credential,
    ) -> Result<FileHandle, RootError> {
        let on = |target: &Self| -> Result<_, RootError> {
            Ok(Nfs3Client::new(target.connect(0, 1)?, credential.clone()))
        };
        let (Self::Tcp(address) | Self::Rdma(address)) = self else {
            return Ok(on(self)?.mount(export)?);
        };
        let with_port = |port| Self::Tcp(SocketAddr::new(address.ip(), port));
        if let Some(port) = mount_port {
            return Ok(on(&with_port(port))?.mount(export)?);
        }
        let own = on(self)?.mount(export);
        let Err(error) = own else { return Ok(own?) };
        let port = || -> Result<_, RootError> {
            let mut portmapper = on(&with_port(mount::PORTMAPPER_PORT))?;
            let call = mount::getport(mount::PROGRAM, mount::VERSION);
            Ok(mount::port(&portmapper.perform(call)?).map_err(Nfs3Error::from)?)
        };
        match port() {
            Ok(Some(port)) => Ok(on(&with_port(port))?.mount(export)?),
            _ => Err(error.into()),
        }
    }
}

/// Why there is no root handle.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server refused.
    #[error("mount: {0}")]
    Mount(#[from] Nfs3Error),
}

#[cfg(feature = "rdma")]
mod device {
    use std::net::SocketAddr;

    use rpc_rdma::{
        client::{Endpoint, RdmaClient, RdmaClientSettings},
        verbs::{EndpointSettings, VerbsEndpoint},
    };

    use super::{ConnectError, Connection};

    /// RDMA Reads that the server may keep outstanding.
    const READS_SERVED: u8 = 16;

    pub(super) fn connect(
        server: SocketAddr,
        settings: RdmaClientSettings,
    ) -> Result<Connection, ConnectError> {
        let endpoint = EndpointSettings {
            // User-space memory regions cannot be invalidated remotely.
            private_data: settings.private_data(false).into(),
            message_bytes: settings.receive_bytes,
            receives: settings.credits as usize + 8,
            sends: 2 * settings.credits as usize,
            reads_served: READS_SERVED,
        };
        let endpoint = VerbsEndpoint::connect(server, endpoint)?;
        debug_assert!(!endpoint.remote_invalidation(), "the private data says so");
        Ok(Box::new(RdmaClient::new(endpoint, settings)))
    }
}

#[cfg(not(feature = "rdma"))]
mod device {
    use std::net::SocketAddr;

    use rpc_rdma::client::RdmaClientSettings;

    use super::{ConnectError, Connection};

    pub(super) fn connect(
        _server: SocketAddr,
        _settings: RdmaClientSettings,
    ) -> Result<Connection, ConnectError> {
        Err(ConnectError::NoRdma)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_in_text() {
        let target: Target = "tcp:127.0.0.1:2049".parse().unwrap();
        assert_eq!(target.to_string(), "tcp:127.0.0.1:2049");
        let target: Target = "rdma:[::1]:20049".parse().unwrap();
        assert_eq!(target.to_string(), "rdma:[::1]:20049");
        for bad in ["", "udp:127.0.0.1:1", "tcp:127.0.0.1", "127.0.0.1:2049"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
