//! The transport header of RPC-over-RDMA version 1 (RFC 8166 section 4) and its private data (RFC 8797).

mod call;
mod private_data;
mod reply;

pub use call::{HEADER_BYTES_MIN, Header, HeaderFault, Procedure, VERSION, decode};
pub use private_data::{INLINE_BYTES_DEFAULT, INLINE_BYTES_MAX, PRIVATE_DATA_BYTES, PrivateData};
pub use reply::{
    CHUNK_ERROR_BYTES, ReplyHeader, VERSION_ERROR_BYTES, decode_reply, encode_chunk_error,
    encode_version_error,
};
