//! Procedure 12, REMOVE: remove a name that is no directory's (RFC 1813 section 3.3.12).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status, name,
    types::{DirectoryName, RawHandle, STATUS_BYTES, WCC_BYTES},
};

/// `REMOVE3args`.
pub type Args = Removal<false>;

/// Remove a name: a directory's or any other's.
#[derive(Debug)]
pub struct Removal<const DIRECTORY: bool> {
    what: DirectoryName,
}

impl<const DIRECTORY: bool> Procedure for Removal<DIRECTORY> {
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
        let directory = scope.object;
        Ok(Plan::Ask(match DIRECTORY {
            true => Operation::RemoveDirectory { directory, name },
            false => Operation::Remove { directory, name },
        }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.status(done.status());
        reply.wcc(&done.first);
    }
}
