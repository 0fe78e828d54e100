//! Procedure 10, SYMLINK (RFC 1813 section 3.3.10).
//!
//! The target is raw bytes, and may come as bulk data (RFC 8267 section 4).

use backends::Operation;
use bytes::Bytes;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    attr::RawChanges,
    name,
    reply::CREATED_BYTES_MAX,
    types::{DirectoryName, RawHandle},
};

/// `SYMLINK3args`.
#[derive(Debug)]
pub struct Args {
    place: DirectoryName,
    changes: RawChanges,
    target: Bytes,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = CREATED_BYTES_MAX;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let place = DirectoryName::decode(args)?;
        let changes = RawChanges::decode(args)?;
        Ok(Self { place, changes, target: args.payload(u32::MAX, "link target")? })
    }

    fn object(&self) -> &RawHandle {
        &self.place.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check_new(&self.place.name)?;
        name::check_target(&self.target)?;
        if !scope.capabilities().symlinks {
            return Err(Status::NotSupp);
        }
        Ok(Plan::Ask(Operation::MakeSymlink {
            directory: scope.object,
            name: std::mem::take(&mut self.place.name),
            target: std::mem::take(&mut self.target),
            changes: self.changes.check(scope.capabilities().file_bytes_max)?,
        }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.created(&done);
    }
}
