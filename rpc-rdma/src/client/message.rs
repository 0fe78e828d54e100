//! RPC messages from the client's side (RFC 5531 section 9): encoding calls, opening replies.

use crate::{
    rpc::{
        RPC_VERSION,
        auth::{AUTH_BODY_BYTES_MAX, Credential, flavor},
        call::{CALL, REPLY},
    },
    xdr::{Piece, Reader, Rope, WireError, Writer},
};

/// Name in AUTH_SYS credentials; servers ignore it.
const MACHINE_NAME: &[u8] = b"aqueduct";

/// What to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
}

/// The whole call message. Payload of the arguments stays beside it.
pub fn encode_call(xid: u32, procedure: Procedure, credential: &Credential, args: &Rope) -> Rope {
    let mut writer = Writer::with_capacity(128 + args.head.len());
    let Procedure { program, version, procedure } = procedure;
    for word in [xid, CALL, RPC_VERSION, program, version, procedure] {
        writer.u32(word);
    }
    match credential {
        Credential::None => {
            writer.u32(flavor::NONE);
            writer.opaque(&[]);
        }
        Credential::Sys(auth) => {
            let mut body = Writer::with_capacity(64);
            body.u32(0);
            body.opaque(MACHINE_NAME);
            body.u32(auth.uid);
            body.u32(auth.gid);
            body.u32(auth.groups().len() as u32);
            auth.groups().iter().for_each(|&group| body.u32(group));
            writer.u32(flavor::SYS);
            writer.opaque(&body.finish().head);
        }
    }
    writer.u32(flavor::NONE);
    writer.opaque(&[]);
    let before = writer.len();
    writer.fixed(&args.head);
    let pieces = args.pieces.iter().map(|p| Piece { at: before + p.at, data: p.data.clone() });
    Rope { head: writer.finish().head, pieces: pieces.collect() }
}

/// A reply that carries no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RpcFault {
    /// The reply is not one.
    #[error("malformed reply: {0}")]
    Malformed(#[from] WireError),
    /// MSG_DENIED with this reject_stat and its first word (auth_stat, or the lowest RPC version).
    #[error("the server denies the call: reject_stat {status}, {detail}")]
    Denied {
        /// RPC_MISMATCH is 0, AUTH_ERROR is 1.
        status: u32,
        /// auth_stat, or the lowest RPC version.
        detail: u32,
    },
    /// MSG_ACCEPTED with this accept_stat.
    #[error("the server did not execute the call: accept_stat {0}")]
    NotExecuted(u32),
}

/// A reader of the results of a reply.
///
/// # Errors
/// When there are none.
pub fn results(reply: &Rope) -> Result<Reader<'_>, RpcFault> {
    let mut reader = Reader::new(reply);
    reader.u32("xid")?;
    match reader.u32("direction")? {
        REPLY => {}
        found => return Err(WireError::Invalid { what: "message direction", found }.into()),
    }
    if reader.u32("reply_stat")? != 0 {
        let status = reader.u32("reject_stat")?;
        return Err(RpcFault::Denied { status, detail: reader.u32("reason")? });
    }
    reader.u32("verifier flavor")?;
    reader.opaque(AUTH_BODY_BYTES_MAX, "verifier")?;
    match reader.u32("accept_stat")? {
        0 => Ok(reader),
        status => Err(RpcFault::NotExecuted(status)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::rpc::{AcceptError, AuthError, AuthSys, call, reply};

    #[test]
    fn the_server_understands_our_calls() {
        let procedure = Procedure { program: 100_003, version: 3, procedure: 7 };
        let auth = AuthSys::new(1000, 100, &[4, 24]).unwrap();
        for credential in [Credential::None, Credential::Sys(auth)] {
            let mut args = Writer::default();
            args.u32(5);
            args.payload(Bytes::from_static(b"data!"));
            let message = encode_call(9, procedure, &credential, &args.finish());
            let call = call::decode(message).unwrap();
            assert_eq!((call.header.xid, call.header.procedure), (9, 7));
            assert_eq!(call.header.credential, credential);
            let mut args = call.args();
            assert_eq!(args.u32("n"), Ok(5));
            assert_eq!(args.payload(16, "data").unwrap(), &b"data!"[..]);
            args.finish().unwrap();
        }
    }

    #[test]
    fn opens_every_kind_of_reply() {
        let mut success = reply::success(1);
        success.u32(42);
        assert_eq!(results(&success.finish()).unwrap().u32("n"), Ok(42));
        let refused = reply::error(1, AcceptError::ProcedureUnavailable);
        assert_eq!(results(&refused).unwrap_err(), RpcFault::NotExecuted(3));
        let denied = reply::auth_error(1, AuthError::TooWeak);
        assert_eq!(results(&denied).unwrap_err(), RpcFault::Denied { status: 1, detail: 5 });
        let short = Rope::inline(vec![0; 7]);
        assert!(matches!(results(&short), Err(RpcFault::Malformed(_))));
    }
}
