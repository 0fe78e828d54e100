//! Arguments of the procedures (RFC 1813 section 3.3), with the size that the reply may have: the RPC header
//! and the longest results, as the Linux client computes it.

use bytes::Bytes;
use rpc_rdma::{
    client::{Procedure, ReplyOptions},
    rpc::reply::ACCEPTED_BYTES,
    xdr::{Rope, Writer},
};

use super::{FileHandle, HANDLE_BYTES_MAX, PROGRAM, SetAttributes, VERSION};

const STATUS: usize = 4;
const ATTRIBUTES: usize = 4 + 84;
const WCC: usize = 4 + 24 + ATTRIBUTES;
const HANDLE: usize = 4 + HANDLE_BYTES_MAX as usize;
const VERIFIER: usize = 8;

/// How durable a WRITE must be before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stable {
    /// A later COMMIT makes it durable.
    Unstable = 0,
    /// The data is durable.
    DataSync = 1,
    /// Data and attributes are durable.
    FileSync = 2,
}

/// A call that is ready to go.
#[derive(Debug, Clone)]
pub struct Call {
    /// What to call.
    pub procedure: Procedure,
    /// Its arguments.
    pub args: Rope,
    /// How large the reply may become.
    pub reply: ReplyOptions,
}

fn call(procedure: u32, args: Writer, results_bytes_max: usize) -> Call {
    Call {
        procedure: Procedure { program: PROGRAM, version: VERSION, procedure },
        args: args.finish(),
        reply: ReplyOptions::message(ACCEPTED_BYTES + results_bytes_max),
    }
}

fn with_handle(handle: &FileHandle) -> Writer {
    let mut args = Writer::with_capacity(128);
    handle.encode(&mut args);
    args
}

fn with_name(directory: &FileHandle, name: &[u8]) -> Writer {
    let mut args = with_handle(directory);
    args.opaque(name);
    args
}

/// NULL.
pub fn null() -> Call {
    call(0, Writer::default(), 0)
}

/// GETATTR.
pub fn getattr(handle: &FileHandle) -> Call {
    call(1, with_handle(handle), STATUS + 84)
}

/// SETATTR, without a guard.
pub fn setattr(handle: &FileHandle, attributes: &SetAttributes) -> Call {
    let mut args = with_handle(handle);
    attributes.encode(&mut args);
    args.bool(false);
    call(2, args, STATUS + WCC)
}

/// LOOKUP.
pub fn lookup(directory: &FileHandle, name: &[u8]) -> Call {
    call(3, with_name(directory, name), STATUS + HANDLE + 2 * ATTRIBUTES)
}

/// READ.
pub fn read(handle: &FileHandle, offset: u64, count: u32) -> Call {
    let mut args = with_handle(handle);
    args.u64(offset);
    args.u32(count);
    let mut call = call(6, args, STATUS + ATTRIBUTES + 12);
    call.reply.bulk_bytes_max = Some(count as usize);
    call
}

/// WRITE.
pub fn write(handle: &FileHandle, offset: u64, stable: Stable, data: Bytes) -> Call {
    let mut args = with_handle(handle);
    args.u64(offset);
    args.u32(data.len() as u32);
    args.u32(stable as u32);
    args.payload(data);
    call(7, args, STATUS + WCC + 8 + VERIFIER)
}

/// CREATE, UNCHECKED.
pub fn create(directory: &FileHandle, name: &[u8], attributes: &SetAttributes) -> Call {
    let mut args = with_name(directory, name);
    args.u32(0);
    attributes.encode(&mut args);
    call(8, args, STATUS + 4 + HANDLE + ATTRIBUTES + WCC)
}

/// MKDIR.
pub fn mkdir(directory: &FileHandle, name: &[u8], attributes: &SetAttributes) -> Call {
    let mut args = with_name(directory, name);
    attributes.encode(&mut args);
    call(9, args, STATUS + 4 + HANDLE + ATTRIBUTES + WCC)
}

/// REMOVE.
pub fn remove(directory: &FileHandle, name: &[u8]) -> Call {
    call(12, with_name(directory, name), STATUS + WCC)
}

/// READDIRPLUS of at most `bytes` of results.
pub fn readdirplus(directory: &FileHandle, cookie: u64, verifier: [u8; 8], bytes: u32) -> Call {
    let mut args = with_handle(directory);
    args.u64(cookie);
    args.fixed(&verifier);
    args.u32(bytes);
    args.u32(bytes);
    call(17, args, STATUS + bytes as usize)
}

/// COMMIT of the whole file.
pub fn commit(handle: &FileHandle) -> Call {
    let mut args = with_handle(handle);
    args.u64(0);
    args.u32(0);
    call(21, args, STATUS + WCC + VERIFIER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_as_large_as_the_linux_client_expects() {
        let handle = FileHandle(vec![1; 28]);
        let read = read(&handle, 0, 4096).reply;
        assert_eq!((read.reply_bytes_max, read.bulk_bytes_max), (128, Some(4096)));
        let write = write(&handle, 0, Stable::Unstable, Bytes::from_static(b"x")).reply;
        assert_eq!(write.reply_bytes_max, 24 + 4 + 116 + 16);
    }

    #[test]
    fn write_arguments_lie_as_rfc_1813_says() {
        let call = write(&FileHandle(vec![9; 4]), 5, Stable::FileSync, Bytes::from_static(b"abc"));
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 4, 9, 9, 9, 9,
            0, 0, 0, 0, 0, 0, 0, 5,
            0, 0, 0, 3,
            0, 0, 0, 2,
            0, 0, 0, 3, b'a', b'b', b'c', 0,
        ];
        assert_eq!(call.args.flatten(), expected);
        assert_eq!(call.args.pieces[0].at, 28);
    }
}
