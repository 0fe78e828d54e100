//! Procedure 3, LOOKUP: the object behind a name (RFC 1813 section 3.3.3).
//!
//! "." and ".." are names like others here; the backend keeps ".." of the export's root at the root.

use backends::{Operation, Outcome};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status, name,
    types::{DirectoryName, HANDLE_BYTES, POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES},
};

/// `LOOKUP3args`.
#[derive(Debug)]
pub struct Args {
    what: DirectoryName,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + HANDLE_BYTES + 2 * POST_OP_ATTR_BYTES;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { what: DirectoryName::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.what.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check(&self.what.name)?;
        let name = std::mem::take(&mut self.what.name);
        Ok(Plan::Ask(Operation::Lookup { directory: scope.object, name }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        if let Ok(Outcome::Found { object, attributes }) = &done.result {
            reply.status(Status::Ok);
            reply.handle(object);
            reply.post_op(Some(attributes));
        } else {
            reply.status(done.failure());
        }
        reply.post_op(done.first.after.as_ref());
    }
}
