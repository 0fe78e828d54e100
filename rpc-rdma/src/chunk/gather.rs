//! Read chunks of a call (RFC 8166 section 3.4.5): which segments form one, and where it belongs.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::{ReadSegment, Segment};
use crate::xdr::{WireError, pad_bytes};

/// The segments of one position, in the order of the list and without empty ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadChunk {
    /// Offset of the data in the whole message.
    pub position: u32,
    /// Bytes of all segments; never 0.
    pub len: usize,
    /// Where the data is.
    pub segments: Vec<Segment>,
}

/// Form the chunks of a read list, in order of position. All of them together hold at most `limit` bytes.
///
/// # Errors
/// When they hold more, or one holds nothing: ERR_CHUNK is due.
pub fn read_chunks(list: &[ReadSegment], limit: usize) -> Result<Vec<ReadChunk>, WireError> {
    let total: u64 = list.iter().map(|r| u64::from(r.segment.length)).sum();
    if total > limit as u64 {
        let found = u32::try_from(total).unwrap_or(u32::MAX);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        return Err(WireError::TooLong { what: "read list", found, limit });
    }
    let mut sorted: Vec<&ReadSegment> = list.iter().collect();
    sorted.sort_by_key(|r| r.position);
    let mut chunks: Vec<ReadChunk> = Vec::new();
    for entry in sorted {
        match chunks.last_mut() {
            Some(chunk) if chunk.position == entry.position => chunk.push(entry.segment),
            _ => {
                let mut chunk =
                    ReadChunk { position: entry.position, len: 0, segments: Vec::new() };
                chunk.push(entry.segment);
                chunks.push(chunk);
            }
        }
    }
    match chunks.iter().find(|chunk| chunk.len == 0) {
        Some(empty) => Err(WireError::Invalid { what: "empty read chunk", found: empty.position }),
        None => Ok(chunks),
    }
}

impl ReadChunk {
    fn push(&mut self, segment: Segment) {
        if segment.length > 0 {
            // The sum of all lengths was checked against the limit of one message.
            self.len += segment.length as usize;
            self.segments.push(segment);
        }
    }
}

/// Where each chunk belongs in a body of `body_bytes` that the chunks were taken out of: the offset in the
/// body at which the chunk was cut. `chunks` are in order of position and without the Position-Zero chunk.
///
/// # Errors
/// When a position lies inside the chunk before it or beyond the end of the body: ERR_CHUNK is due.
pub fn body_offsets(chunks: &[ReadChunk], body_bytes: usize) -> Result<Vec<usize>, WireError> {
    let mut removed = 0_usize;
    let mut previous = 0_usize;
    let mut offsets = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let invalid = WireError::Invalid { what: "read position", found: chunk.position };
        let at = (chunk.position as usize).checked_sub(removed).ok_or(invalid)?;
        if at < previous || at > body_bytes {
            return Err(invalid);
        }
        removed += chunk.len + pad_bytes(chunk.len);
        previous = at;
        offsets.push(at);
    }
    Ok(offsets)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn entry(position: u32, length: u32) -> ReadSegment {
        ReadSegment { position, segment: Segment { handle: 1, length, offset: 0 } }
    }

    #[test]
    fn equal_positions_form_one_chunk_wherever_they_stand() {
        let chunks = read_chunks(&[entry(8, 3), entry(4, 1), entry(8, 5)], 100).unwrap();
        assert_eq!(
            chunks.iter().map(|c| (c.position, c.len)).collect::<Vec<_>>(),
            [(4, 1), (8, 8)]
        );
        let lengths: Vec<u32> = chunks[1].segments.iter().map(|s| s.length).collect();
        assert_eq!(lengths, [3, 5]);
    }

    #[test]
    fn bug_13_read_list_above_the_limit_and_sum_that_wraps_32_bits() {
        assert!(read_chunks(&[entry(4, 60), entry(4, 40)], 100).is_ok());
        assert!(read_chunks(&[entry(4, 60), entry(4, 41)], 100).is_err());
        let wrapping = [entry(4, 0x8000_0000), entry(4, 0x8000_0000), entry(4, 1)];
        assert!(read_chunks(&wrapping, 1 << 20).is_err());
    }

    #[test]
    fn empty_segments_are_left_out_and_empty_chunks_refused() {
        let chunks = read_chunks(&[entry(4, 0), entry(4, 7)], 100).unwrap();
        assert_eq!(chunks[0].segments.len(), 1);
        assert!(read_chunks(&[entry(4, 7), entry(8, 0)], 100).is_err());
    }

    #[test]
    fn bug_17_positions_inside_another_chunk_or_beyond_the_end() {
        let offsets =
            |list: &[ReadSegment], body| body_offsets(&read_chunks(list, 1000).unwrap(), body);
        assert_eq!(offsets(&[entry(92, 6001 % 1000)], 92).unwrap(), [92]);
        assert_eq!(offsets(&[entry(8, 5), entry(20, 4)], 12).unwrap(), [8, 12]);
        // Directly behind the padded first chunk: nothing inline between them.
        assert_eq!(offsets(&[entry(8, 5), entry(16, 4)], 12).unwrap(), [8, 8]);
        assert!(offsets(&[entry(8, 5), entry(12, 4)], 12).is_err());
        assert!(offsets(&[entry(16, 4)], 12).is_err());
        assert!(offsets(&[entry(8, 5), entry(24, 4)], 12).is_err());
        assert!(offsets(&[entry(u32::MAX - 3, 5)], 12).is_err());
    }
}
