//! ONC RPC version 2 (RFC 5531): calls, replies, AUTH_SYS, record marking.

pub mod auth;
pub mod call;
pub mod record;
pub mod reply;

pub use auth::{AuthSys, Credential};
pub use call::{Call, CallHeader, Rejected};
pub use reply::{AcceptError, AuthError};

/// The only RPC version (RFC 5531 section 9).
pub const RPC_VERSION: u32 = 2;
