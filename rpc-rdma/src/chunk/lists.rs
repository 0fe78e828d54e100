//! The three chunk lists of a transport header (RFC 8166 section 4.3): read list, write list, Reply chunk.
//!
//! Counts are checked against their limits before anything is allocated or multiplied.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{
    CHUNK_SEGMENTS_MAX, READ_SEGMENTS_MAX, ReadSegment, Segment, WRITE_CHUNKS_MAX,
    segment::{READ_ENTRY_BYTES, SEGMENT_BYTES},
};
use crate::xdr::{Reader, WireError};

/// A Write chunk or a Reply chunk: memory that the responder fills in the order of the segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteChunk {
    /// The segments. None at all asks for the result inline (an empty chunk).
    pub segments: Vec<Segment>,
}

impl WriteChunk {
    /// Bytes that it holds.
    pub fn capacity(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.length)).sum()
    }

    /// Bytes that it holds when it may take at most `requests` RDMA Writes of one source.
    pub fn capacity_within(&self, requests: usize) -> u64 {
        let usable = self.segments.iter().filter(|s| s.length > 0).take(requests);
        usable.map(|s| u64::from(s.length)).sum()
    }

    /// The same chunk as returned when nothing was written.
    pub fn unused(&self) -> Self {
        let empty = |s: &Segment| Segment { length: 0, ..*s };
        Self { segments: self.segments.iter().map(empty).collect() }
    }

    /// Bytes on the wire behind the discriminator.
    fn encoded_bytes(&self) -> usize {
        4 + self.segments.len() * SEGMENT_BYTES
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let count = reader.count(CHUNK_SEGMENTS_MAX, SEGMENT_BYTES, "segment count")?;
        let segments = (0..count).map(|_| Segment::decode(reader)).collect::<Result<_, _>>()?;
        Ok(Self { segments })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        word(out, self.segments.len() as u32);
        self.segments.iter().for_each(|segment| segment.encode(out));
    }
}

/// All chunks of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkLists {
    /// Segments of the read list in the order of the list.
    pub read: Vec<ReadSegment>,
    /// The Write chunks.
    pub write: Vec<WriteChunk>,
    /// The Reply chunk.
    pub reply: Option<WriteChunk>,
}

impl ChunkLists {
    /// Read the lists; the reader then stands at the first byte of the RPC message.
    ///
    /// # Errors
    /// When they run past the end, exceed a limit, or a discriminator is neither 0 nor 1. ERR_CHUNK is due.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut lists = Self::default();
        while reader.bool("read list discriminator")? {
            if lists.read.len() >= READ_SEGMENTS_MAX as usize {
                return Err(over("read segments", lists.read.len(), READ_SEGMENTS_MAX));
            }
            lists.read.push(ReadSegment::decode(reader)?);
        }
        while reader.bool("write list discriminator")? {
            if lists.write.len() >= WRITE_CHUNKS_MAX {
                return Err(over("write chunks", lists.write.len(), WRITE_CHUNKS_MAX as u32));
            }
            lists.write.push(WriteChunk::decode(reader)?);
        }
        if reader.bool("reply chunk discriminator")? {
            lists.reply = Some(WriteChunk::decode(reader)?);
        }
        Ok(lists)
    }

    /// Append the lists to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for entry in &self.read {
            word(out, 1);
            entry.encode(out);
        }
        word(out, 0);
        for chunk in &self.write {
            word(out, 1);
            chunk.encode(out);
        }
        word(out, 0);
        match &self.reply {
            Some(chunk) => {
                word(out, 1);
                chunk.encode(out);
            }
            None => word(out, 0),
        }
    }

    /// Bytes of the lists on the wire.
    pub fn encoded_bytes(&self) -> usize {
        let read = self.read.len() * READ_ENTRY_BYTES;
        let write: usize = self.write.iter().map(|c| 4 + c.encoded_bytes()).sum();
        let reply = self.reply.as_ref().map_or(0, WriteChunk::encoded_bytes);
        12 + read + write + reply
    }

    /// The key that every segment of the message carries, if it is one and not 0: only then may it be
    /// invalidated remotely (a segment may belong to a registration that outlives the call).
    pub fn sole_handle(&self) -> Option<u32> {
        let read = self.read.iter().map(|r| r.segment.handle);
        let written = self.write.iter().chain(&self.reply).flat_map(|c| &c.segments);
        let mut handles = read.chain(written.map(|s| s.handle));
        let first = handles.next().filter(|&handle| handle != 0)?;
        handles.all(|handle| handle == first).then_some(first)
    }
}

fn over(what: &'static str, have: usize, limit: u32) -> WireError {
    WireError::TooLong { what, found: have as u32 + 1, limit }
}

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::xdr::Rope;

    fn words(words: &[u32]) -> Rope {
        Rope::inline(words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>())
    }

    fn decode(list: &[u32]) -> Result<ChunkLists, WireError> {
        ChunkLists::decode(&mut Reader::new(&words(list)))
    }

    #[test]
    fn bug_14_segment_count_that_overflows_when_multiplied() {
        for count in [65, 0x1000_0001, u32::MAX] {
            let error = decode(&[0, 1, count, 1, 1, 1, 1, 0, 0]).unwrap_err();
            assert!(matches!(error, WireError::TooLong { found, .. } if found == count));
            assert!(decode(&[0, 0, 1, count]).is_err());
        }
    }

    #[test]
    fn bug_18_empty_chunks_are_legal_in_write_list_and_reply_chunk() {
        let lists = decode(&[0, 1, 0, 0, 1, 0]).unwrap();
        assert_eq!(lists.write, [WriteChunk::default()]);
        assert_eq!(lists.reply, Some(WriteChunk::default()));
        assert_eq!(lists.sole_handle(), None);
    }

    #[test]
    fn discriminators_are_exactly_zero_or_one() {
        for bad in [2, 0x0100_0000, u32::MAX] {
            assert!(decode(&[bad, 0, 0]).is_err());
            assert!(decode(&[0, bad, 0]).is_err());
            assert!(decode(&[0, 0, bad]).is_err());
        }
    }

    #[test]
    fn list_limits() {
        let read = |n: usize| {
            let mut list: Vec<u32> = (0..n).flat_map(|_| [1, 4, 7, 8, 0, 0]).collect();
            list.extend([0, 0, 0]);
            decode(&list)
        };
        assert_eq!(read(64).unwrap().read.len(), 64);
        assert!(read(65).is_err());
        let write = |n: usize| {
            let mut list = vec![0];
            list.extend((0..n).flat_map(|_| [1, 1, 7, 8, 0, 0]));
            list.extend([0, 0]);
            decode(&list)
        };
        assert_eq!(write(4).unwrap().write.len(), 4);
        assert!(write(5).is_err());
    }

    #[test]
    fn read_position_must_be_a_multiple_of_four() {
        for position in [1, 2, 3, 5] {
            assert!(decode(&[1, position, 7, 8, 0, 0, 0, 0, 0]).is_err());
        }
    }

    #[test]
    fn invalidation_only_with_one_key() {
        let lists = |a: u32, b: u32| ChunkLists {
            read: vec![ReadSegment {
                position: 0,
                segment: Segment { handle: a, length: 1, offset: 0 },
            }],
            write: Vec::new(),
            reply: Some(WriteChunk { segments: vec![Segment { handle: b, length: 0, offset: 0 }] }),
        };
        assert_eq!(lists(5, 5).sole_handle(), Some(5));
        assert_eq!(lists(5, 6).sole_handle(), None);
        assert_eq!(lists(0, 0).sole_handle(), None);
        assert_eq!(ChunkLists::default().sole_handle(), None);
    }
}
