//! Procedure 18, FSSTAT: space of the file system (RFC 1813 section 3.3.18).

use backends::{Operation, Outcome};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{OFFSET_MAX, POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES},
};

/// `FSSTAT3args`.
#[derive(Debug)]
pub struct Args {
    root: RawHandle,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + 6 * 8 + 4;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { root: RawHandle::decode(args)? })
    }

    fn object(&self) -> &RawHandle {
        &self.root
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        Ok(Plan::Ask(Operation::FileSystemSpace { object: scope.object }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let Ok(Outcome::Space(space)) = &done.result else {
            reply.status(done.failure());
            reply.post_op(done.first.after.as_ref());
            return;
        };
        reply.status(Status::Ok);
        reply.post_op(done.first.after.as_ref());
        let files = [space.files_total, space.files_free, space.files_available];
        for value in [space.total, space.free, space.available].into_iter().chain(files) {
            // Clients compute with signed numbers: a bottomless store must not show as negative.
            reply.writer.u64(value.min(OFFSET_MAX));
        }
        // How long these figures hold (`invarsec`): not at all.
        reply.writer.u32(0);
    }
}
