//! Segments (RFC 8166 sections 3.4.2 and 4.1): one registered range of the peer's memory.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::xdr::{Reader, WireError};

/// Bytes of a plain segment on the wire.
pub const SEGMENT_BYTES: usize = 16;
/// Bytes of an entry of the read list: discriminator, position, segment.
pub const READ_ENTRY_BYTES: usize = 24;

/// A plain segment. Everything in it is the peer's word: it only ever names the peer's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Key of the registration (R_key, STag).
    pub handle: u32,
    /// Length in bytes; in a reply the bytes that were written.
    pub length: u32,
    /// Address in the peer's terms.
    pub offset: u64,
}

impl Segment {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let handle = reader.u32("segment handle")?;
        let length = reader.u32("segment length")?;
        let offset = reader.u64("segment offset")?;
        Ok(Self { handle, length, offset })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }
}

/// A segment of the read list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadSegment {
    /// Offset in the whole message at which the data belongs; a multiple of 4.
    pub position: u32,
    /// Where the data is.
    pub segment: Segment,
}

impl ReadSegment {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let position = reader.u32("read position")?;
        if !position.is_multiple_of(4) {
            return Err(WireError::Invalid { what: "read position", found: position });
        }
        Ok(Self { position, segment: Segment::decode(reader)? })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.to_be_bytes());
        self.segment.encode(out);
    }
}
