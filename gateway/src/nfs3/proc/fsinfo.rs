//! Procedure 19, FSINFO: what the server can do (RFC 1813 section 3.3.19).

use backends::{Capabilities, Timestamp};
use rpc_rdma::xdr::Writer;

use super::capability::{Answer, Asked};
use crate::nfs3::{
    attr,
    types::{LISTING_BYTES_PREFERRED, OFFSET_MAX, TRANSFER_BYTES_MAX},
};

/// Suggested multiple of transfer sizes: a page.
const TRANSFER_MULTIPLE_BYTES: u32 = 4096;

const PROPERTY_LINK: u32 = 0x01;
const PROPERTY_SYMLINK: u32 = 0x02;
const PROPERTY_HOMOGENEOUS: u32 = 0x08;
const PROPERTY_CAN_SET_TIME: u32 = 0x10;

/// `FSINFO3args`.
pub type Args = Asked<FsInfo>;

/// What the server can do.
#[derive(Debug)]
pub enum FsInfo {}

impl Answer for FsInfo {
    const BYTES: usize = 7 * 4 + 8 + 8 + 4;

    fn encode(capabilities: &Capabilities, writer: &mut Writer) {
        for _ in ["read", "write"] {
            writer.u32(TRANSFER_BYTES_MAX);
            writer.u32(TRANSFER_BYTES_MAX);
            writer.u32(TRANSFER_MULTIPLE_BYTES);
        }
        writer.u32(LISTING_BYTES_PREFERRED);
        writer.u64(capabilities.file_bytes_max.min(OFFSET_MAX));
        attr::encode_time(writer, granularity(capabilities.time_granularity));
        writer.u32(properties(capabilities));
    }
}

/// Never zero: clients divide by it.
fn granularity(time: Timestamp) -> Timestamp {
    time.max(Timestamp { seconds: 0, nanos: 1 })
}

fn properties(capabilities: &Capabilities) -> u32 {
    let flags = [
        (capabilities.hard_links, PROPERTY_LINK),
        (capabilities.symlinks, PROPERTY_SYMLINK),
        (true, PROPERTY_HOMOGENEOUS),
        (capabilities.set_times, PROPERTY_CAN_SET_TIME),
    ];
    flags.into_iter().filter(|(has, _)| *has).fold(0, |sum, (_, flag)| sum | flag)
}
