//! Whether a call may be carried out, with what rights, on which object.
//!
//! Asked for every call: a handle is no ticket. The order is: is the handle ours, is its export still there,
//! may this client use it, may it write.

use std::sync::Arc;

use backends::ObjectHandle;
use rpc_rdma::{
    rpc::Credential,
    service::{Peer, ReplyBudget},
};

use crate::{
    exports::{Export, ExportAccess, ExportTable, HandleKey},
    nfs3::{Request, Scope, Status, types::RawHandle},
};

/// What decides.
#[derive(Debug)]
pub struct Admission<'a> {
    /// What is served.
    pub table: &'a ExportTable,
    /// Opens the handles.
    pub key: &'a HandleKey,
    /// The client.
    pub peer: &'a Peer,
}

impl Admission<'_> {
    /// Admit an NFSv3 call.
    ///
    /// # Errors
    /// BADHANDLE for bytes that we never made, STALE when the export is gone, ACCES when this client may not
    /// use it, ROFS when it may not write.
    pub fn admit(
        &self,
        request: &Request,
        credential: &Credential,
        budget: ReplyBudget,
    ) -> Result<Scope, Status> {
        let (export, object, access) = self.resolve(request.object())?;
        let second = match request.second() {
            Some(handle) => {
                let (other, object, access) = self.resolve(handle)?;
                if access != ExportAccess::ReadWrite && request.mutates() {
                    return Err(Status::RoFs);
                }
                (other.id == export.id).then_some(object)
            }
            None => None,
        };
        let read_only = access != ExportAccess::ReadWrite;
        if read_only && request.mutates() {
            return Err(Status::RoFs);
        }
        let identity = export.identity(credential);
        Ok(Scope { export: Arc::clone(export), object, second, identity, read_only, budget })
    }

    fn resolve(
        &self,
        handle: &RawHandle,
    ) -> Result<(&Arc<Export>, ObjectHandle, ExportAccess), Status> {
        let (id, object) = self.key.open(handle.as_bytes()).map_err(|_| Status::BadHandle)?;
        let export = self.table.by_id(id).ok_or(Status::Stale)?;
        match export.access(self.peer) {
            ExportAccess::Denied => Err(Status::Acces),
            access => Ok((export, object, access)),
        }
    }
}
