//! RPC-over-RDMA version 1 in the private data of the connection manager (RFC 8797 section 4).

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

/// Bytes of the message.
pub const PRIVATE_DATA_BYTES: usize = 8;
/// Inline threshold of a peer that sends no private data (RFC 8166 section 3.3.2).
pub const INLINE_BYTES_DEFAULT: usize = 1024;
/// Largest inline threshold that the message can express.
pub const INLINE_BYTES_MAX: usize = 256 << 10;

const MAGIC: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
const VERSION: u8 = 1;
const FLAG_INVALIDATE: u8 = 1;
const SIZE_UNIT: usize = 1024;

/// What a peer says about itself when it connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    /// Whether the sender supports remote invalidation (flag R).
    pub invalidate: bool,
    /// Longest Send that the sender will post, in bytes.
    pub send_bytes: usize,
    /// Longest Send that the sender can receive, in bytes.
    pub receive_bytes: usize,
}

impl Default for PrivateData {
    /// What holds for a peer that says nothing.
    fn default() -> Self {
        Self {
            invalidate: false,
            send_bytes: INLINE_BYTES_DEFAULT,
            receive_bytes: INLINE_BYTES_DEFAULT,
        }
    }
}

impl PrivateData {
    /// Find the message in `bytes`: at the start, or behind what a lower layer has put there (MPA, RFC 8797
    /// section 5.2). What cannot be read counts as absent.
    pub fn find(bytes: &[u8]) -> Option<Self> {
        bytes.windows(PRIVATE_DATA_BYTES).find_map(|window| match window {
            [m0, m1, m2, m3, VERSION, flags, send, receive] if [*m0, *m1, *m2, *m3] == MAGIC => {
                Some(Self {
                    invalidate: flags & FLAG_INVALIDATE != 0,
                    send_bytes: size(*send),
                    receive_bytes: size(*receive),
                })
            }
            _ => None,
        })
    }

    /// The message. Sizes are rounded down to what it can express.
    pub fn encode(&self) -> [u8; PRIVATE_DATA_BYTES] {
        let [m0, m1, m2, m3] = MAGIC;
        let flags = if self.invalidate { FLAG_INVALIDATE } else { 0 };
        [m0, m1, m2, m3, VERSION, flags, code(self.send_bytes), code(self.receive_bytes)]
    }
}

fn size(code: u8) -> usize {
    (usize::from(code) + 1) * SIZE_UNIT
}

fn code(bytes: usize) -> u8 {
    (bytes / SIZE_UNIT).saturating_sub(1).min(usize::from(u8::MAX)) as u8
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINUX: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

    #[test]
    fn what_linux_sends() {
        let data = PrivateData { invalidate: true, send_bytes: 4096, receive_bytes: 4096 };
        assert_eq!(PrivateData::find(&LINUX), Some(data));
        assert_eq!(data.encode(), LINUX);
    }

    #[test]
    fn is_found_behind_other_bytes_and_before_padding() {
        let mut bytes = vec![0, 1, 2, 0xf6, 0xab];
        bytes.extend(LINUX);
        bytes.resize(56, 0);
        assert!(PrivateData::find(&bytes).is_some());
        assert_eq!(PrivateData::find(&bytes[..12]), None);
    }

    #[test]
    fn unknown_versions_count_as_absent() {
        let mut bytes = LINUX;
        bytes[4] = 2;
        assert_eq!(PrivateData::find(&bytes), None);
        assert_eq!(PrivateData::find(&[]), None);
    }

    #[test]
    fn size_codes() {
        for (bytes, code) in [(1024, 0), (4096, 3), (65536, 63), (262_144, 255), (0, 0)] {
            let data = PrivateData { invalidate: false, send_bytes: bytes, receive_bytes: bytes };
            assert_eq!(data.encode()[6..], [code, code]);
        }
    }

    proptest! {
        #[test]
        fn round_trip(invalidate: bool, send in 1_usize..=256, receive in 1_usize..=256) {
            let data = PrivateData { invalidate, send_bytes: send * 1024, receive_bytes: receive * 1024 };
            prop_assert_eq!(PrivateData::find(&data.encode()), Some(data));
        }

        #[test]
        fn hostile_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = PrivateData::find(&bytes);
        }
    }
}
