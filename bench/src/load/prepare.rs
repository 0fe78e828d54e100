//! Files for the load.

use rpc_rdma::rpc::Credential;

use super::{
    run::{LoadError, LoadSettings},
    worker::{Op, Plan, Worker},
};
use crate::{
    nfs3::{Failure, FileHandle, Nfs3Client, Nfs3Error, Stable, result::READ_HEAD_BYTES},
    pattern,
    target::Connection,
};

/// Size of the writes that fill a file, in bytes.
const FILL_BYTES: usize = 256 << 10;
/// Calls under way while a file is filled.
const FILL_DEPTH: usize = 8;
/// Bytes at either end of a file that must be right if it is to be used again.
const PROBE_BYTES: u64 = 4096;
const STATUS_NOENT: u32 = 2;

/// A worker whose file exists, has the size, and holds the pattern if that matters.
pub(super) fn prepare(
    settings: &LoadSettings,
    root: &FileHandle,
    number: usize,
    credential: &Credential,
) -> Result<Worker, LoadError> {
    let depth = settings.depth.max(FILL_DEPTH);
    let rpc = settings.target.connect(depth)?;
    let mut client = Nfs3Client::new(rpc, credential.clone());
    // The first call on an RDMA connection is a NULL, alone: there is one credit.
    client.null()?;
    let number = number as u64;
    if settings.op == Op::Null {
        return Ok(worker(client, FileHandle(Vec::new()), number));
    }
    let name = format!("aqueduct-bench.{number}");
    let (file, found) = match client.lookup(root, name.as_bytes()) {
        Ok((file, _)) => (file, true),
        Err(Nfs3Error::Failure(Failure::Status(STATUS_NOENT))) => {
            (client.create(root, name.as_bytes())?, false)
        }
        Err(error) => return Err(error.into()),
    };
    let filled = found && is_filled(&mut client, &file, settings.file_bytes, number)?;
    let mut worker = worker(client, file, number);
    if !filled && settings.op != Op::Getattr {
        fill(&mut worker, settings)?;
    }
    if settings.discard && !worker.rpc.keep_at_most(READ_HEAD_BYTES) {
        return Err(LoadError::Discard);
    }
    Ok(worker)
}

fn worker(client: Nfs3Client<Connection>, file: FileHandle, number: u64) -> Worker {
    let Nfs3Client { rpc, credential, .. } = client;
    Worker { rpc, credential, file, number, seed: 0x9e37_79b9_7f4a_7c15 ^ (number << 8) }
}

/// Whether a file that was found holds the pattern, as far as its ends tell.
fn is_filled(
    client: &mut Nfs3Client<Connection>,
    file: &FileHandle,
    bytes: u64,
    number: u64,
) -> Result<bool, LoadError> {
    if client.getattr(file)?.size < bytes {
        return Ok(false);
    }
    let probe = PROBE_BYTES.min(bytes);
    for offset in [0, bytes - probe] {
        let got = client.read(file, offset, probe as u32)?;
        if got.data.len() as u64 != probe || !pattern::matches(number, offset, &got.data) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fill(worker: &mut Worker, settings: &LoadSettings) -> Result<(), LoadError> {
    let size = FILL_BYTES.min(usize::try_from(settings.file_bytes).unwrap_or(FILL_BYTES)).max(1);
    let plan = Plan {
        op: Op::Write,
        size,
        depth: FILL_DEPTH,
        // The last block may end behind the file; then the file is longer, which does not matter.
        file_bytes: settings.file_bytes.next_multiple_of(size as u64),
        random: false,
        verify: true,
        discard: false,
        stable: Stable::Unstable,
        calls: Some(settings.file_bytes.div_ceil(size as u64)),
        time: settings.time,
    };
    let tally = worker.run(&plan)?;
    match tally.first_error {
        Some(error) => Err(LoadError::Fill(error)),
        None => Ok(()),
    }
}
