//! Chunks of RPC-over-RDMA (RFC 8166 section 3.4): the peer's memory that parts of a message travel by.

mod gather;
mod lists;
mod segment;

pub use gather::{ReadChunk, body_offsets, read_chunks};
pub use lists::{ChunkLists, WriteChunk};
pub use segment::{ReadSegment, Segment};

/// Most segments of the read list that a message may have.
pub const READ_SEGMENTS_MAX: u32 = 64;
/// Most segments of one Write or Reply chunk (RFC 8267 section 5.4.1 obliges us to take 16).
pub const CHUNK_SEGMENTS_MAX: u32 = 64;
/// Most Write chunks that a message may have.
pub const WRITE_CHUNKS_MAX: usize = 4;
