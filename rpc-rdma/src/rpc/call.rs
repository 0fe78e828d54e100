//! Decoding a call (RFC 5531 section 9).

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{
    RPC_VERSION,
    auth::{AUTH_BODY_BYTES_MAX, AuthSys, Credential, flavor},
    reply::{self, AuthError},
};
use crate::xdr::{Reader, Rope, WireError, pad_bytes};

/// Direction word of a call.
pub const CALL: u32 = 0;
/// Direction word of a reply.
pub const REPLY: u32 = 1;

/// What a call says before its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    /// Transaction id.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Who asks.
    pub credential: Credential,
}

/// A call as programs see it, whatever transport it came by.
#[derive(Debug, Clone)]
pub struct Call {
    /// What it asks for.
    pub header: CallHeader,
    /// The whole message.
    pub message: Rope,
    /// Where the arguments start in the head of `message`.
    pub args_at: usize,
}

impl Call {
    /// A reader of the arguments.
    pub fn args(&self) -> Reader<'_> {
        Reader::at(&self.message, self.args_at)
    }
}

/// A message that is not a call we can carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// Answer with this and go on.
    Answer(Rope),
    /// Not a call, or not even a header: there is nobody to answer.
    Drop(WireError),
}

impl From<WireError> for Rejected {
    fn from(error: WireError) -> Self {
        Self::Drop(error)
    }
}

/// Decode the header of a call.
///
/// # Errors
/// [`Rejected`] says whether the peer gets an answer: RPC_MISMATCH for another RPC version, AUTH_ERROR for a
/// credential that is unknown or malformed. The connection stays in either case.
pub fn decode(message: Rope) -> Result<Call, Rejected> {
    let mut reader = Reader::new(&message);
    let xid = reader.u32("xid")?;
    match reader.u32("direction")? {
        CALL => {}
        found => return Err(WireError::Invalid { what: "message direction", found }.into()),
    }
    if reader.u32("RPC version")? != RPC_VERSION {
        return Err(Rejected::Answer(reply::rpc_mismatch(xid)));
    }
    let program = reader.u32("program")?;
    let version = reader.u32("version")?;
    let procedure = reader.u32("procedure")?;
    let credential = match credential(&mut reader)? {
        Ok(credential) => credential,
        Err(error) => return Err(Rejected::Answer(reply::auth_error(xid, error))),
    };
    reader.u32("verifier flavor")?;
    reader.opaque(AUTH_BODY_BYTES_MAX, "verifier")?;
    let args_at = reader.offset();
    let header = CallHeader { xid, program, version, procedure, credential };
    Ok(Call { header, message, args_at })
}

/// The credential, or what is wrong with it.
fn credential(reader: &mut Reader<'_>) -> Result<Result<Credential, AuthError>, WireError> {
    let flavor = reader.u32("credential flavor")?;
    let len = reader.length(u32::MAX, "credential")?;
    if len > AUTH_BODY_BYTES_MAX as usize {
        return Ok(Err(AuthError::BadCredential));
    }
    let end = reader.offset() + len + pad_bytes(len);
    let mut body = reader.clone();
    reader.skip(len + pad_bytes(len), "credential")?;
    Ok(match flavor {
        flavor::NONE => Ok(Credential::None),
        flavor::SYS => match AuthSys::decode(&mut body) {
            Ok(auth) if body.offset() == end => Ok(Credential::Sys(auth)),
            _ => Err(AuthError::BadCredential),
        },
        flavor::SHORT => Err(AuthError::RejectedCredential),
        flavor::GSS | flavor::TLS => Err(AuthError::RejectedCredential),
        _ => Err(AuthError::BadCredential),
    })
}
