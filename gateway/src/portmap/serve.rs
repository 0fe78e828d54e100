//! The sockets of our own port mapper: TCP and UDP, few and short-lived connections.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use rpc_rdma::rpc::record::{FragmentHeader, MARK_BYTES};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};

use super::{
    answer::{Via, answer},
    mapping::{Netid, Registrations},
};

/// Longest call, in bytes.
const CALL_BYTES_MAX: usize = 2048;
/// Most connections at a time; the next waits in the listener's queue.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(30);
/// Pause after a failed accept, which is a shortage of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answer as rpcbind at `address`, until the future is dropped.
///
/// # Errors
/// When the address cannot be bound: another rpcbind is there, or the port needs a privilege.
pub async fn serve(address: SocketAddr, registrations: Arc<Registrations>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let socket = UdpSocket::bind(listener.local_addr()?).await?;
    tracing::info!(%address, "port mapper is ready");
    tokio::join!(streams(listener, Arc::clone(&registrations)), datagrams(socket, registrations));
    Ok(())
}

async fn streams(listener: TcpListener, registrations: Arc<Registrations>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropped with this future, which ends the connections.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let registrations = Arc::clone(&registrations);
                connections.spawn(async move {
                    if let Err(error) = connection(stream, &registrations).await {
                        tracing::debug!(%error, "port mapper connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "port mapper cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(mut stream: TcpStream, registrations: &Registrations) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?.ip().to_canonical();
    let netid = if local.is_ipv4() { Netid::Tcp } else { Netid::Tcp6 };
    let via = Via { netid, local: Some(local) };
    loop {
        let message = timeout(IDLE, receive(&mut stream)).await??;
        let Some(reply) = answer(message, via, registrations) else { return Ok(()) };
        let body = reply.flatten();
        let record = [&FragmentHeader::single(body.len())[..], &body].concat();
        timeout(IDLE, stream.write_all(&record)).await??;
    }
}

/// One record; calls are short, so what comes in more than a few fragments is no call.
pub(super) async fn receive(stream: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    const FRAGMENTS_MAX: usize = 8;
    let mut message = Vec::new();
    for _ in 0..FRAGMENTS_MAX {
        let mut mark = [0; MARK_BYTES];
        stream.read_exact(&mut mark).await?;
        let header = FragmentHeader::decode(mark);
        if header.len > CALL_BYTES_MAX - message.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record is too long"));
        }
        let start = message.len();
        message.resize(start + header.len, 0);
        stream.read_exact(&mut message[start..]).await?;
        if header.last {
            return Ok(message);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the record has too many fragments"))
}

async fn datagrams(socket: UdpSocket, registrations: Arc<Registrations>) {
    let is_ipv4 = socket.local_addr().is_ok_and(|address| address.is_ipv4());
    let via = Via { netid: if is_ipv4 { Netid::Udp } else { Netid::Udp6 }, local: None };
    let mut buffer = vec![0; CALL_BYTES_MAX];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((len, from)) => {
                let message = buffer.get(..len).unwrap_or(&[]).to_vec();
                if let Some(reply) = answer(message, via, &registrations) {
                    // A client asks again when a datagram gets lost.
                    let _ = socket.send_to(&reply.flatten(), from).await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "port mapper cannot receive");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn getport() -> Vec<u8> {
        let words: [u32; 14] = [8, 0, 2, 100_000, 2, 3, 0, 0, 0, 0, 100_003, 3, 6, 0];
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[tokio::test]
    async fn both_transports() {
        let address = {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            free.local_addr().unwrap()
        };
        let tcp = ["0.0.0.0:2049".parse().unwrap()];
        let registrations = Arc::new(Registrations::new(&tcp, &[]));
        let server = tokio::spawn(serve(address, registrations));
        let mut stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) if !server.is_finished() => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        // In two fragments.
        let call = getport();
        let (first, second) = call.split_at(20);
        let mut bytes = 20_u32.to_be_bytes().to_vec();
        bytes.extend_from_slice(first);
        bytes.extend_from_slice(&FragmentHeader::single(second.len()));
        bytes.extend_from_slice(second);
        stream.write_all(&bytes).await.unwrap();
        let reply = receive(&mut stream).await.unwrap();
        assert_eq!(reply[24..], 2049_u32.to_be_bytes());

        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(&call, address).await.unwrap();
        let mut buffer = [0; 100];
        let len = timeout(Duration::from_secs(5), socket.recv(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(buffer[..len], reply);
        server.abort();
    }

    #[tokio::test]
    async fn a_record_that_is_too_long_is_refused() {
        let bytes = FragmentHeader::single(CALL_BYTES_MAX + 1);
        assert!(receive(&mut &bytes[..]).await.is_err());
        let empty = [0_u8; 4 * 9];
        assert!(receive(&mut &empty[..]).await.is_err());
    }
}
