//! Forward-only decoding of a rope.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use bytes::Bytes;

use super::{Piece, Rope, WireError, pad_bytes};

/// Reads a message from front to back. Every length is checked against its limit and against what is left
/// before anything is taken; nothing is allocated.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    head: &'a Bytes,
    offset: usize,
    pieces: &'a [Piece],
}

impl<'a> Reader<'a> {
    /// Read `rope` from its start.
    pub fn new(rope: &'a Rope) -> Self {
        Self { head: &rope.head, offset: 0, pieces: &rope.pieces }
    }

    /// Read `rope` from `offset` bytes into its head; pieces before that count as taken.
    pub fn at(rope: &'a Rope, offset: usize) -> Self {
        let pieces = rope.pieces.get(rope.pieces.partition_point(|p| p.at < offset)..);
        Self {
            head: &rope.head,
            offset: offset.min(rope.head.len()),
            pieces: pieces.unwrap_or(&[]),
        }
    }

    /// Offset in the head of the next item.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes of the head that are left.
    pub fn remaining(&self) -> usize {
        self.head.len() - self.offset
    }

    /// The next `len` bytes of the head.
    fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let end = self.offset.checked_add(len).ok_or(WireError::Short(what))?;
        if len > 0 && self.pieces.first().is_some_and(|piece| piece.at < end) {
            return Err(WireError::Misplaced(what));
        }
        let bytes = self.head.get(self.offset..end).ok_or(WireError::Short(what))?;
        self.offset = end;
        Ok(bytes)
    }

    /// Leave out the next `len` bytes of the head.
    pub fn skip(&mut self, len: usize, what: &'static str) -> Result<(), WireError> {
        self.take(len, what).map(|_| ())
    }

    /// An unsigned integer (RFC 4506 section 4.2).
    pub fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        let bytes = self.take(4, what)?;
        let bytes: [u8; 4] = bytes.try_into().map_err(|_| WireError::Short(what))?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// An unsigned hyper integer (section 4.5).
    pub fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        let bytes = self.take(8, what)?;
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| WireError::Short(what))?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// A boolean (section 4.4): exactly 0 or 1.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.u32(what)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(WireError::Invalid { what, found }),
        }
    }

    /// Fixed-length opaque data (section 4.9), its padding skipped.
    pub fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let bytes = self.take(N, what)?.try_into().map_err(|_| WireError::Short(what))?;
        self.take(pad_bytes(N), what)?;
        Ok(bytes)
    }

    /// Variable-length opaque data or string (sections 4.10, 4.11) of at most `limit` bytes, borrowed.
    pub fn opaque(&mut self, limit: u32, what: &'static str) -> Result<&'a [u8], WireError> {
        let len = self.length(limit, what)?;
        let bytes = self.take(len, what)?;
        self.take(pad_bytes(len), what)?;
        Ok(bytes)
    }

    /// Like [`Self::opaque`], as shared bytes without a copy.
    pub fn shared(&mut self, limit: u32, what: &'static str) -> Result<Bytes, WireError> {
        Ok(self.head.slice_ref(self.opaque(limit, what)?))
    }

    /// Variable-length opaque data that may have travelled as bulk data: the only place at which a piece is
    /// accepted (RFC 8267). A sender may have put the padding into the piece (RFC 8166 section 3.4.5.2).
    pub fn payload(&mut self, limit: u32, what: &'static str) -> Result<Bytes, WireError> {
        let len = self.length(limit, what)?;
        match self.pieces.split_first() {
            Some((piece, rest)) if piece.at == self.offset => {
                let padded = len + pad_bytes(len);
                if piece.data.len() != len && piece.data.len() != padded {
                    return Err(WireError::Misplaced(what));
                }
                self.pieces = rest;
                // Nobody sends us pages.
                let data = piece.data.bytes().ok_or(WireError::Misplaced(what))?;
                Ok(data.slice(..len))
            }
            _ => {
                let bytes = self.take(len, what)?;
                self.take(pad_bytes(len), what)?;
                Ok(self.head.slice_ref(bytes))
            }
        }
    }

    /// A length word, checked against `limit`.
    pub fn length(&mut self, limit: u32, what: &'static str) -> Result<usize, WireError> {
        let found = self.u32(what)?;
        if found > limit {
            return Err(WireError::TooLong { what, found, limit });
        }
        Ok(found as usize)
    }

    /// The count of an array: at most `limit`, and not more than `element_bytes_min` allows for what is left.
    pub fn count(
        &mut self,
        limit: u32,
        element_bytes_min: usize,
        what: &'static str,
    ) -> Result<usize, WireError> {
        let count = self.length(limit, what)?;
        if count.saturating_mul(element_bytes_min) > self.remaining() {
            return Err(WireError::Short(what));
        }
        Ok(count)
    }

    /// End of the arguments: every piece must have been claimed. Bytes left in the head are tolerated, as
    /// every server in the field does.
    pub fn finish(self) -> Result<(), WireError> {
        if self.pieces.is_empty() { Ok(()) } else { Err(WireError::Unclaimed) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rope(head: &'static [u8], pieces: &[(usize, &'static [u8])]) -> Rope {
        Rope {
            head: Bytes::from_static(head),
            pieces: pieces
                .iter()
                .map(|&(at, data)| Piece { at, data: Bytes::from_static(data).into() })
                .collect(),
        }
    }

    #[test]
    fn scalars_and_opaques() {
        let rope = rope(b"\0\0\0\x05\0\0\0\x01\0\0\0\x03abc\0\0\0\0\0\0\0\0\x09", &[]);
        let mut r = Reader::new(&rope);
        assert_eq!(r.u32("n"), Ok(5));
        assert_eq!(r.bool("b"), Ok(true));
        assert_eq!(r.opaque(3, "s"), Ok(&b"abc"[..]));
        assert_eq!(r.u64("h"), Ok(9));
        assert_eq!(r.u32("end"), Err(WireError::Short("end")));
    }

    #[test]
    fn limits_come_before_the_bytes() {
        let rope = rope(b"\xff\xff\xff\xff", &[]);
        let error = Reader::new(&rope).opaque(64, "handle").unwrap_err();
        assert_eq!(error, WireError::TooLong { what: "handle", found: u32::MAX, limit: 64 });
        let error = Reader::new(&rope).count(u32::MAX, 8, "list").unwrap_err();
        assert_eq!(error, WireError::Short("list"));
    }

    #[test]
    fn payload_from_a_piece_with_and_without_padding() {
        for data in [&b"12345"[..], b"12345\0\0\0"] {
            let rope = Rope {
                head: Bytes::from_static(b"\0\0\0\x05\0\0\0\x07"),
                pieces: vec![Piece { at: 4, data: Bytes::copy_from_slice(data).into() }],
            };
            let mut r = Reader::new(&rope);
            assert_eq!(r.payload(10, "data").unwrap(), &b"12345"[..]);
            assert_eq!(r.u32("next"), Ok(7));
            assert!(r.finish().is_ok());
        }
    }

    #[test]
    fn payload_inline() {
        let rope = rope(b"\0\0\0\x05abcde\0\0\0\0\0\0\x07", &[]);
        let mut r = Reader::new(&rope);
        assert_eq!(r.payload(10, "data").unwrap(), &b"abcde"[..]);
        assert_eq!(r.u32("next"), Ok(7));
    }

    #[test]
    fn a_piece_anywhere_else_is_an_error() {
        let misplaced = rope(b"\0\0\0\x05\0\0\0\x07", &[(2, b"xxxx")]);
        assert_eq!(Reader::new(&misplaced).u32("n"), Err(WireError::Misplaced("n")));
        let misplaced = rope(b"\0\0\0\x05\0\0\0\x07", &[(4, b"xxxx")]);
        let mut r = Reader::new(&misplaced);
        assert_eq!(r.u32("n"), Ok(5));
        assert_eq!(r.u32("m"), Err(WireError::Misplaced("m")));
        assert_eq!(r.finish(), Err(WireError::Unclaimed));
        let wrong_length = rope(b"\0\0\0\x05", &[(4, b"xxx")]);
        let got = Reader::new(&wrong_length).payload(10, "data");
        assert_eq!(got, Err(WireError::Misplaced("data")));
    }
}
