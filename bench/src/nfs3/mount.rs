//! MOUNT3 (RFC 1813 appendix I), and the portmapper's GETPORT (RFC 1833 section 3) to find it.

use rpc_rdma::{
    client::{Procedure, ReplyOptions, results},
    xdr::{Rope, Writer},
};

use super::{
    Call, FileHandle,
    result::{Failure, ok},
};

/// Program number of MOUNT.
pub const PROGRAM: u32 = 100_005;
/// Its version.
pub const VERSION: u32 = 3;
/// Port of the portmapper.
pub const PORTMAPPER_PORT: u16 = 111;

const PROTOCOL_TCP: u32 = 6;

/// MNT of a path.
pub fn mnt(path: &str) -> Call {
    let mut args = Writer::default();
    args.opaque(path.as_bytes());
    Call {
        procedure: Procedure { program: PROGRAM, version: VERSION, procedure: 1 },
        args: args.finish(),
        reply: ReplyOptions::message(24 + 4 + 68 + 4 + 64),
    }
}

/// Result of MNT: the root.
pub fn root(reply: &Rope) -> Result<FileHandle, Failure> {
    Ok(FileHandle::decode(&mut ok(reply)?)?)
}

/// GETPORT of a program over TCP.
pub fn getport(program: u32, version: u32) -> Call {
    let mut args = Writer::default();
    for word in [program, version, PROTOCOL_TCP, 0] {
        args.u32(word);
    }
    Call {
        procedure: Procedure { program: 100_000, version: 2, procedure: 3 },
        args: args.finish(),
        reply: ReplyOptions::message(24 + 4),
    }
}

/// Result of GETPORT; `None` when the program is not registered.
pub fn port(reply: &Rope) -> Result<Option<u16>, Failure> {
    let port = results(reply)?.u32("port")?;
    Ok(u16::try_from(port).ok().filter(|&port| port != 0))
}
