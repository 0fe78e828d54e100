//! Procedure 16, READDIR: names in a directory (RFC 1813 section 3.3.16).

use backends::{Operation, op::ReadDirectory};
use rpc_rdma::xdr::{Reader, WireError};

use super::{
    listing::{self, Cut, ENTRY_BYTES_MIN},
    table::Procedure,
};
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{LISTING_ENTRIES_MAX, RawHandle},
};

/// `READDIR3args`.
#[derive(Debug)]
pub struct Args {
    directory: RawHandle,
    cookie: u64,
    count: u32,
    cut: Option<Cut>,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = listing::RESULT_BYTES_MIN;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let directory = RawHandle::decode(args)?;
        let cookie = args.u64("cookie")?;
        args.fixed::<8>("cookie verifier")?;
        Ok(Self { directory, cookie, count: args.u32("count")?, cut: None })
    }

    fn object(&self) -> &RawHandle {
        &self.directory
    }

    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let room = listing::entry_bytes(self.count, scope).ok_or(Status::TooSmall)?;
        self.cut = Some(Cut { entry_bytes: room, name_bytes: None, plus: false });
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        Ok(Plan::Ask(Operation::ReadDirectory(ReadDirectory {
            directory: scope.object,
            cookie: self.cookie,
            plus: false,
            name_bytes_max: room,
            entries_max: (room / ENTRY_BYTES_MIN as u32).clamp(1, LISTING_ENTRIES_MAX),
        })))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        listing::results(done, self.cut, reply);
    }
}
