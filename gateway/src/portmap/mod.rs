//! Where clients find the programs (RFC 1833): at the machine's rpcbind, or here.
//!
//! A plain `mount -o vers=3` asks port 111 for the ports of NFS and MOUNT. Either the rpcbind that already
//! runs is told about ours ([`register`]), or, on a machine without one, we answer ([`serve`]). All of this
//! runs on the control plane; calls of the data path never come near it.
//!
//! * [`mapping`]: program, version, transport and address
//! * [`universal`]: addresses as text
//! * [`mod@register`]: telling a running rpcbind
//! * [`answer`]: what we say as rpcbind, from bytes to bytes
//! * [`mod@serve`]: the sockets

pub mod answer;
pub mod mapping;
pub mod register;
pub mod serve;
pub mod universal;

pub use mapping::{Mapping, Netid, Registrations};
pub use register::{RegisterError, Registered, register};
pub use serve::serve;
