//! Procedure 20, PATHCONF: rules for names and links (RFC 1813 section 3.3.20).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES},
};

/// `PATHCONF3args`.
#[derive(Debug)]
pub struct Args {
    object: RawHandle,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + 6 * 4;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { object: RawHandle::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.object
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
        reply.writer.u32(capabilities.links_max);
        reply.writer.u32(capabilities.name_bytes_max);
        // no_trunc, chown_restricted; case_insensitive, case_preserving.
        for flag in [true, true, false, true] {
            reply.writer.bool(flag);
        }
    }
}
