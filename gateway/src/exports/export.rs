//! One export: a directory tree of a backend under a name, with the rules for its use.

use std::sync::Arc;

use backends::{Backend, Identity};
use rpc_rdma::{
    rpc::Credential,
    service::{Peer, Transport},
};

use super::{
    clients::{ClientRules, Rights},
    identity::{Squash, identity_of},
};

/// First port that an unprivileged process may bind on a Unix client.
const UNPRIVILEGED_PORT_MIN: u16 = 1024;
/// Marks file system ids as ours, so that a small export id is no small fsid (0 means "none" to some clients).
const FILE_SYSTEM_ID_BASE: u64 = 0x4151_5544 << 32;

/// What a peer may do with an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExportAccess {
    /// Nothing; the export is not even there for it.
    Denied,
    /// Read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// What the configuration says about an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    /// Number in every file handle: configured, or derived from the path; never 0.
    pub id: u32,
    /// Name under which clients mount it, normalized: `/data`, or `/`.
    pub path: String,
    /// What stands behind it, for people and for the comparison at a reload: `local /srv/data`.
    pub origin: String,
    /// Nobody may write.
    pub read_only: bool,
    /// Whose identity is replaced by the anonymous one.
    pub squash: Squash,
    /// User id of the anonymous.
    pub anonymous_uid: u32,
    /// Group id of the anonymous.
    pub anonymous_gid: u32,
    /// Who may use it.
    pub clients: ClientRules,
    /// TCP peers must use a port below 1024. RDMA has no ports of this kind and is not asked.
    pub require_reserved_port: bool,
}

/// One export.
#[derive(Debug, Clone)]
pub struct Export {
    /// Number in every file handle.
    pub id: u32,
    /// Name under which clients mount it: `/data`, or `/`.
    pub path: String,
    /// What stands behind it: `local /srv/data`.
    pub origin: String,
    /// The storage.
    pub backend: Arc<dyn Backend>,
    /// Nobody may write.
    pub read_only: bool,
    /// Whose identity is replaced by the anonymous one.
    pub squash: Squash,
    /// User id of the anonymous.
    pub anonymous_uid: u32,
    /// Group id of the anonymous.
    pub anonymous_gid: u32,
    /// Who may use it.
    pub clients: ClientRules,
    /// TCP peers must use a port below 1024.
    pub require_reserved_port: bool,
    /// The fsid that clients see: from the configured id, never from a device number.
    pub file_system_id: u64,
}

impl Export {
    /// An export of this storage.
    pub fn new(settings: ExportSettings, backend: Arc<dyn Backend>) -> Self {
        Self {
            id: settings.id,
            path: settings.path,
            origin: settings.origin,
            backend,
            read_only: settings.read_only,
            squash: settings.squash,
            anonymous_uid: settings.anonymous_uid,
            anonymous_gid: settings.anonymous_gid,
            clients: settings.clients,
            require_reserved_port: settings.require_reserved_port,
            file_system_id: FILE_SYSTEM_ID_BASE | u64::from(settings.id),
        }
    }

    /// What `peer` may do. To be asked for every call, not only at MOUNT: a handle is no ticket.
    pub fn access(&self, peer: &Peer) -> ExportAccess {
        let reserved =
            peer.transport == Transport::Rdma || peer.address.port() < UNPRIVILEGED_PORT_MIN;
        if self.require_reserved_port && !reserved {
            return ExportAccess::Denied;
        }
        match self.clients.rights(peer.address.ip()) {
            None => ExportAccess::Denied,
            Some(Rights::ReadWrite) if !self.writable() => ExportAccess::ReadOnly,
            Some(Rights::ReadWrite) => ExportAccess::ReadWrite,
            Some(Rights::ReadOnly) => ExportAccess::ReadOnly,
        }
    }

    /// With which identity a caller's operations are carried out.
    pub fn identity(&self, credential: &Credential) -> Arc<Identity> {
        identity_of(credential, self.squash, self.anonymous_uid, self.anonymous_gid)
    }

    fn writable(&self) -> bool {
        !self.read_only && !self.backend.capabilities().read_only
    }
}

/// An id for an export that has none configured: a function of its path alone, never 0.
pub fn derived_id(path: &str) -> u32 {
    // FNV-1a; written out because the value must never change.
    let hash = path
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{io, net::SocketAddr};

    use backends::{Capabilities, LaneBackend, LaneResources, ObjectHandle, Timestamp};

    use super::*;

    /// A backend of which only the shared half is used.
    #[derive(Debug)]
    pub(crate) struct Unattached {
        pub(crate) read_only: bool,
    }

    impl Backend for Unattached {
        fn capabilities(&self) -> Capabilities {
            Capabilities {
                hard_links: true,
                symlinks: true,
                special_files: true,
                set_times: true,
                unstable_writes: true,
                read_only: self.read_only,
                file_bytes_max: u64::MAX >> 1,
                name_bytes_max: 255,
                links_max: 32_000,
                time_granularity: Timestamp::default(),
            }
        }

        fn root(&self) -> ObjectHandle {
            ObjectHandle::new(b"root").unwrap()
        }

        fn attach(self: Arc<Self>, _lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>> {
            Err(io::Error::other("has no lane half"))
        }
    }

    pub(crate) fn settings(id: u32, path: &str) -> ExportSettings {
        ExportSettings {
            id,
            path: path.to_owned(),
            origin: format!("local /srv{path}"),
            read_only: false,
            squash: Squash::Root,
            anonymous_uid: 65534,
            anonymous_gid: 65534,
            clients: ClientRules::everyone(Rights::ReadWrite),
            require_reserved_port: false,
        }
    }

    fn peer(address: &str, transport: Transport) -> Peer {
        Peer { address: address.parse::<SocketAddr>().unwrap(), transport }
    }

    #[test]
    fn access_is_the_least_of_all_rules() {
        let make = |settings, read_only| Export::new(settings, Arc::new(Unattached { read_only }));
        let tcp = peer("10.0.0.9:700", Transport::Tcp);
        let base = settings(1, "/data");
        assert_eq!(make(base.clone(), false).access(&tcp), ExportAccess::ReadWrite);
        assert_eq!(make(base.clone(), true).access(&tcp), ExportAccess::ReadOnly);
        let read_only = ExportSettings { read_only: true, ..base.clone() };
        assert_eq!(make(read_only, false).access(&tcp), ExportAccess::ReadOnly);
        let clients = ClientRules::everyone(Rights::ReadOnly);
        let rule = ExportSettings { clients, ..base.clone() };
        assert_eq!(make(rule, false).access(&tcp), ExportAccess::ReadOnly);
        let nobody = ExportSettings { clients: ClientRules::default(), ..base };
        assert_eq!(make(nobody, false).access(&tcp), ExportAccess::Denied);
    }

    #[test]
    fn reserved_port_is_asked_of_tcp_only() {
        let settings = ExportSettings { require_reserved_port: true, ..settings(1, "/data") };
        let export = Export::new(settings, Arc::new(Unattached { read_only: false }));
        let access = |address, transport| export.access(&peer(address, transport));
        assert_eq!(access("10.0.0.9:1023", Transport::Tcp), ExportAccess::ReadWrite);
        assert_eq!(access("10.0.0.9:1024", Transport::Tcp), ExportAccess::Denied);
        assert_eq!(access("10.0.0.9:40000", Transport::Rdma), ExportAccess::ReadWrite);
    }

    #[test]
    fn ids_and_file_system_ids_never_change() {
        assert_eq!(derived_id("/data"), 0x49f6_53fe);
        assert_ne!(derived_id("/data"), derived_id("/home"));
        let export = Export::new(settings(7, "/data"), Arc::new(Unattached { read_only: false }));
        assert_eq!(export.file_system_id, 0x4151_5544_0000_0007);
    }
}
