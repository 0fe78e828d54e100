//! MNT: from a path to a handle (RFC 1813 section 5.2.1).
//!
//! The path below the export's root is walked one name at a time with the caller's rights. Symbolic links
//! are not followed: where they lead, only the client can know.

use std::{collections::VecDeque, net::IpAddr, sync::Arc};

use backends::{Completion, FileKind, Identity, ObjectHandle, Operation, Outcome};
use bytes::Bytes;
use rpc_rdma::{rpc::auth::flavor, xdr::Writer};

use super::MountStatus;
use crate::exports::{Export, HandleKey, handle::FILE_HANDLE_BYTES_MAX};

/// A walk under way.
#[derive(Debug)]
pub struct Walk {
    export: Arc<Export>,
    identity: Arc<Identity>,
    client: IpAddr,
    path: Bytes,
    components: VecDeque<Bytes>,
    at: ObjectHandle,
}

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// This operation.
    Ask(Operation),
    /// The walk has ended: here, or in failure.
    End(Result<ObjectHandle, MountStatus>),
}

impl Walk {
    /// Largest results of MNT, in bytes: status, handle, and one flavor.
    pub const RESULT_BYTES_MAX: usize = 4 + 4 + FILE_HANDLE_BYTES_MAX.next_multiple_of(4) + 8;

    /// Begin at the root of `export`. `path` is what the client asked for.
    pub fn new(
        export: Arc<Export>,
        identity: Arc<Identity>,
        client: IpAddr,
        path: Bytes,
        components: Vec<Bytes>,
    ) -> Self {
        let at = export.backend.root();
        Self { export, identity, client, path, components: components.into(), at }
    }

    /// The export.
    pub fn export(&self) -> &Arc<Export> {
        &self.export
    }

    /// The caller.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Where the caller is.
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// What the client asked for.
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// The operation to do now. For the root itself: whether it is there.
    pub fn operation(&mut self) -> Operation {
        match self.components.pop_front() {
            Some(name) => Operation::Lookup { directory: self.at, name },
            None => Operation::GetAttributes { object: self.at },
        }
    }

    /// Go on with what the operation has given.
    pub fn step(&mut self, completion: Completion) -> Step {
        let kind = match completion.result {
            Ok(Outcome::Found { object, attributes }) => {
                self.at = object;
                attributes.kind
            }
            Ok(_) => match completion.first.after {
                Some(attributes) => attributes.kind,
                None => return Step::End(Err(MountStatus::ServerFault)),
            },
            Err(error) => return Step::End(Err(error.kind.into())),
        };
        if kind != FileKind::Directory {
            return Step::End(Err(MountStatus::NotDir));
        }
        if self.components.is_empty() {
            Step::End(Ok(self.at))
        } else {
            Step::Ask(self.operation())
        }
    }

    /// Encode the results: the handle, and that AUTH_SYS is what to use.
    pub fn results(
        &self,
        result: Result<ObjectHandle, MountStatus>,
        key: &HandleKey,
        writer: &mut Writer,
    ) {
        match result {
            Ok(object) => {
                writer.u32(MountStatus::Ok.code());
                writer.opaque(key.seal(self.export.id, &object).as_bytes());
                writer.u32(1);
                writer.u32(flavor::SYS);
            }
            Err(status) => writer.u32(status.code()),
        }
    }
}
