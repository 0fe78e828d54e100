//! A message with its bulk data beside it.

use buffers::Payload;
use bytes::Bytes;

use super::pad_bytes;

/// Bulk data of a message. Its XDR padding is implied and stands in neither `data` nor the head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the head at which the data belongs (just behind its length word).
    pub at: usize,
    /// The data without padding.
    pub data: Payload,
}

/// One XDR message: `head` with every piece inserted (and padded) at its place. Pieces are in order of `at`.
///
/// A call has a piece for each Read chunk, or for payload that TCP received straight into a pool buffer. A
/// reply has one for each result that may be placed directly (RFC 8267); the transport decides how it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rope {
    /// The message without its bulk data.
    pub head: Bytes,
    /// The bulk data.
    pub pieces: Vec<Piece>,
}

impl Rope {
    /// A message without bulk data beside it.
    pub fn inline(head: impl Into<Bytes>) -> Self {
        Self { head: head.into(), pieces: Vec::new() }
    }

    /// Length of the whole message in bytes, padding included.
    pub fn len(&self) -> usize {
        let bulk: usize = self.pieces.iter().map(|p| p.data.len() + pad_bytes(p.data.len())).sum();
        self.head.len() + bulk
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of bulk data, without padding.
    pub fn bulk_bytes(&self) -> usize {
        self.pieces.iter().map(|p| p.data.len()).sum()
    }

    /// The parts in wire order: what a stream sends.
    pub fn parts(&self) -> Vec<Payload> {
        const ZEROS: &[u8] = &[0; 3];
        let mut parts = Vec::with_capacity(2 * self.pieces.len() + 2);
        let mut done = 0;
        for piece in &self.pieces {
            let at = piece.at.clamp(done, self.head.len());
            parts.push(self.head.slice(done..at).into());
            parts.push(piece.data.clone());
            parts.push(Bytes::from_static(&ZEROS[..pad_bytes(piece.data.len())]).into());
            done = at;
        }
        parts.push(self.head.slice(done..).into());
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// The message in one piece; copies everything. For tests, and only without pages of the page cache.
    pub fn flatten(&self) -> Vec<u8> {
        self.parts().iter().filter_map(Payload::bytes).flatten().copied().collect()
    }
}

impl From<Vec<u8>> for Rope {
    fn from(head: Vec<u8>) -> Self {
        Self::inline(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flattens_with_padding_in_place() {
        let rope = Rope {
            head: Bytes::from_static(b"aaaabbbb"),
            pieces: vec![Piece { at: 4, data: Bytes::from_static(b"12345").into() }],
        };
        assert_eq!(rope.flatten(), b"aaaa12345\0\0\0bbbb");
        assert_eq!(rope.len(), 16);
        assert_eq!(rope.bulk_bytes(), 5);
    }
}
