//! Encoding replies (RFC 5531 section 9).

use super::{RPC_VERSION, auth::flavor, call::REPLY};
use crate::xdr::{Rope, Writer};

/// Bytes of an accepted reply before its results: xid, REPLY, MSG_ACCEPTED, empty verifier, status.
pub const ACCEPTED_BYTES: usize = 24;

const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;

/// Why an accepted call was not executed (`accept_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptError {
    /// The program is not served here.
    ProgramUnavailable,
    /// The program is served in these versions only.
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
    /// Something is wrong on our side.
    SystemError,
}

/// Why a call was denied for its credential (`auth_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    /// The credential is malformed (AUTH_BADCRED).
    BadCredential = 1,
    /// The client must begin anew, or the flavor is not accepted (AUTH_REJECTEDCRED).
    RejectedCredential = 2,
    /// The flavor is too weak for this (AUTH_TOOWEAK).
    TooWeak = 5,
}

/// Begin a successful reply: the results follow.
pub fn success(xid: u32) -> Writer {
    accepted(xid, 0, 256)
}

/// An accepted call that was not executed.
pub fn error(xid: u32, error: AcceptError) -> Rope {
    let status = match error {
        AcceptError::ProgramUnavailable => 1,
        AcceptError::ProgramMismatch { .. } => 2,
        AcceptError::ProcedureUnavailable => 3,
        AcceptError::GarbageArguments => 4,
        AcceptError::SystemError => 5,
    };
    let mut writer = accepted(xid, status, 32);
    if let AcceptError::ProgramMismatch { low, high } = error {
        writer.u32(low);
        writer.u32(high);
    }
    writer.finish()
}

/// The caller speaks another RPC version.
pub fn rpc_mismatch(xid: u32) -> Rope {
    denied(xid, 0, &[RPC_VERSION, RPC_VERSION])
}

/// The caller's credential is not accepted.
pub fn auth_error(xid: u32, error: AuthError) -> Rope {
    denied(xid, 1, &[error as u32])
}

fn accepted(xid: u32, status: u32, capacity: usize) -> Writer {
    let mut writer = Writer::with_capacity(capacity);
    for word in [xid, REPLY, MSG_ACCEPTED, flavor::NONE, 0, status] {
        writer.u32(word);
    }
    writer
}

fn denied(xid: u32, reason: u32, words: &[u32]) -> Rope {
    let mut writer = Writer::with_capacity(32);
    for word in [xid, REPLY, MSG_DENIED, reason].into_iter().chain(words.iter().copied()) {
        writer.u32(word);
    }
    writer.finish()
}
