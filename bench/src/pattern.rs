//! File content that is a function of the file and the offset, so that any range can be made and checked
//! without a copy of the file, whatever was written before and after it.

/// Bytes of one word of the pattern.
const WORD_BYTES: u64 = 8;

fn word(file: u64, index: u64) -> [u8; 8] {
    // splitmix64
    let mut z = (file << 40).wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Fill `out` with what belongs at `offset` of `file`.
pub fn fill(file: u64, offset: u64, out: &mut [u8]) {
    let mut index = offset / WORD_BYTES;
    let mut skip = (offset % WORD_BYTES) as usize;
    let mut rest = out;
    while !rest.is_empty() {
        let bytes = &word(file, index)[skip..];
        let now = bytes.len().min(rest.len());
        let (head, tail) = rest.split_at_mut(now);
        head.copy_from_slice(&bytes[..now]);
        rest = tail;
        skip = 0;
        index += 1;
    }
}

/// Whether `data` is what belongs at `offset` of `file`.
pub fn matches(file: u64, offset: u64, data: &[u8]) -> bool {
    let mut index = offset / WORD_BYTES;
    let mut skip = (offset % WORD_BYTES) as usize;
    let mut rest = data;
    while !rest.is_empty() {
        let bytes = &word(file, index)[skip..];
        let now = bytes.len().min(rest.len());
        if rest[..now] != bytes[..now] {
            return false;
        }
        rest = &rest[now..];
        skip = 0;
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_agrees_with_the_whole() {
        let mut whole = vec![0; 1000];
        fill(3, 0, &mut whole);
        for (offset, len) in [(0, 1000), (1, 7), (8, 8), (13, 200), (999, 1)] {
            let mut part = vec![0; len];
            fill(3, offset, &mut part);
            let at = offset as usize;
            assert_eq!(part, whole[at..at + len]);
            assert!(matches(3, offset, &part));
            part[len - 1] ^= 1;
            assert!(!matches(3, offset, &part));
        }
        assert!(!matches(4, 0, &whole));
    }
}
