//! One NFSv3 call at a time, typed.

use std::time::Duration;

use bytes::Bytes;
use rpc_rdma::{
    client::{ClientError, RpcClient},
    rpc::Credential,
    xdr::Rope,
};

use super::{
    Attributes, Call, FileHandle, SetAttributes, Stable, call, mount,
    result::{self, Data, Failure, Listing, Written},
};

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Nfs3Error {
    /// The connection.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// CREATE or MKDIR succeeded but returned no handle.
    #[error("the server returned no handle of the new object")]
    NoHandle,
}

/// A typed client on any transport.
#[derive(Debug)]
pub struct Nfs3Client<C> {
    /// The connection.
    pub rpc: C,
    /// Who calls.
    pub credential: Credential,
    /// How long to wait for a reply.
    pub timeout: Duration,
}

type Answer<T> = Result<T, Nfs3Error>;

impl<C: RpcClient> Nfs3Client<C> {
    /// A client that calls as `credential`.
    pub fn new(rpc: C, credential: Credential) -> Self {
        Self { rpc, credential, timeout: Duration::from_secs(60) }
    }

    /// Make any call.
    ///
    /// # Errors
    /// When there is no reply.
    pub fn perform(&mut self, call: Call) -> Result<Rope, ClientError> {
        let Call { procedure, args, reply } = call;
        self.rpc.call_and_wait(procedure, &self.credential, args, reply, self.timeout)
    }

    /// NULL.
    ///
    /// # Errors
    /// When it fails.
    pub fn null(&mut self) -> Answer<()> {
        Ok(result::null(&self.perform(call::null())?)?)
    }

    /// MNT, on the same connection.
    ///
    /// # Errors
    /// When it fails.
    pub fn mount(&mut self, path: &str) -> Answer<FileHandle> {
        Ok(mount::root(&self.perform(mount::mnt(path))?)?)
    }

    /// GETATTR.
    ///
    /// # Errors
    /// When it fails.
    pub fn getattr(&mut self, handle: &FileHandle) -> Answer<Attributes> {
        Ok(result::getattr(&self.perform(call::getattr(handle))?)?)
    }

    /// SETATTR.
    ///
    /// # Errors
    /// When it fails.
    pub fn setattr(&mut self, handle: &FileHandle, attributes: &SetAttributes) -> Answer<()> {
        Ok(result::done(&self.perform(call::setattr(handle, attributes))?)?)
    }

    /// LOOKUP.
    ///
    /// # Errors
    /// When it fails.
    pub fn lookup(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Answer<(FileHandle, Option<Attributes>)> {
        Ok(result::lookup(&self.perform(call::lookup(directory, name))?)?)
    }

    /// CREATE, UNCHECKED.
    ///
    /// # Errors
    /// When it fails.
    pub fn create(&mut self, directory: &FileHandle, name: &[u8]) -> Answer<FileHandle> {
        let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let reply = self.perform(call::create(directory, name, &attributes))?;
        result::created(&reply)?.ok_or(Nfs3Error::NoHandle)
    }

    /// MKDIR.
    ///
    /// # Errors
    /// When it fails.
    pub fn mkdir(&mut self, directory: &FileHandle, name: &[u8]) -> Answer<FileHandle> {
        let attributes = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        let reply = self.perform(call::mkdir(directory, name, &attributes))?;
        result::created(&reply)?.ok_or(Nfs3Error::NoHandle)
    }

    /// REMOVE.
    ///
    /// # Errors
    /// When it fails.
    pub fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Answer<()> {
        Ok(result::done(&self.perform(call::remove(directory, name))?)?)
    }

    /// READ.
    ///
    /// # Errors
    /// When it fails.
    pub fn read(&mut self, handle: &FileHandle, offset: u64, count: u32) -> Answer<Data> {
        Ok(result::read(&self.perform(call::read(handle, offset, count))?)?)
    }

    /// WRITE.
    ///
    /// # Errors
    /// When it fails.
    pub fn write(
        &mut self,
        handle: &FileHandle,
        offset: u64,
        stable: Stable,
        data: impl Into<Bytes>,
    ) -> Answer<Written> {
        Ok(result::write(&self.perform(call::write(handle, offset, stable, data.into()))?)?)
    }

    /// COMMIT of the whole file.
    ///
    /// # Errors
    /// When it fails.
    pub fn commit(&mut self, handle: &FileHandle) -> Answer<[u8; 8]> {
        Ok(result::commit(&self.perform(call::commit(handle))?)?)
    }

    /// READDIRPLUS.
    ///
    /// # Errors
    /// When it fails.
    pub fn readdirplus(
        &mut self,
        directory: &FileHandle,
        cookie: u64,
        verifier: [u8; 8],
        bytes: u32,
    ) -> Answer<Listing> {
        let call = call::readdirplus(directory, cookie, verifier, bytes);
        Ok(result::readdirplus(&self.perform(call)?)?)
    }
}
