//! Record marking of RPC over a byte stream (RFC 5531 section 11).

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

/// Bytes of a fragment header.
pub const MARK_BYTES: usize = 4;

const LAST: u32 = 1 << 31;

/// Header of one fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Whether the record ends with this fragment.
    pub last: bool,
    /// Bytes of the fragment that follow the header.
    pub len: usize,
}

impl FragmentHeader {
    /// Decode the four bytes.
    pub fn decode(bytes: [u8; MARK_BYTES]) -> Self {
        let word = u32::from_be_bytes(bytes);
        Self { last: word & LAST != 0, len: (word & !LAST) as usize }
    }

    /// Encode a record that is sent as one fragment.
    ///
    /// # Panics
    /// When `len` does not fit in 31 bits, which our own limits exclude.
    pub fn single(len: usize) -> [u8; MARK_BYTES] {
        let word = u32::try_from(len).ok().filter(|len| len & LAST == 0);
        (word.expect("a record is shorter than 2 GiB") | LAST).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let header = FragmentHeader::decode(FragmentHeader::single(1234));
        assert_eq!(header, FragmentHeader { last: true, len: 1234 });
        assert!(!FragmentHeader::decode([0, 0, 0, 1]).last);
    }
}
