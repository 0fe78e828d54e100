//! Procedure 11, MKNOD: a special file (RFC 1813 section 3.3.11).

use backends::{Operation, attr::Device, op::NodeKind};
use rpc_rdma::xdr::{Reader, WireError};

use super::table::Procedure;
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    attr::RawChanges,
    name,
    reply::CREATED_BYTES_MAX,
    types::{DirectoryName, RawHandle},
};

const BLOCK: u32 = 3;
const CHARACTER: u32 = 4;
const SOCKET: u32 = 6;
const FIFO: u32 = 7;

/// `MKNOD3args`. Without `what` for a type that MKNOD does not make.
#[derive(Debug)]
pub struct Args {
    place: DirectoryName,
    what: Option<(NodeKind, RawChanges)>,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = CREATED_BYTES_MAX;
    const MUTATES: bool = true;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let place = DirectoryName::decode(args)?;
        let kind = args.u32("ftype3")?;
        let what = match kind {
            BLOCK | CHARACTER => {
                let changes = RawChanges::decode(args)?;
                let device = Device { major: args.u32("major")?, minor: args.u32("minor")? };
                let block = kind == BLOCK;
                let node =
                    if block { NodeKind::Block(device) } else { NodeKind::Character(device) };
                Some((node, changes))
            }
            SOCKET => Some((NodeKind::Socket, RawChanges::decode(args)?)),
            FIFO => Some((NodeKind::Fifo, RawChanges::decode(args)?)),
            _ => None,
        };
        Ok(Self { place, what })
    }

    fn object(&self) -> &RawHandle {
        &self.place.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let (node, changes) = self.what.as_ref().ok_or(Status::BadType)?;
        name::check_new(&self.place.name)?;
        if !scope.capabilities().special_files {
            return Err(Status::NotSupp);
        }
        Ok(Plan::Ask(Operation::MakeNode {
            directory: scope.object,
            name: std::mem::take(&mut self.place.name),
            node: *node,
            changes: changes.check(scope.capabilities().file_bytes_max)?,
        }))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        reply.created(&done);
    }
}
