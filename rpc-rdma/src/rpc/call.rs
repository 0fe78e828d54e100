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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::xdr::Writer;

    fn call(flavor: u32, body: &[u8], verifier: usize) -> Result<Call, Rejected> {
        let mut writer = Writer::default();
        for word in [9, CALL, RPC_VERSION, 100_003, 3, 0, flavor] {
            writer.u32(word);
        }
        writer.opaque(body);
        writer.u32(flavor::NONE);
        writer.opaque(&vec![0; verifier]);
        decode(writer.finish())
    }

    fn auth_sys(name: usize, groups: u32, count: u32) -> Vec<u8> {
        let mut body = Writer::default();
        body.u32(1);
        body.opaque(&vec![b'm'; name]);
        for word in [1000, 100, count].into_iter().chain(0..groups) {
            body.u32(word);
        }
        body.finish().flatten()
    }

    #[test]
    fn what_auth_sys_cannot_be_is_a_bad_credential_and_keeps_the_connection() {
        let good = call(flavor::SYS, &auth_sys(255, 16, 16), 400).unwrap();
        let Credential::Sys(auth) = good.header.credential else { panic!("{good:?}") };
        assert_eq!(auth.groups(), (0..16).collect::<Vec<_>>());
        let mut longer = auth_sys(4, 2, 2);
        longer.extend([0; 4]);
        let bad = [
            auth_sys(4, 17, 17),
            auth_sys(4, 17, u32::MAX),
            auth_sys(4, 1, 2),
            auth_sys(256, 0, 0),
            longer,
            vec![0; 401],
            Vec::new(),
        ];
        for body in bad {
            match call(flavor::SYS, &body, 0) {
                Err(Rejected::Answer(answer)) => {
                    assert_eq!(answer, reply::auth_error(9, AuthError::BadCredential));
                }
                other => panic!("{body:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_verifier_above_its_limit_and_a_body_beyond_the_message_are_no_calls() {
        assert!(matches!(call(flavor::NONE, &[], 401), Err(Rejected::Drop(_))));
        let words = [9, CALL, RPC_VERSION, 100_003, 3, 0, flavor::SYS, u32::MAX];
        for length in [4, 400, 404, u32::MAX] {
            let words = words.into_iter().take(7).chain([length]);
            let message: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
            assert!(decode(Rope::inline(message)).is_err(), "{length}");
        }
    }
}
