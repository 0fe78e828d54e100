//! Header of a message that carries an RPC message (RFC 8166 sections 4.2 and 4.3).
//!
//! The parser goes forward only, takes exactly what the limits of [`crate::chunk`] allow and says where the
//! RPC message starts: the header has no length field, it ends where the parser stops.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{
    chunk::ChunkLists,
    xdr::{Reader, Rope, WireError},
};

/// The only version.
pub const VERSION: u32 = 1;
/// Bytes of the smallest legal header: four words and three absent lists.
pub const HEADER_BYTES_MIN: usize = 28;

const FIXED_BYTES: usize = 16;

pub(super) const RDMA_MSG: u32 = 0;
pub(super) const RDMA_NOMSG: u32 = 1;
pub(super) const RDMA_DONE: u32 = 3;
pub(super) const RDMA_ERROR: u32 = 4;

/// How the RPC message travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Procedure {
    /// RDMA_MSG: behind the header.
    Message,
    /// RDMA_NOMSG: in a Position-Zero Read chunk or in the Reply chunk.
    NoMessage,
}

/// A header with everything in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Transaction id, that of the RPC message.
    pub xid: u32,
    /// Credits: asked for in a call, granted in a reply.
    pub credits: u32,
    /// How the RPC message travels.
    pub procedure: Procedure,
    /// The chunks.
    pub lists: ChunkLists,
}

impl Header {
    /// Append the header to `out`; an RDMA_MSG continues with the RPC message.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let procedure = match self.procedure {
            Procedure::Message => RDMA_MSG,
            Procedure::NoMessage => RDMA_NOMSG,
        };
        for word in [self.xid, VERSION, self.credits, procedure] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        self.lists.encode(out);
    }

    /// Bytes of the header on the wire.
    pub fn encoded_bytes(&self) -> usize {
        FIXED_BYTES + self.lists.encoded_bytes()
    }
}

/// A message whose header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Too short to trust its xid, or a procedure that gets no answer: drop it.
    #[error("message without an answer: {0}")]
    Drop(WireError),
    /// Another version: answer ERR_VERS.
    #[error("version {version} of RPC-over-RDMA in call {xid:#010x}")]
    Version {
        /// Of the call.
        xid: u32,
        /// What the peer speaks.
        version: u32,
    },
    /// The chunk lists or the procedure are not what the protocol allows: answer ERR_CHUNK.
    #[error("header of call {xid:#010x}: {error}")]
    Chunk {
        /// Of the call.
        xid: u32,
        /// What is wrong.
        error: WireError,
    },
}

/// Decode the header of a call (or of a reply to our own call). Returns its length with it.
///
/// # Errors
/// [`HeaderFault`] says what the peer gets for it.
pub fn decode(message: &Rope) -> Result<(Header, usize), HeaderFault> {
    if message.head.len() < HEADER_BYTES_MIN {
        return Err(HeaderFault::Drop(WireError::Short("transport header")));
    }
    let mut reader = Reader::new(message);
    let [xid, version, credits, procedure] = fixed(&mut reader).map_err(HeaderFault::Drop)?;
    if version != VERSION {
        return Err(HeaderFault::Version { xid, version });
    }
    let invalid = WireError::Invalid { what: "procedure", found: procedure };
    let procedure = match procedure {
        RDMA_MSG => Procedure::Message,
        RDMA_NOMSG => Procedure::NoMessage,
        RDMA_DONE | RDMA_ERROR => return Err(HeaderFault::Drop(invalid)),
        _ => return Err(HeaderFault::Chunk { xid, error: invalid }),
    };
    let lists =
        ChunkLists::decode(&mut reader).map_err(|error| HeaderFault::Chunk { xid, error })?;
    Ok((Header { xid, credits, procedure, lists }, reader.offset()))
}

/// The four words that every version has.
pub(super) fn fixed(reader: &mut Reader<'_>) -> Result<[u32; 4], WireError> {
    Ok([
        reader.u32("rdma_xid")?,
        reader.u32("rdma_vers")?,
        reader.u32("rdma_credit")?,
        reader.u32("rdma_proc")?,
    ])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::{ReadSegment, Segment, WriteChunk};

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    fn segment(handle: u32, length: u32, offset: u64) -> Segment {
        Segment { handle, length, offset }
    }

    #[rustfmt::skip]
    const READ_CALL_HEADER: [u32; 17] = [
        0x5a01_c0de, 1, 0x80, 0,
        0,
        1, 2,
        0x0001_2301, 0x2000, 0x5a01_c0de, 0x1000_0000,
        0x0001_2402, 0x0710, 0x5a01_c0de, 0x2000_0000,
        0,
        0,
    ];

    #[test]
    fn read_call_with_a_two_segment_write_chunk() {
        let mut wire = bytes(&READ_CALL_HEADER);
        wire.extend([0xee; 84]);
        let (header, len) = decode(&Rope::inline(wire)).unwrap();
        assert_eq!(len, 68);
        assert_eq!((header.xid, header.credits), (0x5a01_c0de, 128));
        assert_eq!(header.procedure, Procedure::Message);
        let chunk = WriteChunk {
            segments: vec![
                segment(0x12301, 8192, 0x5a01_c0de_1000_0000),
                segment(0x12402, 1808, 0x5a01_c0de_2000_0000),
            ],
        };
        assert_eq!(chunk.capacity(), 10000);
        assert_eq!(header.lists, ChunkLists { write: vec![chunk], ..ChunkLists::default() });
        let mut out = Vec::new();
        header.encode(&mut out);
        assert_eq!(out, bytes(&READ_CALL_HEADER));
        assert_eq!(out.len(), header.encoded_bytes());
    }

    #[test]
    fn write_call_with_a_read_chunk() {
        #[rustfmt::skip]
        let mut wire = bytes(&[
            0x7700_0001, 1, 0x80, 0,
            1, 0x5c, 0x0004_5603, 0x1771, 0x7700_0001, 0x00ab_c010,
            0, 0, 0,
        ]);
        wire.extend([0xee; 92]);
        let (header, len) = decode(&Rope::inline(wire.clone())).unwrap();
        assert_eq!(len, 0x34);
        assert_eq!(wire.len() - len, 92);
        let read =
            ReadSegment { position: 92, segment: segment(0x45603, 6001, 0x7700_0001_00ab_c010) };
        assert_eq!(header.lists, ChunkLists { read: vec![read], ..ChunkLists::default() });
    }

    #[test]
    fn bug_1_reply_chunk_has_no_terminator() {
        let mut wire = bytes(&[9, 1, 32, 0, 0, 0, 1, 1, 0xaa, 4240, 0, 64]);
        wire.extend(bytes(&[9, 0]));
        let (header, len) = decode(&Rope::inline(wire)).unwrap();
        assert_eq!(len, 48);
        assert_eq!(header.lists.reply.unwrap().capacity(), 4240);
    }

    #[test]
    fn short_messages_and_dead_procedures_are_dropped() {
        for len in 0..HEADER_BYTES_MIN {
            let fault = decode(&Rope::inline(vec![0; len])).unwrap_err();
            assert!(matches!(fault, HeaderFault::Drop(_)));
        }
        for procedure in [3, 4] {
            let fault = decode(&Rope::inline(bytes(&[9, 1, 1, procedure, 0, 0, 0]))).unwrap_err();
            assert!(matches!(fault, HeaderFault::Drop(_)));
        }
    }

    #[test]
    fn wrong_version_and_unknown_procedures_are_answered() {
        let fault = decode(&Rope::inline(bytes(&[9, 2, 1, 0, 0, 0, 0]))).unwrap_err();
        assert_eq!(fault, HeaderFault::Version { xid: 9, version: 2 });
        for procedure in [2, 5, u32::MAX] {
            let fault = decode(&Rope::inline(bytes(&[9, 1, 1, procedure, 0, 0, 0]))).unwrap_err();
            assert!(matches!(fault, HeaderFault::Chunk { xid: 9, .. }));
        }
    }

    #[test]
    fn every_truncation_of_a_header_is_refused() {
        let wire = bytes(&READ_CALL_HEADER);
        for len in 0..wire.len() {
            assert!(decode(&Rope::inline(wire[..len].to_vec())).is_err(), "{len} bytes");
        }
    }

    fn any_segment() -> impl Strategy<Value = Segment> {
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(h, l, o)| segment(h, l, o))
    }

    fn any_chunk() -> impl Strategy<Value = WriteChunk> {
        proptest::collection::vec(any_segment(), 0..20).prop_map(|segments| WriteChunk { segments })
    }

    fn any_header() -> impl Strategy<Value = Header> {
        let read = (0_u32..1 << 29, any_segment())
            .prop_map(|(p, segment)| ReadSegment { position: p * 4, segment });
        (
            any::<u32>(),
            any::<u32>(),
            any::<bool>(),
            proptest::collection::vec(read, 0..=64),
            proptest::collection::vec(any_chunk(), 0..=4),
            proptest::option::of(any_chunk()),
        )
            .prop_map(|(xid, credits, inline, read, write, reply)| Header {
                xid,
                credits,
                procedure: if inline { Procedure::Message } else { Procedure::NoMessage },
                lists: ChunkLists { read, write, reply },
            })
    }

    proptest! {
        #[test]
        fn round_trip(header in any_header(), body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut wire = Vec::new();
            header.encode(&mut wire);
            let header_bytes = wire.len();
            prop_assert_eq!(header_bytes, header.encoded_bytes());
            wire.extend(&body);
            let (decoded, len) = decode(&Rope::inline(wire)).unwrap();
            prop_assert_eq!(len, header_bytes);
            prop_assert_eq!(decoded, header);
        }

        #[test]
        fn hostile_bytes_never_panic_and_stay_within_the_limits(
            mut wire in proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..700),
            plausible in any::<bool>(),
        ) {
            if plausible && wire.len() >= 16 {
                wire[4..8].copy_from_slice(&1_u32.to_be_bytes());
                wire[12..16].copy_from_slice(&0_u32.to_be_bytes());
            }
            let len = wire.len();
            if let Ok((header, at)) = decode(&Rope::inline(wire)) {
                prop_assert!(at <= len && at >= HEADER_BYTES_MIN);
                prop_assert!(header.lists.read.len() <= 64);
                prop_assert!(header.lists.write.len() <= 4);
                let all = header.lists.write.iter().chain(&header.lists.reply);
                prop_assert!(all.into_iter().all(|c| c.segments.len() <= 64));
            }
        }

        #[test]
        fn flipped_words_never_panic(header in any_header(), at in any::<prop::sample::Index>(), word in any::<u32>()) {
            let mut wire = Vec::new();
            header.encode(&mut wire);
            let at = at.index(wire.len() / 4) * 4;
            wire[at..at + 4].copy_from_slice(&word.to_be_bytes());
            let _ = decode(&Rope::inline(wire));
        }
    }
}
