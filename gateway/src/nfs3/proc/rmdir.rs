//! Procedure 13, RMDIR: remove an empty directory (RFC 1813 section 3.3.13).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status, name,
    types::{DirectoryName, RawHandle, STATUS_BYTES, WCC_BYTES},
};

/// `RMDIR3args`.
#[derive(Debug)]
pub struct Args {
    what: DirectoryName,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + WCC_BYTES;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { what: DirectoryName::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.what.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check_removal(&self.what.name)?;
        let name = std::mem::take(&mut self.what.name);
        Ok(Plan::Ask(Operation::RemoveDirectory { directory: scope.object, name }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.status(done.status());
        reply.wcc(&done.first);
    }
}
