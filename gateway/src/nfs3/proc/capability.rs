//! What FSINFO and PATHCONF have in common: both answer with attributes of an object and with what its export can
//! do.

use std::marker::PhantomData;

use backends::{Capabilities, Operation};
use rpc_rdma::xdr::{Reader, WireError, Writer};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES},
};

/// The part of the results that is the procedure's own.
pub trait Answer {
    /// Its length.
    const BYTES: usize;

    /// Encode it.
    fn encode(capabilities: &Capabilities, writer: &mut Writer);
}

/// The arguments: a handle.
#[derive(Debug)]
pub struct Asked<A> {
    object: RawHandle,
    answer: PhantomData<A>,
}

impl<A: Answer> Procedure for Asked<A> {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + A::BYTES;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { object: RawHandle::decode(args)?, answer: PhantomData })
    }

    fn object(&self) -> &RawHandle {
        &self.object
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        Ok(Plan::Ask(Operation::GetAttributes { object: scope.object }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let status = done.status();
        reply.status(status);
        reply.post_op(done.first.after.as_ref());
        if status == Status::Ok {
            A::encode(&reply.scope.capabilities(), reply.writer);
        }
    }
}
