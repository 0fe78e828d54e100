//! Fetching the Read chunks of a call and putting its message together (RFC 8166 section 3.4.5).
//!
//! The whole message is never rebuilt in one piece: what came inline (or in the Position-Zero Read chunk) is
//! the head of a rope, and every other chunk is a piece at its place.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use buffers::Lease;
use bytes::{Bytes, BytesMut};

use crate::{
    chunk::{ReadChunk, ReadSegment, body_offsets, read_chunks},
    wire::{RdmaRead, RemoteMemory},
    xdr::{Piece, Rope, WireError},
};

/// A call that is being put together.
#[derive(Debug)]
pub(super) struct Gather {
    inline: Bytes,
    position_zero: bool,
    offsets: Vec<usize>,
    chunks: Vec<ReadChunk>,
    data: Vec<Bytes>,
    sink: Option<Lease>,
    segments_read: usize,
    sink_filled: usize,
    reads_posted: usize,
}

/// What comes after a batch of RDMA Reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More segments of the same chunk.
    Read,
    /// Another chunk: it needs a buffer.
    Sink,
    /// All is here.
    Complete,
}

impl Gather {
    /// Begin with what came inline. All limits and positions are checked here, before anything is allocated
    /// or fetched.
    ///
    /// # Errors
    /// When the chunks are too large or do not fit together: ERR_CHUNK is due.
    pub fn new(inline: Bytes, list: &[ReadSegment], bytes_max: usize) -> Result<Self, WireError> {
        let chunks = read_chunks(list, bytes_max)?;
        let (position_zero, body_bytes, rest) = match chunks.split_first() {
            Some((first, rest)) if first.position == 0 => (true, first.len + inline.len(), rest),
            _ => (false, inline.len(), chunks.as_slice()),
        };
        let offsets = body_offsets(rest, body_bytes)?;
        Ok(Self {
            inline,
            position_zero,
            offsets,
            chunks,
            data: Vec::new(),
            sink: None,
            segments_read: 0,
            sink_filled: 0,
            reads_posted: 0,
        })
    }

    /// Bytes that all chunks take.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len).sum()
    }

    fn current(&self) -> Option<&ReadChunk> {
        self.chunks.get(self.data.len())
    }

    /// Size of the buffer that the next chunk needs.
    pub fn sink_bytes(&self) -> usize {
        self.current().map_or(0, |chunk| chunk.len)
    }

    /// The buffer for the next chunk.
    pub fn give(&mut self, sink: Lease) {
        debug_assert!(self.sink.is_none() && sink.capacity() >= self.sink_bytes());
        self.sink = Some(sink);
        self.segments_read = 0;
        self.sink_filled = 0;
    }

    /// RDMA Reads of the last batch, now done.
    pub fn reads_posted(&self) -> usize {
        self.reads_posted
    }

    /// The next batch of at most `max` RDMA Reads, with the buffer that they fill.
    pub fn batch(&mut self, max: usize) -> Option<(Lease, Vec<RdmaRead>)> {
        let sink = self.sink.take()?;
        let chunk = self.chunks.get(self.data.len())?;
        let next = chunk.segments.iter().skip(self.segments_read).take(max);
        let mut filled = self.sink_filled;
        let reads: Vec<RdmaRead> = next
            .map(|segment| {
                let len = segment.length as usize;
                let remote = RemoteMemory { rkey: segment.handle, address: segment.offset };
                let read = RdmaRead { sink_offset: filled, len, remote };
                filled += len;
                read
            })
            .collect();
        self.sink_filled = filled;
        self.segments_read += reads.len();
        self.reads_posted = reads.len();
        Some((sink, reads))
    }

    /// The last batch is done.
    pub fn fetched(&mut self, sink: Lease) -> Progress {
        let Some(chunk) = self.current() else { return Progress::Complete };
        if self.segments_read < chunk.segments.len() {
            self.sink = Some(sink);
            return Progress::Read;
        }
        let len = chunk.len.min(sink.capacity());
        self.data.push(sink.freeze(0, len));
        if self.data.len() < self.chunks.len() { Progress::Sink } else { Progress::Complete }
    }

    /// The message, when all is here.
    pub fn assemble(self) -> Rope {
        let mut data = self.data.into_iter();
        let head = match data.next() {
            Some(zero) if self.position_zero && self.inline.is_empty() => zero,
            Some(zero) if self.position_zero => {
                let mut joined = BytesMut::with_capacity(zero.len() + self.inline.len());
                joined.extend_from_slice(&zero);
                joined.extend_from_slice(&self.inline);
                joined.freeze()
            }
            Some(first) => {
                let all = std::iter::once(first).chain(data);
                return Rope { head: self.inline, pieces: pieces(&self.offsets, all) };
            }
            None => self.inline,
        };
        Rope { head, pieces: pieces(&self.offsets, data) }
    }
}

fn pieces(offsets: &[usize], data: impl Iterator<Item = Bytes>) -> Vec<Piece> {
    offsets.iter().zip(data).map(|(&at, data)| Piece { at, data }).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use buffers::Pool;

    use super::*;
    use crate::chunk::Segment;

    fn entry(position: u32, length: u32, offset: u64) -> ReadSegment {
        ReadSegment { position, segment: Segment { handle: 7, length, offset } }
    }

    /// Run it over a peer whose byte at address `a` is `a as u8`.
    fn run(inline: &'static [u8], list: &[ReadSegment], depth: usize) -> Rope {
        let pool = Pool::standalone(8 << 20);
        let mut gather = Gather::new(Bytes::from_static(inline), list, 1 << 20).unwrap();
        gather.give(pool.take(gather.sink_bytes()).unwrap());
        loop {
            let (mut sink, reads) = gather.batch(depth).unwrap();
            assert!(!reads.is_empty() && reads.len() <= depth);
            for read in reads {
                for i in 0..read.len {
                    sink[read.sink_offset + i] = (read.remote.address + i as u64) as u8;
                }
            }
            match gather.fetched(sink) {
                Progress::Read => {}
                Progress::Sink => gather.give(pool.take(gather.sink_bytes()).unwrap()),
                Progress::Complete => return gather.assemble(),
            }
        }
    }

    #[test]
    fn bug_15_two_chunks_with_inline_text_between_and_after() {
        for depth in [1, 2, 16] {
            let list = [entry(4, 3, 0x10), entry(4, 2, 0x20), entry(16, 4, 0x30)];
            let rope = run(b"aaaabbbbcccc", &list, depth);
            let expected = b"aaaa\x10\x11\x12\x20\x21\0\0\0bbbb\x30\x31\x32\x33cccc";
            // 4 + 5 + 3 (padding) = 12, then "bbbb" up to 16.
            assert_eq!(rope.flatten(), expected);
        }
    }

    #[test]
    fn bug_17_position_zero_chunk_with_another_chunk() {
        let rope = run(b"", &[entry(8, 2, 0x80), entry(0, 12, 0x40)], 4);
        let expected = b"\x40\x41\x42\x43\x44\x45\x46\x47\x80\x81\0\0\x48\x49\x4a\x4b";
        assert_eq!(rope.flatten(), expected);
        assert_eq!(rope.pieces[0].at, 8);
    }

    #[test]
    fn position_zero_chunk_before_inline_bytes() {
        let rope = run(b"tail", &[entry(0, 4, 0x41)], 4);
        assert_eq!(rope.flatten(), b"ABCDtail");
    }

    #[test]
    fn bug_16_a_large_inline_remainder_after_the_chunk() {
        const INLINE: &[u8] = &[9; 4000];
        let rope = run(INLINE, &[entry(8, 1, 0x50)], 4);
        assert_eq!(rope.len(), 4004);
        assert_eq!(rope.flatten()[8..12], [0x50, 0, 0, 0]);
    }

    #[test]
    fn refuses_before_fetching() {
        let inline = Bytes::from_static(b"12345678");
        assert!(Gather::new(inline.clone(), &[entry(12, 4, 0)], 1 << 20).is_err());
        assert!(Gather::new(inline.clone(), &[entry(4, 0, 0)], 1 << 20).is_err());
        assert!(Gather::new(inline, &[entry(4, (1 << 20) + 1, 0)], 1 << 20).is_err());
    }
}
