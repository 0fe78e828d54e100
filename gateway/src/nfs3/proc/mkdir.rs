//! Procedure 9, MKDIR (RFC 1813 section 3.3.9).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    attr::RawChanges,
    name,
    reply::CREATED_BYTES_MAX,
    types::{DirectoryName, RawHandle},
};

/// `MKDIR3args`.
#[derive(Debug)]
pub struct Args {
    place: DirectoryName,
    changes: RawChanges,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = CREATED_BYTES_MAX;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let place = DirectoryName::decode(args)?;
        Ok(Self { place, changes: RawChanges::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.place.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check_new(&self.place.name)?;
        let changes = self.changes.check(scope.capabilities().file_bytes_max)?;
        let name = std::mem::take(&mut self.place.name);
        Ok(Plan::Ask(Operation::MakeDirectory { directory: scope.object, name, changes }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.created(&done);
    }
}
