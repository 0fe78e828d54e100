//! Procedure 5, READLINK: target of a symbolic link (RFC 1813 section 3.3.5).
//!
//! The target is raw bytes. It may be placed directly (RFC 8267 section 4); where the client has no room, it
//! must fit into the message.

use backends::{Operation, Outcome};
use rpc_rdma::{
    rpc::reply::ACCEPTED_BYTES,
    xdr::{Reader, WireError, pad_bytes},
};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES},
};

/// `READLINK3args`.
#[derive(Debug)]
pub struct Args {
    symlink: RawHandle,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + 4;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { symlink: RawHandle::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.symlink
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        Ok(Plan::Ask(Operation::ReadLink { object: scope.object }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let after = done.first.after.as_ref();
        let room = reply.scope.budget.bulk_bytes_max(ACCEPTED_BYTES + Self::RESULT_BYTES_MAX);
        match &done.result {
            Ok(Outcome::LinkTarget { target })
                if target.len() + pad_bytes(target.len()) <= room =>
            {
                reply.status(Status::Ok);
                reply.post_op(after);
                reply.writer.payload(target.clone());
            }
            Ok(_) => {
                reply.status(Status::ServerFault);
                reply.post_op(after);
            }
            Err(status) => {
                reply.status(*status);
                reply.post_op(after);
            }
        }
    }
}
