//! The connection manager as safe calls: identifiers are numbers, events are values, every call is one
//! `write` and none waits for the network.
//!
//! The kernel refuses (EACCES) calls from a thread whose credentials have changed since the file was opened,
//! so one thread opens it and makes all calls (a lane may change its file system identity).

#![allow(unsafe_code)]

use std::{
    fs::{File, OpenOptions},
    io,
    mem::size_of,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
};

use bytes::Bytes;

use super::cm_sys::{
    Accept, AddressStorage, Bind, Command, ConnParam, Connect, CreateId, DestroyId, Disconnect,
    Ece, EventResponse, GetEvent, Header, InitQpAttr, KernelQpAttr, Listen, Notify, PORT_SPACE_TCP,
    PRIVATE_DATA_BYTES, QUERY_ADDR, Query, QueryAddrResponse, Reject, ResolveAddr, ResolveRoute,
    SetOption, option,
};
use super::device::DeviceName;

/// Where the kernel offers it.
pub const DEVICE_FILE: &str = "/dev/infiniband/rdma_cm";

const QP_TYPE_RC: u8 = 2;

/// An identifier of the kernel: a listener or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CmId(pub u32);

/// What is told to the peer when a connection is made.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    pub qp_num: u32,
    pub private_data: &'a [u8],
    /// RDMA Reads and atomics that we serve at a time.
    pub responder_resources: u8,
    /// RDMA Reads that we keep under way at a time.
    pub initiator_depth: u8,
    pub retry_count: u8,
    /// How often the peer repeats a Send for which we have no Receive.
    pub rnr_retry_count: u8,
}

/// An event.
#[derive(Debug, Clone)]
pub struct CmEvent {
    /// Number, see [`super::cm_sys::event`].
    pub event: u32,
    /// What it is about; a new identifier for a connection request.
    pub id: CmId,
    pub status: i32,
    pub private_data: Bytes,
    pub initiator_depth: u8,
}

/// Which device and which addresses an identifier has.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// In network order, as libibverbs gives it; 0 while no device is bound.
    pub node_guid: u64,
    /// `None` when the kernel does not tell.
    pub device_index: Option<u32>,
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
}

impl Binding {
    /// Whether it is this device.
    pub fn is_of(&self, device: &DeviceName) -> bool {
        let same = match (self.device_index, device.index) {
            (Some(bound), Some(index)) => bound == index,
            // One of the two is not told: the identifier of the hardware must do.
            _ => true,
        };
        same && self.node_guid == device.guid
    }
}

/// An open connection manager: a channel of events and everything made through it. Closing it destroys all.
#[derive(Debug)]
pub struct ConnectionManager {
    file: File,
}

#[repr(C)]
struct Message<T> {
    header: Header,
    body: T,
}

impl ConnectionManager {
    /// Open it.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(DEVICE_FILE)?;
        Ok(Self { file })
    }

    /// Becomes readable when [`Self::next_event`] has something.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// # Safety
    /// When `bytes_out` is not 0, the response address in `body` must be writable for that many bytes; other
    /// addresses in `body` must be readable as the command demands.
    unsafe fn call<T: Copy>(&self, command: Command, body: T, bytes_out: usize) -> io::Result<()> {
        let header = Header {
            command: command as u32,
            bytes_in: size_of::<T>() as u16,
            bytes_out: bytes_out as u16,
        };
        let message = Message { header, body };
        let bytes = size_of::<Header>() + size_of::<T>();
        // SAFETY: `message` starts with the header, directly followed by the body (both are multiples of 4
        // bytes and the header is 8 bytes long); the caller vouches for the addresses inside.
        let written =
            unsafe { libc::write(self.file.as_raw_fd(), (&raw const message).cast(), bytes) };
        if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// A new identifier.
    pub fn create(&self) -> io::Result<CmId> {
        let mut id = 0_u32;
        // The kernel keeps events of an identifier from its user until it has a mark that is not 0. The
        // events carry the identifier itself, so one mark serves for all.
        let body = CreateId {
            uid: 1,
            response: (&raw mut id) as u64,
            port_space: PORT_SPACE_TCP,
            qp_type: QP_TYPE_RC,
            reserved: [0; 5],
        };
        // SAFETY: the response goes to `id`, which is 4 bytes long and lives through the call.
        unsafe { self.call(Command::CreateId, body, size_of::<u32>())? };
        Ok(CmId(id))
    }

    /// Destroy an identifier; its unread events go with it.
    pub fn destroy(&self, id: CmId) -> io::Result<()> {
        let mut events = 0_u32;
        let body = DestroyId { response: (&raw mut events) as u64, id: id.0, reserved: 0 };
        // SAFETY: the response goes to `events`, which is 4 bytes long and lives through the call.
        unsafe { self.call(Command::DestroyId, body, size_of::<u32>()) }
    }

    fn set_flag(&self, id: CmId, name: u32) -> io::Result<()> {
        let value: libc::c_int = 1;
        let value_bytes = size_of::<libc::c_int>() as u32;
        let value = (&raw const value) as u64;
        let body = SetOption { value, id: id.0, level: option::LEVEL_ID, name, value_bytes };
        // SAFETY: no response; the value is an int that lives through the call.
        unsafe { self.call(Command::SetOption, body, 0) }
    }

    /// Listen on an address. An IPv6 wildcard takes IPv6 only.
    pub fn listen(&self, address: SocketAddr, backlog: u32) -> io::Result<CmId> {
        let id = self.create()?;
        let listen = || {
            self.set_flag(id, option::REUSE_ADDRESS)?;
            if address.is_ipv6() {
                self.set_flag(id, option::ADDRESS_FAMILY_ONLY)?;
            }
            let (storage, address_bytes) = encode_address(address);
            let body = Bind { id: id.0, address_bytes, reserved: 0, address: storage };
            // SAFETY: no response and no address of memory in it.
            unsafe { self.call(Command::Bind, body, 0)? };
            // SAFETY: as above.
            unsafe { self.call(Command::Listen, Listen { id: id.0, backlog }, 0) }
        };
        match listen() {
            Ok(()) => Ok(id),
            Err(error) => {
                // The identifier is of no use; that it cannot be destroyed would change nothing.
                let _ = self.destroy(id);
                Err(error)
            }
        }
    }

    /// Device and addresses of an identifier.
    pub fn binding(&self, id: CmId) -> io::Result<Binding> {
        let mut response = QueryAddrResponse {
            node_guid: 0,
            port: 0,
            reserved: 0,
            pkey: 0,
            source_bytes: 0,
            target_bytes: 0,
            source: AddressStorage([0; 128]),
            target: AddressStorage([0; 128]),
            device_index: u32::MAX,
            reserved1: 0,
        };
        let body = Query { response: (&raw mut response) as u64, id: id.0, option: QUERY_ADDR };
        // SAFETY: the response goes to `response`, which has the size given and lives through the call.
        unsafe { self.call(Command::Query, body, size_of::<QueryAddrResponse>())? };
        Ok(Binding {
            node_guid: response.node_guid,
            device_index: (response.device_index != u32::MAX).then_some(response.device_index),
            local: decode_address(&response.source),
            peer: decode_address(&response.target),
        })
    }

    /// The attributes with which a queue pair goes into `state`.
    pub fn qp_attributes(&self, id: CmId, state: u32) -> io::Result<KernelQpAttr> {
        let mut response = KernelQpAttr::default();
        let body = InitQpAttr { response: (&raw mut response) as u64, id: id.0, qp_state: state };
        // SAFETY: the response goes to `response`, which has the size given and lives through the call.
        unsafe { self.call(Command::InitQpAttr, body, size_of::<KernelQpAttr>())? };
        response.qp_state = state;
        Ok(response)
    }

    /// Answer a connection request, or (with [`Self::establish`]) complete our own.
    pub fn accept(&self, id: CmId, terms: Terms<'_>) -> io::Result<()> {
        self.accept_with(id, conn_param(terms)?)
    }

    /// Complete a connection that we asked for and the peer has accepted.
    pub fn establish(&self, id: CmId) -> io::Result<()> {
        let param = ConnParam { valid: 0, ..conn_param(Terms::EMPTY)? };
        self.accept_with(id, param)
    }

    fn accept_with(&self, id: CmId, param: ConnParam) -> io::Result<()> {
        // From here on the kernel reports events of this identifier (see `create`).
        let body = Accept { uid: 1, param, id: id.0, reserved: 0, ece: Ece::default() };
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::Accept, body, 0) }
    }

    /// Turn a connection request down.
    pub fn reject(&self, id: CmId, private_data: &[u8]) -> io::Result<()> {
        let (data, private_data_len) = private_bytes(private_data)?;
        let body =
            Reject { id: id.0, private_data_len, reason: 0, reserved: [0; 2], private_data: data };
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::Reject, body, 0) }
    }

    /// Hang up.
    pub fn disconnect(&self, id: CmId) -> io::Result<()> {
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::Disconnect, Disconnect { id: id.0 }, 0) }
    }

    /// Tell the manager of an asynchronous event of the queue pair (communication established).
    pub fn notify(&self, id: CmId, event: u32) -> io::Result<()> {
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::Notify, Notify { id: id.0, event }, 0) }
    }

    /// Start to find the device towards `target`; ends with an event.
    pub fn resolve_address(&self, id: CmId, target: SocketAddr, timeout_ms: u32) -> io::Result<()> {
        let (target, target_bytes) = encode_address(target);
        let body = ResolveAddr {
            id: id.0,
            timeout_ms,
            source_bytes: 0,
            target_bytes,
            reserved: 0,
            source: AddressStorage([0; 128]),
            target,
        };
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::ResolveAddr, body, 0) }
    }

    /// Start to find the path; ends with an event.
    pub fn resolve_route(&self, id: CmId, timeout_ms: u32) -> io::Result<()> {
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::ResolveRoute, ResolveRoute { id: id.0, timeout_ms }, 0) }
    }

    /// Ask the peer for a connection; ends with an event.
    pub fn connect(&self, id: CmId, terms: Terms<'_>) -> io::Result<()> {
        let param = conn_param(terms)?;
        let body = Connect { param, id: id.0, reserved: 0, ece: Ece::default() };
        // SAFETY: no response and no address of memory in it.
        unsafe { self.call(Command::Connect, body, 0) }
    }

    /// The next event, or `None` when there is none now.
    pub fn next_event(&self) -> io::Result<Option<CmEvent>> {
        // SAFETY: a structure of plain integers, for which all zeros is a value.
        let mut response: EventResponse = unsafe { std::mem::zeroed() };
        let body = GetEvent { response: (&raw mut response) as u64 };
        // SAFETY: the response goes to `response`, which has the size given and lives through the call.
        match unsafe { self.call(Command::GetEvent, body, size_of::<EventResponse>()) } {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let len = usize::from(response.param.private_data_len);
        let private = response.param.private_data.get(..len).unwrap_or_default();
        Ok(Some(CmEvent {
            event: response.event,
            id: CmId(response.id),
            status: response.status,
            private_data: Bytes::copy_from_slice(private),
            initiator_depth: response.param.initiator_depth,
        }))
    }
}

impl Terms<'_> {
    const EMPTY: Terms<'static> = Terms {
        qp_num: 0,
        private_data: &[],
        responder_resources: 0,
        initiator_depth: 0,
        retry_count: 0,
        rnr_retry_count: 0,
    };
}

fn private_bytes(data: &[u8]) -> io::Result<([u8; PRIVATE_DATA_BYTES], u8)> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "private data is too long");
    let len = u8::try_from(data.len()).map_err(|_| too_long())?;
    let mut bytes = [0; PRIVATE_DATA_BYTES];
    bytes.get_mut(..data.len()).ok_or_else(too_long)?.copy_from_slice(data);
    Ok((bytes, len))
}

fn conn_param(terms: Terms<'_>) -> io::Result<ConnParam> {
    let (private_data, private_data_len) = private_bytes(terms.private_data)?;
    Ok(ConnParam {
        qp_num: terms.qp_num,
        qkey: 0,
        private_data,
        private_data_len,
        srq: 0,
        responder_resources: terms.responder_resources,
        initiator_depth: terms.initiator_depth,
        flow_control: 1,
        retry_count: terms.retry_count,
        rnr_retry_count: terms.rnr_retry_count,
        valid: 1,
    })
}

/// As `struct sockaddr_in` or `sockaddr_in6`, and its length.
fn encode_address(address: SocketAddr) -> (AddressStorage, u16) {
    let mut bytes = [0; 128];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let len = match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            16
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            28
        }
    };
    (AddressStorage(bytes), len)
}

fn decode_address(storage: &AddressStorage) -> Option<SocketAddr> {
    let bytes = &storage.0;
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match family {
        libc::AF_INET => {
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            Some(SocketAddr::new(IpAddr::V4(ip), port))
        }
        libc::AF_INET6 => {
            let octets: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
            let flow = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
            Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(octets), port, flow, scope)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["10.77.0.1:20049", "[fe80::1%3]:1", "[::]:20049"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, len) = encode_address(address);
            assert_eq!(usize::from(len), if address.is_ipv4() { 16 } else { 28 });
            assert_eq!(decode_address(&storage), Some(address));
        }
        assert_eq!(decode_address(&AddressStorage([0; 128])), None);
    }

    #[test]
    fn private_data_is_bounded() {
        assert!(private_bytes(&[0; 256]).is_err());
        let (bytes, len) = private_bytes(&[7; 255]).unwrap();
        assert_eq!((bytes[254], bytes[255], len), (7, 0, 255));
    }
}
