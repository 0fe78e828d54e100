//! Encoding the items that results are made of (RFC 1813 section 2.6).

use backends::{Attributes, ObjectHandle, Outcome, attr::Around};
use rpc_rdma::xdr::Writer;

use super::{
    Done, Scope, Status, attr,
    types::{POST_OP_ATTR_BYTES, POST_OP_HANDLE_BYTES, STATUS_BYTES, WCC_BYTES},
};
use crate::exports::HandleKey;

/// Largest results of the procedures that create something.
pub const CREATED_BYTES_MAX: usize =
    STATUS_BYTES + POST_OP_HANDLE_BYTES + POST_OP_ATTR_BYTES + WCC_BYTES;

/// Results being written.
#[derive(Debug)]
pub struct Reply<'a> {
    /// Where they go.
    pub writer: &'a mut Writer,
    /// The call's surroundings.
    pub scope: &'a Scope,
    /// What seals the handles that go out.
    pub key: &'a HandleKey,
}

impl Reply<'_> {
    /// `nfsstat3`.
    pub fn status(&mut self, status: Status) {
        self.writer.u32(status.code());
    }

    /// `fattr3`.
    pub fn attributes(&mut self, attributes: &Attributes) {
        attr::encode(self.writer, attributes, self.scope.export.file_system_id);
    }

    /// `post_op_attr`.
    pub fn post_op(&mut self, attributes: Option<&Attributes>) {
        self.writer.bool(attributes.is_some());
        if let Some(attributes) = attributes {
            self.attributes(attributes);
        }
    }

    /// `wcc_data`.
    pub fn wcc(&mut self, around: &Around) {
        self.writer.bool(around.before.is_some());
        if let Some(before) = &around.before {
            attr::encode_before(self.writer, before);
        }
        self.post_op(around.after.as_ref());
    }

    /// `nfs_fh3`.
    pub fn handle(&mut self, object: &ObjectHandle) {
        let sealed = self.key.seal(self.scope.export.id, object);
        self.writer.opaque(sealed.as_bytes());
    }

    /// `post_op_fh3`.
    pub fn post_op_handle(&mut self, object: &ObjectHandle) {
        self.writer.bool(true);
        self.handle(object);
    }

    /// Results of CREATE, MKDIR, SYMLINK and MKNOD: the new object and its directory.
    pub fn created(&mut self, done: &Done) {
        if let Ok(Outcome::Created { object, attributes }) = &done.result {
            self.status(Status::Ok);
            self.post_op_handle(object);
            self.post_op(attributes.as_ref());
        } else {
            self.status(done.failure());
        }
        self.wcc(&done.first);
    }
}
