//! Telling a running rpcbind where the programs are (RFC 1833 section 2.2, version 4).
//!
//! rpcbind believes whom its local socket shows to be the superuser; over TCP it wants a reserved port. When
//! it cannot be told, clients that name the port still get here, so failure is a warning and nothing more.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use rpc_rdma::{
    rpc::{RPC_VERSION, call::CALL, record::FragmentHeader, reply::ACCEPTED_BYTES},
    xdr::Writer,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::timeout,
};

use super::{
    answer::encode,
    mapping::{Mapping, PROGRAM, Registrations},
    serve::receive,
};

/// Where rpcbind listens on this machine: its local socket.
pub const SOCKET_PATHS: [&str; 2] = ["/run/rpcbind.sock", "/var/run/rpcbind.sock"];
/// Where else it listens.
pub const TCP_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 111);
const VERSION: u32 = 4;
const PROCEDURE_SET: u32 = 1;
const PROCEDURE_UNSET: u32 = 2;
/// How long rpcbind may take for an answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why rpcbind could not be told.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// There is none.
    #[error(
        "no rpcbind answers at /run/rpcbind.sock or 127.0.0.1:111 ({0}): start it, or let the gateway answer \
         in its place (`--portmap serve`), or say that there is none (`--portmap off`)"
    )]
    Absent(io::Error),
    /// It does not answer as it should.
    #[error("rpcbind does not answer as it should: {0}")]
    Broken(#[from] io::Error),
    /// It takes none of our registrations.
    #[error(
        "rpcbind refuses all registrations: run the gateway as root, or stop the NFS server that is registered \
         (`rpcinfo -p` shows it)"
    )]
    Refused,
}

/// What rpcbind has been told.
#[derive(Debug, Default)]
pub struct Registered {
    /// What it has taken.
    pub accepted: Vec<Mapping>,
    /// What it has not.
    pub refused: Vec<Mapping>,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

struct Client {
    stream: Box<dyn Stream>,
    next_xid: u32,
}

impl Client {
    fn new(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), next_xid: 1 }
    }

    async fn connect() -> Result<Self, RegisterError> {
        for path in SOCKET_PATHS {
            if let Ok(stream) = UnixStream::connect(Path::new(path)).await {
                return Ok(Self::new(stream));
            }
        }
        let connected = timeout(PATIENCE, TcpStream::connect(TCP_ADDRESS)).await;
        let stream = connected.map_err(io::Error::from).and_then(|stream| stream);
        Ok(Self::new(stream.map_err(RegisterError::Absent)?))
    }

    /// SET or UNSET; what rpcbind says to it.
    async fn call(&mut self, procedure: u32, mapping: &Mapping) -> io::Result<bool> {
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        let mut writer = Writer::default();
        for word in [xid, CALL, RPC_VERSION, PROGRAM, VERSION, procedure, 0, 0, 0, 0] {
            writer.u32(word);
        }
        encode(mapping, &mut writer);
        let body = writer.finish().flatten();
        let record = [&FragmentHeader::single(body.len())[..], &body].concat();
        timeout(PATIENCE, self.stream.write_all(&record)).await??;
        let reply = timeout(PATIENCE, receive(&mut self.stream)).await??;
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the reply is no success");
        let mut expected = Vec::new();
        for word in [xid, 1, 0, 0, 0, 0] {
            expected.extend_from_slice(&u32::to_be_bytes(word));
        }
        let (head, result) = reply.split_at_checked(ACCEPTED_BYTES).ok_or_else(invalid)?;
        match result.first_chunk::<4>() {
            Some(word) if head == expected => Ok(*word != [0; 4]),
            _ => Err(invalid()),
        }
    }

    async fn register(
        &mut self,
        registrations: &Registrations,
    ) -> Result<Registered, RegisterError> {
        let mut registered = Registered::default();
        for mapping in registrations.iter() {
            // What a killed predecessor has left; whether there was anything does not matter.
            self.call(PROCEDURE_UNSET, mapping).await?;
            let taken = self.call(PROCEDURE_SET, mapping).await?;
            let list = if taken { &mut registered.accepted } else { &mut registered.refused };
            list.push(*mapping);
        }
        if registered.accepted.is_empty() && !registered.refused.is_empty() {
            return Err(RegisterError::Refused);
        }
        Ok(registered)
    }
}

/// Register everything with the rpcbind of this machine.
///
/// # Errors
/// The text says what to do; serving goes on without.
pub async fn register(registrations: &Registrations) -> Result<Registered, RegisterError> {
    let registered = Client::connect().await?.register(registrations).await?;
    for mapping in &registered.refused {
        let (program, version) = (mapping.program, mapping.version);
        let netid = mapping.netid.name();
        tracing::warn!(program, version, netid, "rpcbind has refused a registration");
    }
    Ok(registered)
}

impl Registered {
    /// Take everything back that rpcbind has taken.
    ///
    /// # Errors
    /// When rpcbind has gone or does not answer.
    pub async fn unregister(self) -> Result<(), RegisterError> {
        if self.accepted.is_empty() {
            return Ok(());
        }
        let mut client = Client::connect().await?;
        for mapping in &self.accepted {
            client.call(PROCEDURE_UNSET, mapping).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rpc_rdma::{
        rpc::{call, reply},
        xdr::Rope,
    };

    use super::*;
    use crate::portmap::Netid;

    /// An rpcbind that takes everything but RDMA, and notes what it was told.
    async fn rpcbind(mut stream: tokio::io::DuplexStream) -> Vec<(u32, u32, u32, String, String)> {
        let mut told = Vec::new();
        while let Ok(message) = receive(&mut stream).await {
            let call = call::decode(Rope::inline(message)).unwrap();
            let mut args = call.args();
            let program = args.u32("program").unwrap();
            let version = args.u32("version").unwrap();
            let mut text =
                || String::from_utf8(args.opaque(128, "text").unwrap().to_vec()).unwrap();
            let (netid, address) = (text(), text());
            assert_eq!(text(), "superuser");
            let mut writer = reply::success(call.header.xid);
            writer.bool(!netid.starts_with("rdma"));
            told.push((call.header.procedure, program, version, netid, address));
            let body = writer.finish().flatten();
            stream.write_all(&FragmentHeader::single(body.len())).await.unwrap();
            stream.write_all(&body).await.unwrap();
        }
        told
    }

    #[tokio::test]
    async fn registers_what_it_can() {
        let (ours, theirs) = tokio::io::duplex(4096);
        let server = tokio::spawn(rpcbind(theirs));
        let tcp = ["0.0.0.0:2049".parse().unwrap()];
        let rdma = ["0.0.0.0:20049".parse().unwrap()];
        let mut client = Client::new(ours);
        let registered = client.register(&Registrations::new(&tcp, &rdma)).await.unwrap();
        assert_eq!((registered.accepted.len(), registered.refused.len()), (3, 3));
        assert!(registered.refused.iter().all(|mapping| mapping.netid == Netid::Rdma));
        drop(client);
        let told = server.await.unwrap();
        let nfs = |procedure| (procedure, 100_003, 3, "tcp".to_owned(), "0.0.0.0.8.1".to_owned());
        assert_eq!(told[..2], [nfs(2), nfs(1)]);
        assert_eq!(told.last().unwrap().4, "0.0.0.0.78.81");
    }

    #[tokio::test]
    async fn refused_altogether() {
        let (ours, theirs) = tokio::io::duplex(4096);
        let server = tokio::spawn(rpcbind(theirs));
        let rdma = ["0.0.0.0:20049".parse().unwrap()];
        let mut client = Client::new(ours);
        let error = client.register(&Registrations::new(&[], &rdma)).await.unwrap_err();
        assert!(matches!(error, RegisterError::Refused));
        drop(client);
        server.await.unwrap();
    }
}
