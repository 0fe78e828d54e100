//! What a responder sends back: a message header, or RDMA_ERROR (RFC 8166 sections 4.4.4 and 4.5).

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::call::{self, Header, HeaderFault, RDMA_ERROR, VERSION};
use crate::xdr::{Reader, Rope, WireError};

/// Bytes of an ERR_VERS message.
pub const VERSION_ERROR_BYTES: usize = 28;
/// Bytes of an ERR_CHUNK message.
pub const CHUNK_ERROR_BYTES: usize = 20;

const ERR_VERS: u32 = 1;
const ERR_CHUNK: u32 = 2;

/// Append an ERR_VERS: the caller's version is not spoken here, only ours is.
pub fn encode_version_error(out: &mut Vec<u8>, xid: u32, version: u32, credits: u32) {
    for word in [xid, version, credits, RDMA_ERROR, ERR_VERS, VERSION, VERSION] {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// Append an ERR_CHUNK: the call could not be taken apart, or its reply did not fit.
pub fn encode_chunk_error(out: &mut Vec<u8>, xid: u32, credits: u32) {
    for word in [xid, VERSION, credits, RDMA_ERROR, ERR_CHUNK] {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// Header of a reply, as a requester sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A reply, inline or in the Reply chunk.
    Message(Header),
    /// ERR_VERS with the range of versions that the responder speaks.
    VersionError {
        /// Of the call.
        xid: u32,
        /// Credits granted.
        credits: u32,
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// ERR_CHUNK.
    ChunkError {
        /// Of the call.
        xid: u32,
        /// Credits granted.
        credits: u32,
    },
}

/// Decode the header of a reply. Returns its length with it.
///
/// # Errors
/// When it is none; the message is to be dropped.
pub fn decode_reply(message: &Rope) -> Result<(ReplyHeader, usize), WireError> {
    let mut reader = Reader::new(message);
    let [xid, _, credits, procedure] = call::fixed(&mut reader)?;
    if procedure != RDMA_ERROR {
        return match call::decode(message) {
            Ok((header, len)) => Ok((ReplyHeader::Message(header), len)),
            Err(HeaderFault::Drop(error) | HeaderFault::Chunk { error, .. }) => Err(error),
            Err(HeaderFault::Version { version, .. }) => {
                Err(WireError::Invalid { what: "rdma_vers", found: version })
            }
        };
    }
    let header = match reader.u32("rdma_err")? {
        ERR_VERS => {
            let low = reader.u32("lowest version")?;
            let high = reader.u32("highest version")?;
            ReplyHeader::VersionError { xid, credits, low, high }
        }
        ERR_CHUNK => ReplyHeader::ChunkError { xid, credits },
        found => return Err(WireError::Invalid { what: "rdma_err", found }),
    };
    Ok((header, reader.offset()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        chunk::{ChunkLists, Segment, WriteChunk},
        header::Procedure,
    };

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn error_messages_are_byte_exact() {
        let mut out = Vec::new();
        encode_chunk_error(&mut out, 0x7700_0001, 128);
        assert_eq!(out, bytes(&[0x7700_0001, 1, 0x80, 4, 2]));
        assert_eq!(out.len(), CHUNK_ERROR_BYTES);
        let (got, _) = decode_reply(&Rope::inline(out)).unwrap();
        assert_eq!(got, ReplyHeader::ChunkError { xid: 0x7700_0001, credits: 128 });

        let mut out = Vec::new();
        encode_version_error(&mut out, 0x7700_0001, 2, 128);
        assert_eq!(out, bytes(&[0x7700_0001, 2, 0x80, 4, 1, 1, 1]));
        assert_eq!(out.len(), VERSION_ERROR_BYTES);
        let (got, _) = decode_reply(&Rope::inline(out)).unwrap();
        let expected =
            ReplyHeader::VersionError { xid: 0x7700_0001, credits: 128, low: 1, high: 1 };
        assert_eq!(got, expected);
    }

    #[test]
    fn read_reply_with_used_lengths_is_byte_exact() {
        let segments = vec![
            Segment { handle: 0x12301, length: 8192, offset: 0x5a01_c0de_1000_0000 },
            Segment { handle: 0x12402, length: 3, offset: 0x5a01_c0de_2000_0000 },
        ];
        let header = Header {
            xid: 0x5a01_c0de,
            credits: 128,
            procedure: Procedure::Message,
            lists: ChunkLists { write: vec![WriteChunk { segments }], ..ChunkLists::default() },
        };
        let mut out = Vec::new();
        header.encode(&mut out);
        #[rustfmt::skip]
        let expected = bytes(&[
            0x5a01_c0de, 1, 0x80, 0,
            0, 1, 2,
            0x0001_2301, 0x2000, 0x5a01_c0de, 0x1000_0000,
            0x0001_2402, 3, 0x5a01_c0de, 0x2000_0000,
            0, 0,
        ]);
        assert_eq!(out, expected);
        let (got, len) = decode_reply(&Rope::inline(out)).unwrap();
        assert_eq!((got, len), (ReplyHeader::Message(header), 0x44));
    }
}
