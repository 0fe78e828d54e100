//! External Data Representation (RFC 4506) over ropes: bytes of a message in one piece, with bulk payload
//! beside it instead of inside it.

mod error;
mod reader;
mod rope;
mod writer;

pub use error::WireError;
pub use reader::Reader;
pub use rope::{Piece, Rope};
pub use writer::{Mark, Writer};

/// XDR items are padded to this many bytes (RFC 4506 section 3).
pub const UNIT_BYTES: usize = 4;

/// Zero bytes that follow an opaque of `len` bytes.
pub const fn pad_bytes(len: usize) -> usize {
    (UNIT_BYTES - len % UNIT_BYTES) % UNIT_BYTES
}
