//! Procedure 7, WRITE (RFC 1813 section 3.3.7).

use backends::{
    Operation, Outcome,
    op::{Stability, WriteVerifier},
};
use bytes::Bytes;
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{OFFSET_MAX, RawHandle, STATUS_BYTES, TRANSFER_BYTES_MAX, WCC_BYTES},
};

/// `WRITE3args`.
#[derive(Debug)]
pub struct Args {
    file: RawHandle,
    offset: u64,
    count: u32,
    stability: Stability,
    data: Bytes,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + WCC_BYTES + 8 + size_of::<WriteVerifier>();
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let file = RawHandle::decode(args)?;
        let offset = args.u64("offset")?;
        let count = args.u32("count")?;
        let stability = match args.u32("stable_how")? {
            0 => Stability::Unstable,
            1 => Stability::DataSync,
            2 => Stability::FileSync,
            found => return Err(WireError::Invalid { what: "stable_how", found }),
        };
        let data = args.payload(u32::MAX, "data")?;
        Ok(Self { file, offset, count, stability, data })
    }

    fn object(&self) -> &RawHandle {
        &self.file
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let mut data = std::mem::take(&mut self.data);
        if data.len() != self.count as usize {
            return Err(Status::Inval);
        }
        // A client that ignores wtmax gets a short write, which it has to continue.
        data.truncate(TRANSFER_BYTES_MAX as usize);
        let end = self.offset.checked_add(data.len() as u64).ok_or(Status::FBig)?;
        if end > OFFSET_MAX.min(scope.capabilities().file_bytes_max) {
            return Err(Status::FBig);
        }
        Ok(Plan::Ask(Operation::Write {
            object: scope.object,
            offset: self.offset,
            data,
            stability: self.stability,
        }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let Ok(Outcome::Written { count, stability, verifier }) = &done.result else {
            reply.status(done.failure());
            reply.wcc(&done.first);
            return;
        };
        reply.status(Status::Ok);
        reply.wcc(&done.first);
        reply.writer.u32(*count);
        reply.writer.u32(match stability {
            Stability::Unstable => 0,
            Stability::DataSync => 1,
            Stability::FileSync => 2,
        });
        reply.writer.fixed(verifier);
    }
}
