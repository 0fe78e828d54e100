//! Credentials (RFC 5531 section 8.2 and appendix A).

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::xdr::{Reader, WireError};

/// Longest body of a credential or verifier, in bytes (RFC 5531 section 8.2).
pub const AUTH_BODY_BYTES_MAX: u32 = 400;
/// Longest machine name in AUTH_SYS, in bytes.
pub const MACHINE_NAME_BYTES_MAX: u32 = 255;
/// Most supplementary groups in AUTH_SYS.
pub const AUTH_SYS_GROUPS_MAX: u32 = 16;

/// Flavor numbers (RFC 5531 section 8.2, RFC 9289).
pub mod flavor {
    /// No identity.
    pub const NONE: u32 = 0;
    /// Unix ids.
    pub const SYS: u32 = 1;
    /// A shorthand that a server may give out; ours never does.
    pub const SHORT: u32 = 2;
    /// Kerberos and friends.
    pub const GSS: u32 = 6;
    /// Probe for RPC over TLS.
    pub const TLS: u32 = 7;
}

/// Who the caller says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
}

/// Body of an AUTH_SYS credential (RFC 5531 appendix A).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthSys {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    groups: [u32; AUTH_SYS_GROUPS_MAX as usize],
    group_count: u8,
}

impl AuthSys {
    /// A credential of these ids, or `None` when there are more than [`AUTH_SYS_GROUPS_MAX`] groups.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Option<Self> {
        let mut auth = Self { uid, gid, ..Self::default() };
        auth.groups.get_mut(..groups.len())?.copy_from_slice(groups);
        auth.group_count = groups.len() as u8;
        Some(auth)
    }

    /// The supplementary groups.
    pub fn groups(&self) -> &[u32] {
        self.groups.get(..usize::from(self.group_count)).unwrap_or(&[])
    }

    /// Decode the body.
    ///
    /// # Errors
    /// When it is not what appendix A says; the caller answers AUTH_BADCRED.
    pub fn decode(body: &mut Reader<'_>) -> Result<Self, WireError> {
        body.u32("AUTH_SYS stamp")?;
        body.opaque(MACHINE_NAME_BYTES_MAX, "machine name")?;
        let uid = body.u32("uid")?;
        let gid = body.u32("gid")?;
        let count = body.count(AUTH_SYS_GROUPS_MAX, 4, "groups")?;
        let mut auth = Self { uid, gid, ..Self::default() };
        for slot in auth.groups.iter_mut().take(count) {
            *slot = body.u32("group")?;
        }
        auth.group_count = count as u8;
        Ok(auth)
    }
}
