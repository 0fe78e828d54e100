//! By what a repeated call is recognised.
//!
//! A client that has lost its connection asks again with the same xid on a new one, often from another port
//! and, over RDMA, with other chunk handles. So the key has the client's address without the port, and a
//! digest of the XDR message, never of its framing. The digest tells a repeated call from a new one that
//! happens to have an xid that was used before, and two clients behind one address from each other.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    net::IpAddr,
};

use rpc_rdma::{rpc::Call, service::Peer};

/// Where the credential begins: behind xid, direction, RPC version, program, version and procedure.
const CREDENTIAL_AT: usize = 24;
/// Where the stamp of an AUTH_SYS credential is: a client may choose it anew each time.
const STAMP: std::ops::Range<usize> = 32..36;
/// Bytes of the message that go into the digest: the longest credential and 256 bytes of arguments at least.
const DIGEST_BYTES_MAX: usize = 1024;

/// Names a call, and with very high probability no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    address: IpAddr,
    xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    message_bytes: usize,
    digest: u64,
}

impl Key {
    /// Transaction id.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// A number that spreads keys evenly.
    pub fn spread(&self) -> u64 {
        self.digest
    }
}

/// Makes keys. The hash function has a secret key: nobody can make two calls collide on purpose.
#[derive(Debug, Default)]
pub struct KeyHasher {
    state: RandomState,
}

impl KeyHasher {
    /// The key of a call.
    pub fn key(&self, peer: &Peer, call: &Call) -> Key {
        Key {
            address: peer.address.ip().to_canonical(),
            xid: call.header.xid,
            program: call.header.program,
            version: call.header.version,
            procedure: call.header.procedure,
            message_bytes: call.message.len(),
            digest: self.digest(call),
        }
    }

    fn digest(&self, call: &Call) -> u64 {
        let mut hasher = self.state.build_hasher();
        let mut offset = 0;
        for part in call.message.parts() {
            // Calls have nothing else.
            let buffers::Payload::Bytes(part) = part else { continue };
            // The part as offsets of the whole message, cut to what is wanted, the stamp left out.
            for range in [CREDENTIAL_AT..STAMP.start, STAMP.end..DIGEST_BYTES_MAX] {
                let start = range.start.saturating_sub(offset).min(part.len());
                let end = range.end.saturating_sub(offset).min(part.len());
                hasher.write(part.get(start..end).unwrap_or(&[]));
            }
            offset += part.len();
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rpc_rdma::{
        rpc::call,
        service::Transport,
        xdr::{Piece, Rope, Writer},
    };

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer { address: address.parse().unwrap(), transport: Transport::Tcp }
    }

    fn call(stamp: u32, uid: u32, args: &[u8]) -> Call {
        let mut writer = Writer::default();
        for word in [7, 0, 2, 100_003, 3, 10, 1, 24, stamp, 0, uid, 0, 1, 5, 0, 0] {
            writer.u32(word);
        }
        writer.fixed(args);
        call::decode(writer.finish()).unwrap()
    }

    #[test]
    fn the_port_and_the_stamp_do_not_count() {
        let hasher = KeyHasher::default();
        let first = hasher.key(&peer("10.0.0.1:700"), &call(1, 1000, b"args"));
        assert_eq!(first, hasher.key(&peer("10.0.0.1:701"), &call(2, 1000, b"args")));
        assert_eq!(first, hasher.key(&peer("[::ffff:10.0.0.1]:9"), &call(1, 1000, b"args")));
    }

    #[test]
    fn another_client_user_or_argument_counts() {
        let hasher = KeyHasher::default();
        let key = |address: &str, uid, args: &[u8]| hasher.key(&peer(address), &call(1, uid, args));
        let first = key("10.0.0.1:700", 1000, b"args");
        assert_ne!(first, key("10.0.0.2:700", 1000, b"args"));
        assert_ne!(first, key("10.0.0.1:700", 1001, b"args"));
        assert_ne!(first, key("10.0.0.1:700", 1000, b"argz"));
        assert_ne!(first, key("10.0.0.1:700", 1000, b"args0000"));
    }

    #[test]
    fn replay_over_another_transport_has_the_same_key() {
        // A SYMLINK whose target came in a Read chunk, and the same inline.
        let inline = call(1, 1000, b"\0\0\0\x05abcde\0\0\0");
        let mut head = inline.message.head.to_vec();
        let at = head.len() - 8;
        head.truncate(at);
        let chunked = Rope {
            head: head.into(),
            pieces: vec![Piece { at, data: Bytes::from_static(b"abcde").into() }],
        };
        let chunked = call::decode(chunked).unwrap();
        let hasher = KeyHasher::default();
        let rdma = Peer { transport: Transport::Rdma, ..peer("10.0.0.1:0") };
        assert_eq!(hasher.key(&rdma, &chunked), hasher.key(&peer("10.0.0.1:700"), &inline));
    }
}
