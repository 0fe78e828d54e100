//! RPC over a byte stream (RFC 5531 section 11), without the sockets.

mod assembler;
mod outbound;

pub use assembler::{Assembler, AssemblerLimits, Next, RecordError, Space};
pub use outbound::{Front, Outbound, SLICES_MAX};
