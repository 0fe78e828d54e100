//! Results of the procedures (RFC 1813 section 3.3).

use bytes::Bytes;
use rpc_rdma::{
    client::{RpcFault, results},
    xdr::{Reader, Rope, WireError},
};

use super::{Attributes, FileHandle};

/// Longest data of one READ that we ask for, in bytes.
pub const READ_BYTES_MAX: u32 = 4 << 20;
/// Longest name, in bytes.
const NAME_BYTES_MAX: u32 = 255;

/// A call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The RPC was not executed.
    #[error(transparent)]
    Rpc(#[from] RpcFault),
    /// The results are malformed.
    #[error("malformed results: {0}")]
    Malformed(#[from] WireError),
    /// The server answers with this nfsstat3 (or mountstat3).
    #[error("status {0}")]
    Status(u32),
}

/// A reader behind the status, when the status is OK.
pub(super) fn ok(reply: &Rope) -> Result<Reader<'_>, Failure> {
    let mut reader = results(reply)?;
    match reader.u32("status")? {
        0 => Ok(reader),
        status => Err(Failure::Status(status)),
    }
}

/// Result of a procedure of which only success matters (SETATTR, REMOVE).
pub fn done(reply: &Rope) -> Result<(), Failure> {
    Attributes::decode_after(&mut ok(reply)?)?;
    Ok(())
}

/// Result of NULL.
pub fn null(reply: &Rope) -> Result<(), Failure> {
    results(reply)?;
    Ok(())
}

/// Result of GETATTR.
pub fn getattr(reply: &Rope) -> Result<Attributes, Failure> {
    Ok(Attributes::decode(&mut ok(reply)?)?)
}

/// Result of LOOKUP.
pub fn lookup(reply: &Rope) -> Result<(FileHandle, Option<Attributes>), Failure> {
    let mut reader = ok(reply)?;
    Ok((FileHandle::decode(&mut reader)?, Attributes::decode_optional(&mut reader)?))
}

/// Result of CREATE and MKDIR.
pub fn created(reply: &Rope) -> Result<Option<FileHandle>, Failure> {
    Ok(FileHandle::decode_optional(&mut ok(reply)?)?)
}

/// What READ gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    /// The data.
    pub data: Bytes,
    /// Whether the file ends there.
    pub eof: bool,
    /// Attributes of the file.
    pub attributes: Option<Attributes>,
}

/// Result of READ.
pub fn read(reply: &Rope) -> Result<Data, Failure> {
    let mut reader = ok(reply)?;
    let attributes = Attributes::decode_optional(&mut reader)?;
    let count = reader.u32("count")?;
    let eof = reader.bool("eof")?;
    let data = reader.payload(READ_BYTES_MAX, "data")?;
    if data.len() != count as usize {
        return Err(WireError::Invalid { what: "count of READ", found: count }.into());
    }
    Ok(Data { data, eof, attributes })
}

/// Bytes that a reply to READ has before its data at most, the record mark excepted: RPC header with an empty
/// verifier, status, attributes, count, end of file, length.
pub const READ_HEAD_BYTES: usize = 24 + 4 + 4 + 84 + 4 + 4 + 4;

/// How many bytes a READ gave, by a reply whose data was thrown away.
pub fn read_head(reply: &Rope) -> Result<u32, Failure> {
    let mut reader = ok(reply)?;
    Attributes::decode_optional(&mut reader)?;
    let count = reader.u32("count")?;
    reader.bool("eof")?;
    match reader.u32("length of the data")? {
        len if len == count => Ok(count),
        len => Err(WireError::Invalid { what: "count of READ", found: len }.into()),
    }
}

/// What WRITE says it has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Bytes written.
    pub count: u32,
    /// stable_how of what was done.
    pub committed: u32,
    /// Write verifier.
    pub verifier: [u8; 8],
}

/// Result of WRITE.
pub fn write(reply: &Rope) -> Result<Written, Failure> {
    let mut reader = ok(reply)?;
    Attributes::decode_after(&mut reader)?;
    Ok(Written {
        count: reader.u32("count")?,
        committed: reader.u32("committed")?,
        verifier: reader.fixed("verifier")?,
    })
}

/// Result of COMMIT: the write verifier.
pub fn commit(reply: &Rope) -> Result<[u8; 8], Failure> {
    let mut reader = ok(reply)?;
    Attributes::decode_after(&mut reader)?;
    Ok(reader.fixed("verifier")?)
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Identity of the file.
    pub fileid: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Where the directory goes on behind it.
    pub cookie: u64,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// Its handle.
    pub handle: Option<FileHandle>,
}

/// A part of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Verifier for the next part.
    pub verifier: [u8; 8],
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether the directory ends here.
    pub eof: bool,
}

/// Result of READDIRPLUS.
pub fn readdirplus(reply: &Rope) -> Result<Listing, Failure> {
    let mut reader = ok(reply)?;
    Attributes::decode_optional(&mut reader)?;
    let verifier = reader.fixed("verifier")?;
    let mut entries = Vec::new();
    while reader.bool("entry follows")? {
        entries.push(Entry {
            fileid: reader.u64("fileid")?,
            name: reader.opaque(NAME_BYTES_MAX, "name")?.to_vec(),
            cookie: reader.u64("cookie")?,
            attributes: Attributes::decode_optional(&mut reader)?,
            handle: FileHandle::decode_optional(&mut reader)?,
        });
    }
    Ok(Listing { verifier, entries, eof: reader.bool("eof")? })
}
