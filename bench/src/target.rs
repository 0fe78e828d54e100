//! Where the server is, and how to get its root.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
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

/// Xids between the first ones of two connections.
const XIDS_OF_CONNECTION: u32 = 1 << 20;

/// Where the xids of the next connection begin: anywhere for the first one of this process, and apart from
/// it for the others. A server's cache of replies knows a call by its xid, among other things: with the xids
/// of the last run, it would answer from there without doing anything.
fn first_xid() -> u32 {
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(RandomState::new().build_hasher().finish() as u32));
    NEXT.fetch_add(XIDS_OF_CONNECTION, Ordering::Relaxed)
}

/// A connection of any kind.
pub type Connection = Box<dyn RpcClient>;

impl Target {
    /// Connect; `depth` is how many calls it will have under way.
    ///
    /// # Errors
    /// When the server cannot be reached. A rejection shows only at the first call.
    pub fn connect(&self, depth: usize) -> Result<Connection, ConnectError> {
        let first_xid = first_xid();
        let rdma = RdmaClientSettings {
            credits: u32::try_from(depth).unwrap_or(u32::MAX).clamp(1, 1024),
            receives_posted: 0,
            new_keys: false,
            first_xid,
            ..RdmaClientSettings::default()
        };
        match self {
            Self::Tcp(address) => {
                let tcp = TcpClientSettings { first_xid, ..TcpClientSettings::default() };
                let client = TcpClient::connect(*address, tcp);
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
            Ok(Nfs3Client::new(target.connect(1)?, credential.clone()))
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
    use std::{io::Read, net::TcpListener, process::Command, time::Duration};

    use rpc_rdma::rpc::Credential;

    use super::*;
    use crate::nfs3::call;

    /// The xid of the first call of a new connection.
    fn xid_of_new_connection() -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = Target::Tcp(listener.local_addr().unwrap());
        let mut client = target.connect(1).unwrap();
        let null = call::null();
        // Nobody answers; what counts is what is sent.
        let patience = Duration::from_millis(1);
        let call = (null.procedure, &Credential::None, null.args, null.reply);
        client.call_and_wait(call.0, call.1, call.2, call.3, patience).unwrap_err();
        let mut record = [0; 8];
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_exact(&mut record).unwrap();
        u32::from_be_bytes(record[4..].try_into().unwrap())
    }

    #[test]
    fn a_second_run_does_not_measure_the_servers_reply_cache() {
        let (one, other) = (xid_of_new_connection(), xid_of_new_connection());
        assert_eq!(other.wrapping_sub(one) % XIDS_OF_CONNECTION, 0);
        assert_ne!(one, other);
        // Another process begins elsewhere.
        let draw = |_| {
            let test = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "target::tests::print_a_first_xid"])
                .output()
                .unwrap();
            let text = String::from_utf8(test.stdout).unwrap();
            let word = text.split_once("xid=").unwrap().1.split_whitespace().next().unwrap();
            word.parse::<u32>().unwrap()
        };
        let drawn: Vec<u32> = (0..3).map(draw).collect();
        assert!(drawn.iter().any(|xid| *xid != drawn[0]), "{drawn:?}");
    }

    #[test]
    fn print_a_first_xid() {
        println!("xid={} ", xid_of_new_connection());
    }

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
