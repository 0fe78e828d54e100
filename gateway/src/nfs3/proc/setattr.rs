//! Procedure 2, SETATTR: set attributes (RFC 1813 section 3.3.2).

use backends::Operation;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    attr::{RawChanges, RawTime},
    types::{RawHandle, STATUS_BYTES, WCC_BYTES},
};

/// `SETATTR3args`.
#[derive(Debug)]
pub struct Args {
    object: RawHandle,
    changes: RawChanges,
    guard: Option<RawTime>,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + WCC_BYTES;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let object = RawHandle::decode(args)?;
        let changes = RawChanges::decode(args)?;
        let guard = if args.bool("guard")? { Some(RawTime::decode(args)?) } else { None };
        Ok(Self { object, changes, guard })
    }

    fn object(&self) -> &RawHandle {
        &self.object
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let changes = self.changes.check(scope.capabilities().file_bytes_max)?;
        let guard = self.guard.map(RawTime::check).transpose()?;
        Ok(Plan::Ask(Operation::SetAttributes { object: scope.object, changes, guard }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.status(done.status());
        reply.wcc(&done.first);
    }
}
