//! Procedure 15, LINK: another name for an object (RFC 1813 section 3.3.15).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status, name,
    types::{DirectoryName, POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES, WCC_BYTES},
};

/// `LINK3args`.
#[derive(Debug)]
pub struct Args {
    file: RawHandle,
    place: DirectoryName,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + WCC_BYTES;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { file: RawHandle::decode(args)?, place: DirectoryName::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.file
    }

    fn second(&self) -> Option<&RawHandle> {
        Some(&self.place.directory)
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check_new(&self.place.name)?;
        if !scope.capabilities().hard_links {
            return Err(Status::NotSupp);
        }
        Ok(Plan::Ask(Operation::Link {
            object: scope.object,
            directory: scope.second.ok_or(Status::XDev)?,
            name: std::mem::take(&mut self.place.name),
        }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.status(done.status());
        reply.post_op(done.first.after.as_ref());
        reply.wcc(&done.second);
    }
}
