//! Procedure 14, RENAME (RFC 1813 section 3.3.14).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status, name,
    types::{DirectoryName, RawHandle, STATUS_BYTES, WCC_BYTES},
};

/// `RENAME3args`.
#[derive(Debug)]
pub struct Args {
    from: DirectoryName,
    to: DirectoryName,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + 2 * WCC_BYTES;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { from: DirectoryName::decode(args)?, to: DirectoryName::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.from.directory
    }

    fn second(&self) -> Option<&RawHandle> {
        Some(&self.to.directory)
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check_rename(&self.from.name)?;
        name::check_rename(&self.to.name)?;
        Ok(Plan::Ask(Operation::Rename {
            from: scope.object,
            from_name: std::mem::take(&mut self.from.name),
            to: scope.second.ok_or(Status::XDev)?,
            to_name: std::mem::take(&mut self.to.name),
        }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.status(done.status());
        reply.wcc(&done.first);
        reply.wcc(&done.second);
    }
}
