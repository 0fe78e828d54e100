//! Procedure 17, READDIRPLUS: names with attributes and handles (RFC 1813 section 3.3.17).

use backends::{
    Operation,
    op::{NAME_BYTES_MAX, ReadDirectory},
};
use rpc_rdma::xdr::{Reader, WireError, pad_bytes};

use super::{
    listing::{self, Cut, ENTRY_BYTES_MIN},
    table::Procedure,
};
use crate::nfs3::{
    Done, Plan, Reply, Scope, Status,
    types::{LISTING_ENTRIES_MAX, POST_OP_ATTR_BYTES, RawHandle},
};

/// What the longest name takes, in bytes.
const NAME_BYTES_MIN: usize = ENTRY_BYTES_MIN + NAME_BYTES_MAX;

/// `READDIRPLUS3args`.
#[derive(Debug)]
pub struct Args {
    directory: RawHandle,
    cookie: u64,
    name_bytes: u32,
    count: u32,
    cut: Option<Cut>,
}

impl Procedure for Args {
    const RESULT_BYTES_MAX: usize = listing::RESULT_BYTES_MIN;

    fn decode(args: &mut Reader<'_>) -> Result<Self, WireError> {
        let directory = RawHandle::decode(args)?;
        let cookie = args.u64("cookie")?;
        args.fixed::<8>("cookie verifier")?;
        let name_bytes = args.u32("dircount")?;
        Ok(Self { directory, cookie, name_bytes, count: args.u32("maxcount")?, cut: None })
    }

    fn object(&self) -> &RawHandle {
        &self.directory
    }

    /// Every entry costs the backend a look at an inode, so no more are asked for than can fit: handles of
    /// one backend are about as long as the directory's own.
    fn plan(&mut self, scope: &Scope) -> Result<Plan, Status> {
        let room = listing::entry_bytes(self.count, scope).ok_or(Status::TooSmall)?;
        let name_bytes = (self.name_bytes > 0).then_some(self.name_bytes as usize);
        self.cut = Some(Cut { entry_bytes: room, name_bytes, plus: true });
        // The first name is never refused for the hint, so the backend must not refuse it either.
        let names =
            name_bytes.map_or(room, |bytes| bytes.clamp(NAME_BYTES_MIN, room.max(NAME_BYTES_MIN)));
        let handle_bytes = self.directory.as_bytes().len();
        let entry_bytes =
            ENTRY_BYTES_MIN + POST_OP_ATTR_BYTES + 8 + handle_bytes + pad_bytes(handle_bytes);
        let entries = u32::try_from(room / entry_bytes).unwrap_or(u32::MAX);
        Ok(Plan::Ask(Operation::ReadDirectory(ReadDirectory {
            directory: scope.object,
            cookie: self.cookie,
            plus: true,
            name_bytes_max: u32::try_from(names).unwrap_or(u32::MAX),
            entries_max: entries.clamp(1, LISTING_ENTRIES_MAX),
        })))
    }

    fn results(self, done: Done, reply: &mut Reply<'_>) {
        listing::results(done, self.cut, reply);
    }
}
