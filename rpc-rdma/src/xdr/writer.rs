//! Encoding into a rope.

use buffers::Payload;

use super::{Piece, Rope, pad_bytes};

/// A place in a message to which a writer can go back: to fill in a count, or to take back an item that did
/// not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    offset: usize,
    pieces: usize,
}

/// Writes a message from front to back.
#[derive(Debug, Default)]
pub struct Writer {
    head: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Writer {
    /// An empty message with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { head: Vec::with_capacity(bytes), pieces: Vec::new() }
    }

    /// Bytes of the head so far.
    pub fn len(&self) -> usize {
        self.head.len()
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.pieces.is_empty()
    }

    /// An unsigned integer.
    pub fn u32(&mut self, value: u32) {
        self.head.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self, value: u64) {
        self.head.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Fixed-length opaque data, padded.
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.head.extend_from_slice(bytes);
        self.head.resize(self.head.len() + pad_bytes(bytes.len()), 0);
    }

    /// Variable-length opaque data or string, padded.
    ///
    /// # Panics
    /// When it is longer than 4 GiB, which our own limits exclude.
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).expect("an opaque is shorter than 4 GiB"));
        self.fixed(bytes);
    }

    /// Variable-length opaque data that the transport may place directly (RFC 8267): only the length word
    /// goes into the head.
    ///
    /// # Panics
    /// When it is longer than 4 GiB, which our own limits exclude.
    pub fn payload(&mut self, data: impl Into<Payload>) {
        let data = data.into();
        self.u32(u32::try_from(data.len()).expect("a payload is shorter than 4 GiB"));
        if !data.is_empty() {
            self.pieces.push(Piece { at: self.head.len(), data });
        }
    }

    /// Remember this place.
    pub fn mark(&self) -> Mark {
        Mark { offset: self.head.len(), pieces: self.pieces.len() }
    }

    /// Take back everything written since `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.head.truncate(mark.offset);
        self.pieces.truncate(mark.pieces);
    }

    /// Replace the word at `mark`.
    ///
    /// # Panics
    /// When no word was written there.
    pub fn patch_u32(&mut self, mark: Mark, value: u32) {
        self.head[mark.offset..mark.offset + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// The message.
    pub fn finish(self) -> Rope {
        Rope { head: self.head.into(), pieces: self.pieces }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::xdr::Reader;

    #[test]
    fn round_trip() {
        let mut w = Writer::default();
        w.u32(7);
        w.bool(true);
        w.u64(1 << 40);
        w.opaque(b"abcde");
        w.payload(Bytes::from_static(b"123"));
        w.u32(9);
        let rope = w.finish();
        for rope in [Rope::inline(rope.flatten()), rope] {
            let mut r = Reader::new(&rope);
            assert_eq!(r.u32("a"), Ok(7));
            assert_eq!(r.bool("b"), Ok(true));
            assert_eq!(r.u64("c"), Ok(1 << 40));
            assert_eq!(r.opaque(5, "d"), Ok(&b"abcde"[..]));
            assert_eq!(r.payload(3, "e").unwrap(), &b"123"[..]);
            assert_eq!(r.u32("f"), Ok(9));
            assert!(r.finish().is_ok());
        }
    }

    #[test]
    fn rewind_and_patch() {
        let mut w = Writer::default();
        let count = w.mark();
        w.u32(0);
        let before = w.mark();
        w.payload(Bytes::from_static(b"gone"));
        w.rewind(before);
        w.patch_u32(count, 3);
        assert_eq!(w.finish().flatten(), [0, 0, 0, 3]);
    }
}
