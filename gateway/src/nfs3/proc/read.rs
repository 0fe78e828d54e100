//! Procedure 6, READ (RFC 1813 section 3.3.6).

use backends::Outcome;
use rpc_rdma::{
    rpc::reply::ACCEPTED_BYTES,
    xdr::{Reader, WireError},
};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{OFFSET_MAX, POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES, TRANSFER_BYTES_MAX},
};

/// `READ3args`.
#[derive(Debug)]
pub struct Args {
    file: RawHandle,
    offset: u64,
    count: u32,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + 12;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let file = RawHandle::decode(args)?;
        Ok(Self { file, offset: args.u64("offset")?, count: args.u32("count")? })
    }

    fn object(&self) -> &RawHandle {
        &self.file
    }

    /// Less than asked is a legal answer, so the count is cut to what the client has room for; beyond the
    /// largest offset there is nothing but the end of the file.
    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let room = scope.budget.bulk_bytes_max(ACCEPTED_BYTES + Self::RESULT_BYTES_MAX);
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        let wanted = self.count.min(TRANSFER_BYTES_MAX);
        if wanted > 0 && room == 0 {
            // An empty answer short of the end would make the client ask for ever.
            return Err(Status::ServerFault);
        }
        self.offset = self.offset.min(OFFSET_MAX);
        let left = u32::try_from(OFFSET_MAX - self.offset).unwrap_or(u32::MAX);
        self.count = wanted.min(room).min(left);
        Ok(Plan::Read { offset: self.offset, count: self.count })
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let after = done.first.after.as_ref();
        match done.result {
            Ok(Outcome::Data { data, end_of_file }) if data.len() <= self.count as usize => {
                reply.status(Status::Ok);
                reply.post_op(after);
                reply.writer.u32(data.len() as u32);
                reply.writer.bool(end_of_file);
                reply.writer.payload(data);
            }
            result => {
                reply.status(result.err().unwrap_or(Status::ServerFault));
                reply.post_op(after);
            }
        }
    }
}
