//! From a byte stream to records (RFC 5531 section 11).
//!
//! Small records are cut out of the stream buffer without a copy. A record with bulk data (an NFS WRITE) is
//! received straight into a pool buffer, with the data at its start and so page-aligned. Whatever the peer
//! sends, memory is asked for only within the limits, and before a byte of it is received.
//!
//! ```text
//!            mark, whole record here                mark, record continues beyond the buffer
//!   Idle ───────────────────────────▶ record      Idle ──▶ Bulk   (single fragment with bulk data)
//!                                                 Idle ──▶ Gather (large, or several fragments)
//! ```

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use buffers::{
    Lease,
    copies::{self, Why},
};
use bytes::{Buf, BytesMut};

use crate::{
    rpc::record::{FragmentHeader, MARK_BYTES},
    xdr::{Piece, Rope, pad_bytes},
};

/// Bytes that the stream buffer asks for at a time.
pub const STREAM_BYTES: usize = 64 << 10;
/// Records from this size on may have their bulk data received into a pool buffer.
const BULK_RECORD_BYTES_MIN: usize = 32 << 10;
/// The bulk data of any call begins within this many bytes.
const BULK_OFFSET_MAX: usize = 1 << 10;
/// How much is read when the next record probably carries bulk data: enough for its head.
const HEAD_BYTES: usize = 512;
/// Fragments of one record.
const FRAGMENTS_MAX: u32 = 64;

/// What a stream may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssemblerLimits {
    /// Longest bulk data with what follows it, or whole record in several fragments, in bytes; at most the
    /// largest buffer of the pool.
    pub record_bytes_max: usize,
    /// Longest record without bulk data, in bytes.
    pub plain_bytes_max: usize,
}

impl Default for AssemblerLimits {
    fn default() -> Self {
        Self { record_bytes_max: (1 << 20) + (8 << 10), plain_bytes_max: 256 << 10 }
    }
}

/// A stream that cannot go on: where the next record begins is unknown or too far away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record is longer than allowed.
    #[error("a record of {len} bytes exceeds the limit of {limit}")]
    TooLong {
        /// What the peer announced, in bytes.
        len: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A record comes in too many fragments.
    #[error("a record in more than {FRAGMENTS_MAX} fragments")]
    Fragments,
}

/// What the stream has for us.
#[derive(Debug)]
pub enum Next {
    /// A whole record.
    Record(Rope),
    /// More bytes are needed: read into [`Assembler::space`].
    More,
    /// A buffer of so many bytes is needed: get one and [`Assembler::lend`] it.
    Buffer(usize),
}

/// Where the next bytes of the stream go.
#[derive(Debug)]
pub enum Space<'a> {
    /// Append at most so many bytes to the stream buffer.
    Stream(&'a mut BytesMut, usize),
    /// Fill from the front, then say how much with [`Assembler::filled`].
    Buffer(&'a mut [u8]),
}

#[derive(Debug)]
enum State {
    Idle,
    /// Waiting for a buffer for bulk data: head bytes, then `rest` bytes into the buffer.
    BulkWaits {
        offset: usize,
        rest: usize,
    },
    /// Bulk data is arriving.
    Bulk {
        head: BytesMut,
        lease: Lease,
        filled: usize,
        rest: usize,
    },
    /// Waiting for a buffer to gather a record in.
    GatherWaits {
        bytes: usize,
    },
    /// Fragments are arriving; `left` bytes of the present one are missing.
    Gather {
        lease: Lease,
        filled: usize,
        left: usize,
        last: bool,
        fragments: u32,
    },
}

/// Splits one stream into records.
#[derive(Debug)]
pub struct Assembler {
    limits: AssemblerLimits,
    stream: BytesMut,
    state: State,
    /// The last record carried bulk data: read carefully, so that little of the next data must be moved.
    after_bulk: bool,
}

impl Assembler {
    /// At the start of a stream.
    pub fn new(limits: AssemblerLimits) -> Self {
        Self { limits, stream: BytesMut::new(), state: State::Idle, after_bulk: false }
    }

    /// Whether a record has begun and is not complete.
    pub fn is_mid_record(&self) -> bool {
        !matches!(self.state, State::Idle) || !self.stream.is_empty()
    }

    /// The next record, or what is needed for it. `bulk_offset` says where the bulk data of a record begins,
    /// given its first bytes.
    ///
    /// # Errors
    /// When the stream must be closed.
    pub fn next(
        &mut self,
        bulk_offset: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Next, RecordError> {
        loop {
            match &mut self.state {
                State::Idle => match self.begin(&bulk_offset)? {
                    Some(next) => return Ok(next),
                    None => continue,
                },
                State::BulkWaits { rest, .. } => return Ok(Next::Buffer(*rest)),
                State::GatherWaits { bytes } => return Ok(Next::Buffer(*bytes)),
                State::Bulk { filled, rest, .. } => {
                    if filled < rest {
                        return Ok(Next::More);
                    }
                    return Ok(Next::Record(self.finish_bulk()));
                }
                State::Gather { .. } => {
                    if let Some(next) = self.gather()? {
                        return Ok(next);
                    }
                }
            }
        }
    }

    /// The start of a record. `None`: the state has changed, look again.
    fn begin(
        &mut self,
        bulk_offset: &impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Option<Next>, RecordError> {
        let Some(header) = peek_mark(&self.stream) else { return Ok(Some(Next::More)) };
        let body = self.stream.get(MARK_BYTES..).unwrap_or(&[]);
        if header.last && body.len() >= header.len {
            self.stream.advance(MARK_BYTES);
            let record = self.stream.split_to(header.len).freeze();
            self.after_bulk = false;
            return Ok(Some(Next::Record(Rope::inline(record))));
        }
        if !header.last {
            self.check(header.len, self.limits.record_bytes_max)?;
            self.state = State::GatherWaits { bytes: self.limits.record_bytes_max };
            return Ok(None);
        }
        if header.len < BULK_RECORD_BYTES_MIN {
            return Ok(Some(Next::More));
        }
        self.check(header.len, self.limits.record_bytes_max + BULK_OFFSET_MAX)?;
        let start = body.get(..body.len().min(BULK_OFFSET_MAX)).unwrap_or(&[]);
        match bulk_offset(start).filter(|&offset| offset <= start.len() && offset >= 4) {
            Some(offset) => {
                let rest = header.len - offset;
                self.check(rest, self.limits.record_bytes_max)?;
                self.state = State::BulkWaits { offset, rest };
                Ok(None)
            }
            None if start.len() < BULK_OFFSET_MAX => Ok(Some(Next::More)),
            None => {
                self.check(header.len, self.limits.plain_bytes_max)?;
                self.state = State::GatherWaits { bytes: header.len };
                Ok(None)
            }
        }
    }

    fn check(&self, len: usize, limit: usize) -> Result<(), RecordError> {
        if len > limit { Err(RecordError::TooLong { len, limit }) } else { Ok(()) }
    }

    /// Give the buffer that [`Next::Buffer`] asked for.
    pub fn lend(&mut self, mut lease: Lease) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::BulkWaits { offset, rest } => {
                self.stream.advance(MARK_BYTES);
                let head = self.stream.split_to(offset);
                let filled = move_front(&mut self.stream, &mut lease, rest);
                copies::count(Why::Stream, filled);
                self.state = State::Bulk { head, lease, filled, rest };
            }
            State::GatherWaits { .. } => {
                self.state = State::Gather { lease, filled: 0, left: 0, last: false, fragments: 0 };
            }
            other => self.state = other,
        }
    }

    /// Go on with a gathered record. `None`: look again.
    fn gather(&mut self) -> Result<Option<Next>, RecordError> {
        let limit = self.limits.record_bytes_max;
        let State::Gather { lease, filled, left, last, fragments } = &mut self.state else {
            return Ok(None);
        };
        if *left > 0 {
            let room = lease.get_mut(*filled..).unwrap_or(&mut []);
            let moved = move_front(&mut self.stream, room, *left);
            copies::count(Why::Stream, moved);
            *filled += moved;
            *left -= moved;
            if *left > 0 {
                return Ok(Some(Next::More));
            }
        }
        if *last {
            let State::Gather { lease, filled, .. } =
                std::mem::replace(&mut self.state, State::Idle)
            else {
                return Ok(None);
            };
            return Ok(Some(Next::Record(Rope::inline(lease.freeze(0, filled)))));
        }
        let Some(header) = peek_mark(&self.stream) else { return Ok(Some(Next::More)) };
        *fragments += 1;
        if *fragments > FRAGMENTS_MAX {
            return Err(RecordError::Fragments);
        }
        let total = *filled + header.len;
        if total > limit.min(lease.capacity()) {
            return Err(RecordError::TooLong { len: total, limit });
        }
        self.stream.advance(MARK_BYTES);
        *left = header.len;
        *last = header.last;
        Ok(None)
    }

    fn finish_bulk(&mut self) -> Rope {
        self.after_bulk = true;
        let State::Bulk { mut head, lease, rest, .. } =
            std::mem::replace(&mut self.state, State::Idle)
        else {
            return Rope::default();
        };
        let at = head.len();
        let word = head.last_chunk::<4>().map_or(0, |word| u32::from_be_bytes(*word)) as usize;
        // What is said to be data but did not come is left out: the decoder then finds the lengths unequal.
        let len = word.min(rest);
        let after = (len + pad_bytes(len)).min(rest);
        let received = lease.freeze(0, rest);
        head.extend_from_slice(received.get(after..).unwrap_or(&[]));
        let pieces = vec![Piece { at, data: received.slice(..len).into() }];
        Rope { head: head.freeze(), pieces }
    }

    /// Where the next bytes of the stream go.
    pub fn space(&mut self) -> Space<'_> {
        match &mut self.state {
            State::Bulk { lease, filled, rest, .. } if *filled < *rest => {
                Space::Buffer(lease.get_mut(*filled..*rest).unwrap_or(&mut []))
            }
            State::Gather { lease, filled, left, .. } if *left > 0 => {
                Space::Buffer(lease.get_mut(*filled..*filled + *left).unwrap_or(&mut []))
            }
            _ => {
                let limit = if self.after_bulk && self.stream.len() < HEAD_BYTES {
                    HEAD_BYTES - self.stream.len()
                } else {
                    STREAM_BYTES
                };
                if self.stream.capacity() - self.stream.len() < limit.min(STREAM_BYTES / 4) {
                    self.stream.reserve(STREAM_BYTES);
                }
                let room = self.stream.capacity() - self.stream.len();
                Space::Stream(&mut self.stream, limit.min(room))
            }
        }
    }

    /// So many bytes were put into [`Space::Buffer`].
    pub fn filled(&mut self, bytes: usize) {
        match &mut self.state {
            State::Bulk { filled, .. } => *filled += bytes,
            State::Gather { filled, left, .. } => {
                *filled += bytes;
                *left = left.saturating_sub(bytes);
            }
            _ => {}
        }
    }
}

fn peek_mark(stream: &BytesMut) -> Option<FragmentHeader> {
    stream.first_chunk::<MARK_BYTES>().map(|mark| FragmentHeader::decode(*mark))
}

/// Move up to `limit` bytes from the front of the stream; returns how many.
fn move_front(stream: &mut BytesMut, to: &mut [u8], limit: usize) -> usize {
    let bytes = stream.len().min(limit).min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..bytes), stream.get(..bytes)) {
        to.copy_from_slice(from);
    }
    stream.advance(bytes);
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use buffers::Pool;
    use proptest::prelude::*;

    use super::*;

    /// Pretend that bulk data begins behind a 64-byte head whose first word is 7.
    fn offset_of(start: &[u8]) -> Option<usize> {
        (start.len() >= 64 && start[..4] == [0, 0, 0, 7]).then_some(64)
    }

    /// Feed `stream` in pieces of the given sizes; collect the records.
    fn feed(stream: &[u8], sizes: &[usize]) -> Result<Vec<Rope>, RecordError> {
        let pool = Pool::standalone(16 << 20);
        let mut assembler = Assembler::new(AssemblerLimits::default());
        let mut records = Vec::new();
        let mut rest = stream;
        let mut sizes = sizes.iter().copied().cycle();
        loop {
            match assembler.next(offset_of)? {
                Next::Record(record) => records.push(record),
                Next::Buffer(bytes) => assembler.lend(pool.take(bytes).unwrap()),
                Next::More if rest.is_empty() => return Ok(records),
                Next::More => {
                    let size = sizes.next().unwrap().clamp(1, rest.len());
                    let taken = match assembler.space() {
                        Space::Stream(buffer, limit) => {
                            let size = size.min(limit);
                            buffer.extend_from_slice(&rest[..size]);
                            size
                        }
                        Space::Buffer(buffer) => {
                            let size = size.min(buffer.len());
                            buffer[..size].copy_from_slice(&rest[..size]);
                            assembler.filled(size);
                            size
                        }
                    };
                    assert!(taken > 0, "there is always room for the next byte");
                    rest = &rest[taken..];
                }
            }
        }
    }

    fn record(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    }

    fn bulk_record(data: &[u8], tail: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[3] = 7;
        bytes[60..].copy_from_slice(&(data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len() + pad_bytes(data.len()), 0);
        bytes.extend_from_slice(tail);
        bytes
    }

    fn framed(record: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = record;
        for &cut in cuts {
            let (fragment, after) = rest.split_at(cut.min(rest.len()));
            out.extend_from_slice(&(fragment.len() as u32).to_be_bytes());
            out.extend_from_slice(fragment);
            rest = after;
        }
        out.extend_from_slice(&FragmentHeader::single(rest.len()));
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn bulk_data_lands_at_the_start_of_a_buffer() {
        let data = record(100_001, 3);
        let stream = framed(&bulk_record(&data, b"tail"), &[]);
        for sizes in [&[7][..], &[4096], &[1 << 20]] {
            let records = feed(&stream, sizes).unwrap();
            assert_eq!(records.len(), 1);
            let piece = &records[0].pieces[0];
            assert_eq!(piece.at, 64);
            let received = piece.data.bytes().unwrap();
            assert_eq!(received, &data);
            assert_eq!(received.as_ptr() as usize % 4096, 0);
            assert_eq!(records[0].flatten(), bulk_record(&data, b"tail"));
        }
    }

    #[test]
    fn a_record_above_the_limit_ends_the_stream() {
        let error = feed(&FragmentHeader::single(0x7fff_ffff), &[100]).unwrap_err();
        assert!(matches!(error, RecordError::TooLong { .. }));
        let mut plain = FragmentHeader::single(300 << 10).to_vec();
        plain.extend_from_slice(&record(2000, 1));
        assert!(matches!(feed(&plain, &[100]), Err(RecordError::TooLong { .. })));
    }

    #[test]
    fn endless_empty_fragments_end_the_stream() {
        let stream = vec![0; 4 * 100];
        assert_eq!(feed(&stream, &[9]).unwrap_err(), RecordError::Fragments);
    }

    #[test]
    fn a_lying_length_word_does_not_reach_beyond_the_record() {
        let mut bytes = bulk_record(&record(60_000, 1), b"");
        bytes[60..64].copy_from_slice(&u32::MAX.to_be_bytes());
        let records = feed(&framed(&bytes, &[]), &[5000]).unwrap();
        assert_eq!(records[0].pieces[0].data.len(), 60_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_fragmentation_gives_the_same_records(
            lens in prop::collection::vec(0usize..80_000, 1..6),
            cuts in prop::collection::vec(0usize..40_000, 0..5),
            sizes in prop::collection::vec(1usize..70_000, 1..8),
        ) {
            let records: Vec<Vec<u8>> = lens
                .iter()
                .enumerate()
                .map(|(i, &len)| if i % 2 == 0 { record(len, i as u8) } else {
                    bulk_record(&record(len, i as u8), b"")
                })
                .collect();
            let mut stream = Vec::new();
            for (i, bytes) in records.iter().enumerate() {
                stream.extend(framed(bytes, if i % 3 == 2 { &cuts } else { &[] }));
            }
            let got = feed(&stream, &sizes).unwrap();
            prop_assert_eq!(got.len(), records.len());
            for (got, sent) in got.iter().zip(&records) {
                prop_assert!(got.flatten() == *sent);
            }
        }

        #[test]
        fn no_stream_panics(
            stream in prop::collection::vec(any::<u8>(), 0..3000),
            sizes in prop::collection::vec(1usize..100, 1..4),
        ) {
            let _ = feed(&stream, &sizes);
        }
    }
}
