//! Attributes and handles (RFC 1813 section 2.6).

use rpc_rdma::xdr::{Reader, WireError, Writer};

use super::HANDLE_BYTES_MAX;

/// An opaque file handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileHandle(pub Vec<u8>);

impl FileHandle {
    /// Encode it.
    pub fn encode(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }

    /// Decode it.
    ///
    /// # Errors
    /// When it is too long.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self(reader.opaque(HANDLE_BYTES_MAX, "file handle")?.to_vec()))
    }

    /// Decode an optional one.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn decode_optional(reader: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        reader.bool("handle follows")?.then(|| Self::decode(reader)).transpose()
    }
}

/// Seconds and nanoseconds.
pub type Time = (u32, u32);

/// fattr3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// ftype3: 1 is a file, 2 a directory.
    pub kind: u32,
    /// Permission bits.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes on disk.
    pub used: u64,
    /// Identity of the file system.
    pub fsid: u64,
    /// Identity of the file.
    pub fileid: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

fn time(reader: &mut Reader<'_>) -> Result<Time, WireError> {
    Ok((reader.u32("seconds")?, reader.u32("nanoseconds")?))
}

impl Attributes {
    /// Decode fattr3.
    ///
    /// # Errors
    /// When it is cut short.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = reader.u32("type")?;
        let mode = reader.u32("mode")?;
        let links = reader.u32("nlink")?;
        let uid = reader.u32("uid")?;
        let gid = reader.u32("gid")?;
        let size = reader.u64("size")?;
        let used = reader.u64("used")?;
        reader.u64("rdev")?;
        let fsid = reader.u64("fsid")?;
        let fileid = reader.u64("fileid")?;
        let (atime, mtime, ctime) = (time(reader)?, time(reader)?, time(reader)?);
        Ok(Self { kind, mode, links, uid, gid, size, used, fsid, fileid, atime, mtime, ctime })
    }

    /// Decode post_op_attr.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn decode_optional(reader: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        reader.bool("attributes follow")?.then(|| Self::decode(reader)).transpose()
    }

    /// Decode wcc_data; only the attributes after the operation are kept.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn decode_after(reader: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        if reader.bool("attributes before follow")? {
            reader.skip(24, "attributes before")?;
        }
        Self::decode_optional(reader)
    }
}

/// sattr3, times left alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
}

impl SetAttributes {
    /// Encode it.
    pub fn encode(&self, writer: &mut Writer) {
        for value in [self.mode, self.uid, self.gid] {
            writer.bool(value.is_some());
            value.into_iter().for_each(|value| writer.u32(value));
        }
        writer.bool(self.size.is_some());
        self.size.into_iter().for_each(|size| writer.u64(size));
        // DONT_CHANGE for atime and mtime.
        writer.u32(0);
        writer.u32(0);
    }
}
