//! The kernel's interface to its RDMA connection manager: `/dev/infiniband/rdma_cm`, ABI version 4
//! (`include/uapi/rdma/rdma_user_cm.h`), and the queue pair attributes that it hands out
//! (`include/uapi/rdma/ib_user_verbs.h`). Only layouts and numbers; [`super::cm`] makes calls of them.
//!
//! Why the kernel's interface and not librdmacm: that library opens every device for itself and keeps it open
//! as long as the process lives. A driver that cannot take a device away from its users (soft-RoCE, siw)
//! then blocks the removal of the device for ever, the library refuses to start on a machine that has no
//! device yet, and its identifiers are raw pointers with a life of their own. The kernel's interface has
//! plain numbers, has been stable since 2006, and needs no further library.

/// Longest private data in either direction, in bytes.
pub const PRIVATE_DATA_BYTES: usize = 256;

/// Port space of reliable connections addressed by IP and port.
pub const PORT_SPACE_TCP: u16 = 0x0106;

/// Commands, in the kernel's numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    CreateId = 0,
    DestroyId = 1,
    ResolveRoute = 4,
    Connect = 6,
    Listen = 7,
    Accept = 8,
    Reject = 9,
    Disconnect = 10,
    InitQpAttr = 11,
    GetEvent = 12,
    SetOption = 14,
    Notify = 15,
    Query = 19,
    Bind = 20,
    ResolveAddr = 21,
}

/// Event numbers.
pub mod event {
    pub const ADDR_RESOLVED: u32 = 0;
    pub const ROUTE_RESOLVED: u32 = 2;
    pub const CONNECT_REQUEST: u32 = 4;
    pub const CONNECT_RESPONSE: u32 = 5;
    pub const CONNECT_ERROR: u32 = 6;
    pub const UNREACHABLE: u32 = 7;
    pub const REJECTED: u32 = 8;
    pub const ESTABLISHED: u32 = 9;
    pub const DISCONNECTED: u32 = 10;
    pub const DEVICE_REMOVAL: u32 = 11;
    pub const ADDR_CHANGE: u32 = 14;
    pub const TIMEWAIT_EXIT: u32 = 15;
}

/// Level and names of the options that are used.
pub mod option {
    pub const LEVEL_ID: u32 = 0;
    pub const REUSE_ADDRESS: u32 = 1;
    pub const ADDRESS_FAMILY_ONLY: u32 = 2;
}

/// `option` of [`Query`]: addresses and device.
pub const QUERY_ADDR: u32 = 0;

/// Stands before every command.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Header {
    pub command: u32,
    pub bytes_in: u16,
    pub bytes_out: u16,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CreateId {
    pub uid: u64,
    pub response: u64,
    pub port_space: u16,
    pub qp_type: u8,
    pub reserved: [u8; 5],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DestroyId {
    pub response: u64,
    pub id: u32,
    pub reserved: u32,
}

/// Room for an address of any family.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub struct AddressStorage(pub [u8; 128]);

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Bind {
    pub id: u32,
    pub address_bytes: u16,
    pub reserved: u16,
    pub address: AddressStorage,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ResolveAddr {
    pub id: u32,
    pub timeout_ms: u32,
    pub source_bytes: u16,
    pub target_bytes: u16,
    pub reserved: u32,
    pub source: AddressStorage,
    pub target: AddressStorage,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ResolveRoute {
    pub id: u32,
    pub timeout_ms: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Query {
    pub response: u64,
    pub id: u32,
    pub option: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct QueryAddrResponse {
    pub node_guid: u64,
    pub port: u8,
    pub reserved: u8,
    pub pkey: u16,
    pub source_bytes: u16,
    pub target_bytes: u16,
    pub source: AddressStorage,
    pub target: AddressStorage,
    pub device_index: u32,
    pub reserved1: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConnParam {
    pub qp_num: u32,
    pub qkey: u32,
    pub private_data: [u8; PRIVATE_DATA_BYTES],
    pub private_data_len: u8,
    pub srq: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub valid: u8,
}

/// Vendor options of a connection; never used here, always zero.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Ece {
    pub vendor_id: u32,
    pub attr_mod: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Connect {
    pub param: ConnParam,
    pub id: u32,
    pub reserved: u32,
    pub ece: Ece,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Accept {
    pub uid: u64,
    pub param: ConnParam,
    pub id: u32,
    pub reserved: u32,
    pub ece: Ece,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Listen {
    pub id: u32,
    pub backlog: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Reject {
    pub id: u32,
    pub private_data_len: u8,
    pub reason: u8,
    pub reserved: [u8; 2],
    pub private_data: [u8; PRIVATE_DATA_BYTES],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Disconnect {
    pub id: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct InitQpAttr {
    pub response: u64,
    pub id: u32,
    pub qp_state: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Notify {
    pub id: u32,
    pub event: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct GetEvent {
    pub response: u64,
}

/// An event. The parameters of datagram events, which never occur here, are longer: hence `rest`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct EventResponse {
    pub uid: u64,
    pub id: u32,
    pub event: u32,
    pub status: i32,
    pub param: ConnParam,
    pub rest: [u8; 32],
    pub reserved: u32,
    pub ece: Ece,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SetOption {
    pub value: u64,
    pub id: u32,
    pub level: u32,
    pub name: u32,
    pub value_bytes: u32,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct KernelAh {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
    pub reserved1: u8,
}

/// Attributes that bring a queue pair into a state (`struct ib_uverbs_qp_attr`).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct KernelQpAttr {
    pub mask: u32,
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub ah: KernelAh,
    pub alt_ah: KernelAh,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 5],
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn layouts_are_the_kernels() {
        assert_eq!(size_of::<Header>(), 8);
        assert_eq!(size_of::<CreateId>(), 24);
        assert_eq!(size_of::<DestroyId>(), 16);
        assert_eq!(size_of::<Bind>(), 136);
        assert_eq!(size_of::<ResolveAddr>(), 272);
        assert_eq!(size_of::<ResolveRoute>(), 8);
        assert_eq!(size_of::<Query>(), 16);
        assert_eq!(size_of::<QueryAddrResponse>(), 280);
        assert_eq!(offset_of!(QueryAddrResponse, device_index), 272);
        assert_eq!(size_of::<ConnParam>(), 272);
        assert_eq!(size_of::<Connect>(), 288);
        assert_eq!(size_of::<Accept>(), 296);
        assert_eq!(size_of::<Listen>(), 8);
        assert_eq!(size_of::<Reject>(), 264);
        assert_eq!(size_of::<InitQpAttr>(), 16);
        assert_eq!(size_of::<EventResponse>(), 336);
        assert_eq!(offset_of!(EventResponse, param), 20);
        assert_eq!(offset_of!(EventResponse, ece), 328);
        assert_eq!(size_of::<SetOption>(), 24);
        assert_eq!(size_of::<KernelAh>(), 32);
        assert_eq!(size_of::<KernelQpAttr>(), 144);
        assert_eq!(offset_of!(KernelQpAttr, ah), 40);
        assert_eq!(offset_of!(KernelQpAttr, pkey_index), 124);
        assert_eq!(offset_of!(KernelQpAttr, alt_timeout), 138);
    }
}
