//! Procedure 21, COMMIT: make written data stable (RFC 1813 section 3.3.21).
//!
//! It is carried out on a read-only export as well: data that was taken before the export became read-only
//! is still owed to the client.

use backends::{Operation, Outcome, op::WriteVerifier};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{OFFSET_MAX, RawHandle, STATUS_BYTES, WCC_BYTES},
};

/// `COMMIT3args`.
#[derive(Debug)]
pub struct Args {
    file: RawHandle,
    offset: u64,
    count: u32,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + WCC_BYTES + size_of::<WriteVerifier>();

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let file = RawHandle::decode(args)?;
        Ok(Self { file, offset: args.u64("offset")?, count: args.u32("count")? })
    }

    fn object(&self) -> &RawHandle {
        &self.file
    }

    /// A range that no file can have means everything from its start on: more than was asked may always be
    /// made stable.
    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let offset = self.offset.min(OFFSET_MAX);
        let fits = offset.checked_add(u64::from(self.count)).is_some_and(|end| end <= OFFSET_MAX);
        let count = if fits { self.count } else { 0 };
        Ok(Plan::Ask(Operation::Commit { object: scope.object, offset, count }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let Ok(Outcome::Committed { verifier }) = &done.result else {
            reply.status(done.failure());
            reply.wcc(&done.first);
            return;
        };
        reply.status(Status::Ok);
        reply.wcc(&done.first);
        reply.writer.fixed(verifier);
    }
}
