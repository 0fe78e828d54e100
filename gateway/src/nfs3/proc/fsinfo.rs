//! Procedure 19, FSINFO: what the server can do (RFC 1813 section 3.3.19).

use backends::{Capabilities, Operation, Timestamp};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status, attr,
    types::{
        LISTING_BYTES_PREFERRED, OFFSET_MAX, POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES,
        TRANSFER_BYTES_MAX,
    },
};

/// Suggested multiple of transfer sizes: a page.
const TRANSFER_MULTIPLE_BYTES: u32 = 4096;

const PROPERTY_LINK: u32 = 0x01;
const PROPERTY_SYMLINK: u32 = 0x02;
const PROPERTY_HOMOGENEOUS: u32 = 0x08;
const PROPERTY_CAN_SET_TIME: u32 = 0x10;

/// `FSINFO3args`.
#[derive(Debug)]
pub struct Args {
    root: RawHandle,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + 7 * 4 + 8 + 8 + 4;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { root: RawHandle::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.root
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        Ok(Plan::Ask(Operation::GetAttributes { object: scope.object }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let status = done.status();
        reply.status(status);
        reply.post_op(done.first.after.as_ref());
        if status != Status::Ok {
            return;
        }
        let capabilities = reply.scope.capabilities();
        for _ in ["read", "write"] {
            reply.writer.u32(TRANSFER_BYTES_MAX);
            reply.writer.u32(TRANSFER_BYTES_MAX);
            reply.writer.u32(TRANSFER_MULTIPLE_BYTES);
        }
        reply.writer.u32(LISTING_BYTES_PREFERRED);
        reply.writer.u64(capabilities.file_bytes_max.min(OFFSET_MAX));
        attr::encode_time(reply.writer, granularity(capabilities.time_granularity));
        reply.writer.u32(properties(&capabilities));
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
