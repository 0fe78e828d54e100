//! Procedure 1, GETATTR: attributes of an object (RFC 1813 section 3.3.1).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{ATTRIBUTES_BYTES, RawHandle, STATUS_BYTES},
};

/// `GETATTR3args`.
#[derive(Debug)]
pub struct Args {
    object: RawHandle,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + ATTRIBUTES_BYTES;

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
        match (done.result, done.first.after) {
            (Ok(_), Some(attributes)) => {
                reply.status(Status::Ok);
                reply.attributes(&attributes);
            }
            (Ok(_), None) => reply.status(Status::ServerFault),
            (Err(status), _) => reply.status(status),
        }
    }
}
