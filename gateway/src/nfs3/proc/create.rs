//! Procedure 8, CREATE: a regular file (RFC 1813 section 3.3.8).

use backends::{Operation, op::CreateHow};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    attr::RawChanges,
    name,
    reply::CREATED_BYTES_MAX,
    types::{DirectoryName, RawHandle},
};

/// `createhow3`.
#[derive(Debug)]
enum How {
    Unchecked(RawChanges),
    Guarded(RawChanges),
    Exclusive([u8; 8]),
}

/// `CREATE3args`.
#[derive(Debug)]
pub struct Args {
    place: DirectoryName,
    how: How,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = CREATED_BYTES_MAX;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let place = DirectoryName::decode(args)?;
        let how = match args.u32("createmode3")? {
            0 => How::Unchecked(RawChanges::decode(args)?),
            1 => How::Guarded(RawChanges::decode(args)?),
            2 => How::Exclusive(args.fixed("create verifier")?),
            found => return Err(WireError::Invalid { what: "createmode3", found }),
        };
        Ok(Self { place, how })
    }

    fn object(&self) -> &RawHandle {
        &self.place.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        name::check_new(&self.place.name)?;
        let file_bytes_max = scope.capabilities().file_bytes_max;
        let how = match &self.how {
            How::Unchecked(changes) => CreateHow::Unchecked(changes.check(file_bytes_max)?),
            How::Guarded(changes) => CreateHow::Guarded(changes.check(file_bytes_max)?),
            How::Exclusive(verifier) => CreateHow::Exclusive(*verifier),
        };
        let name = std::mem::take(&mut self.place.name);
        Ok(Plan::Ask(Operation::Create { directory: scope.object, name, how }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.created(&done);
    }
}
