//! The counter of payload bytes that our code copied with the CPU.
//!
//! The kernel's own copy between page cache and buffer (buffered I/O) and between socket and buffer (TCP) is
//! not ours and is not counted. On RDMA with direct I/O the counter must stand still; tests assert that.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why payload was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The payload did not lie in registered memory and had to be moved there for RDMA.
    Register,
    /// An unaligned edge of a direct write, or a backend without owned buffers.
    Align,
    /// The part of a TCP record that had arrived in the stream buffer before its size was known.
    Stream,
    /// The backend keeps its own copy (memory, adapters).
    Backend,
    /// Small payload placed in the reply message itself (inline RDMA reply).
    Inline,
}

const KINDS: usize = 5;

static COPIED: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

/// Record that `bytes` of payload were copied.
pub fn count(why: Why, bytes: usize) {
    COPIED[why as usize].fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Payload bytes copied for this reason since the process started.
pub fn copied(why: Why) -> u64 {
    COPIED[why as usize].load(Ordering::Relaxed)
}

/// Payload bytes copied for any reason since the process started.
pub fn total() -> u64 {
    COPIED.iter().map(|c| c.load(Ordering::Relaxed)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_reason() {
        let before = copied(Why::Align);
        count(Why::Align, 7);
        assert!(copied(Why::Align) >= before + 7);
        assert!(total() >= 7);
    }
}
