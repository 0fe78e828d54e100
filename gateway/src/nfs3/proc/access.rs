//! Procedure 4, ACCESS: what the caller may do (RFC 1813 section 3.3.4).

use backends::{FileKind, Operation, Outcome, op::AccessMask};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{POST_OP_ATTR_BYTES, RawHandle, STATUS_BYTES},
};

const KNOWN: u32 = AccessMask::READ
    | AccessMask::LOOKUP
    | AccessMask::MODIFY
    | AccessMask::EXTEND
    | AccessMask::DELETE
    | AccessMask::EXECUTE;
const WRITING: u32 = AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;

/// `ACCESS3args`.
#[derive(Debug)]
pub struct Args {
    object: RawHandle,
    mask: u32,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = STATUS_BYTES + POST_OP_ATTR_BYTES + 4;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { object: RawHandle::decode(args)?, mask: args.u32("access")? })
    }

    fn object(&self) -> &RawHandle {
        &self.object
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        self.mask &= if scope.read_only { KNOWN & !WRITING } else { KNOWN };
        Ok(Plan::Ask(Operation::Access { object: scope.object, mask: AccessMask(self.mask) }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        let after = done.first.after;
        let granted = match &done.result {
            Ok(Outcome::Access { granted }) => Ok(granted.0),
            _ => Err(done.failure()),
        };
        reply.status(granted.err().unwrap_or(Status::Ok));
        reply.post_op(after.as_ref());
        if let Ok(granted) = granted {
            reply.writer.u32(granted & self.mask & meaningful(after.map(|attr| attr.kind)));
        }
    }
}

/// The rights that mean something for an object of this kind. DELETE is a right to the entries of a
/// directory: whether a file can be deleted, its own permissions do not say, so it is never granted there.
fn meaningful(kind: Option<FileKind>) -> u32 {
    match kind {
        Some(FileKind::Directory) => KNOWN & !AccessMask::EXECUTE,
        Some(_) => KNOWN & !(AccessMask::LOOKUP | AccessMask::DELETE),
        None => KNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_by_kind() {
        assert_eq!(meaningful(Some(FileKind::Directory)), 0x1f);
        assert_eq!(meaningful(Some(FileKind::Regular)), 0x2d);
    }
}
