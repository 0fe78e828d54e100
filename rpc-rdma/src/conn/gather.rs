//! Fetching the Read chunks of a call and putting its message together (RFC 8166 section 3.4.5).
//!
//! The whole message is never rebuilt in one piece: what came inline (or in the Position-Zero Read chunk) is
//! the head of a rope, and every other chunk is a piece at its place.
//!
//! All chunks of a call go into one buffer, which the largest class has room for. A call that held one buffer
//! while it waited for the next could wait for ever, for others that do the same.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use buffers::{Lease, pool::ALIGN_BYTES};
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
    chunks: Vec<Place>,
    sink_bytes: usize,
    sink: Option<Lease>,
    reads: Vec<RdmaRead>,
    reads_done: usize,
    reads_posted: usize,
}

/// Where a chunk goes in the buffer.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    len: usize,
}

/// What comes after a batch of RDMA Reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More segments.
    Read,
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
        // Each on a page of its own, as drives want payload, or closer where that is too much.
        let places = place(&chunks, ALIGN_BYTES)
            .filter(|places| end(places) <= bytes_max)
            .or_else(|| place(&chunks, 1))
            .unwrap_or_default();
        let reads = chunks.iter().zip(&places).flat_map(|(chunk, place)| fill(chunk, place.start));
        Ok(Self {
            inline,
            position_zero,
            offsets,
            reads: reads.collect(),
            sink_bytes: end(&places),
            chunks: places,
            sink: None,
            reads_done: 0,
            reads_posted: 0,
        })
    }

    /// Bytes that all chunks take.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len).sum()
    }

    /// Size of the buffer that it needs.
    pub fn sink_bytes(&self) -> usize {
        self.sink_bytes
    }

    /// The buffer.
    pub fn give(&mut self, sink: Lease) {
        debug_assert!(self.sink.is_none() && sink.capacity() >= self.sink_bytes);
        self.sink = Some(sink);
    }

    /// RDMA Reads of the last batch, now done.
    pub fn reads_posted(&self) -> usize {
        self.reads_posted
    }

    /// The next batch of at most `max` RDMA Reads, with the buffer that they fill.
    pub fn batch(&mut self, max: usize) -> Option<(Lease, Vec<RdmaRead>)> {
        let sink = self.sink.take()?;
        let reads: Vec<_> = self.reads.iter().skip(self.reads_done).take(max).copied().collect();
        self.reads_posted = reads.len();
        Some((sink, reads))
    }

    /// The last batch is done.
    pub fn fetched(&mut self, sink: Lease) -> Progress {
        self.sink = Some(sink);
        self.reads_done += self.reads_posted;
        if self.reads_done < self.reads.len() { Progress::Read } else { Progress::Complete }
    }

    /// The message, when all is here.
    pub fn assemble(self) -> Rope {
        let whole = self.sink.map_or_else(Bytes::new, |sink| {
            let len = self.sink_bytes.min(sink.capacity());
            sink.freeze(0, len)
        });
        let cut = |place: &Place| {
            let start = place.start.min(whole.len());
            whole.slice(start..(start + place.len).min(whole.len()))
        };
        let mut data = self.chunks.iter().map(cut);
        let zero = if self.position_zero { data.next() } else { None };
        let head = match zero {
            None => self.inline,
            Some(zero) if self.inline.is_empty() => zero,
            Some(zero) => {
                let mut joined = BytesMut::with_capacity(zero.len() + self.inline.len());
                joined.extend_from_slice(&zero);
                joined.extend_from_slice(&self.inline);
                joined.freeze()
            }
        };
        Rope { head, pieces: pieces(&self.offsets, data) }
    }
}

/// Places one behind the other, each at a multiple of `align`.
fn place(chunks: &[ReadChunk], align: usize) -> Option<Vec<Place>> {
    let mut next = 0_usize;
    let place = |chunk: &ReadChunk| {
        let start = next.checked_next_multiple_of(align)?;
        next = start.checked_add(chunk.len)?;
        Some(Place { start, len: chunk.len })
    };
    chunks.iter().map(place).collect()
}

fn end(places: &[Place]) -> usize {
    places.last().map_or(0, |last| last.start + last.len)
}

/// The RDMA Reads of a chunk that begins at `start`.
fn fill(chunk: &ReadChunk, start: usize) -> impl Iterator<Item = RdmaRead> {
    let mut filled = start;
    chunk.segments.iter().map(move |segment| {
        let len = segment.length as usize;
        let remote = RemoteMemory { rkey: segment.handle, address: segment.offset };
        let read = RdmaRead { sink_offset: filled, len, remote };
        filled += len;
        read
    })
}

fn pieces(offsets: &[usize], data: impl Iterator<Item = Bytes>) -> Vec<Piece> {
    offsets.iter().zip(data).map(|(&at, data)| Piece { at, data: data.into() }).collect()
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
            if gather.fetched(sink) == Progress::Complete {
                return gather.assemble();
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
    fn chunks_are_page_aligned_where_that_fits_the_largest_buffer() {
        let pool = Pool::standalone(8 << 20);
        for (lens, aligned) in
            [([200, 1 << 20], true), ([600_000, 450_000], true), ([9000, 1_047_760], false)]
        {
            let max = crate::conn::CALL_BYTES_MAX;
            let list = [entry(0, lens[0], 0), entry(100, lens[1], 0)];
            let mut gather = Gather::new(Bytes::new(), &list, max).unwrap();
            gather.give(pool.take(gather.sink_bytes()).unwrap());
            let (sink, reads) = gather.batch(9).unwrap();
            assert_eq!(reads.len(), 2);
            assert!(reads[1].sink_offset >= lens[0] as usize);
            assert_eq!(reads[1].sink_offset.is_multiple_of(ALIGN_BYTES), aligned);
            assert_eq!(gather.fetched(sink), Progress::Complete);
            let rope = gather.assemble();
            assert_eq!(
                (rope.head.len(), rope.pieces[0].data.len()),
                (lens[0] as usize, lens[1] as usize)
            );
        }
    }

    #[test]
    fn refuses_before_fetching() {
        let inline = Bytes::from_static(b"12345678");
        assert!(Gather::new(inline.clone(), &[entry(12, 4, 0)], 1 << 20).is_err());
        assert!(Gather::new(inline.clone(), &[entry(4, 0, 0)], 1 << 20).is_err());
        assert!(Gather::new(inline, &[entry(4, (1 << 20) + 1, 0)], 1 << 20).is_err());
    }
}
