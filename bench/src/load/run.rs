//! The whole load: prepare every connection, start them together, add up.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use rpc_rdma::{
    client::ClientError,
    rpc::{AuthSys, Credential},
};

use super::{
    prepare::prepare,
    worker::{Op, Plan, Tally},
};
use crate::{
    nfs3::{FileHandle, Nfs3Error, Stable},
    report::{Latency, Report, process_cpu},
    target::{ConnectError, RootError, Target},
};

/// What to do.
#[derive(Debug, Clone)]
pub struct LoadSettings {
    /// To whom.
    pub target: Target,
    /// Path of the export.
    pub export: String,
    /// Port of MOUNT, when it is neither the server's own nor known to its portmapper.
    pub mount_port: Option<u16>,
    /// What.
    pub op: Op,
    /// Bytes of one read or write.
    pub size: usize,
    /// Calls under way on each connection.
    pub depth: usize,
    /// Connections, each with its own thread and file.
    pub connections: usize,
    /// How long.
    pub time: Duration,
    /// Stop after so many calls on each connection instead.
    pub calls: Option<u64>,
    /// Size of each file, in bytes.
    pub file_bytes: u64,
    /// Random offsets instead of sequential ones.
    pub random: bool,
    /// Check what is read, and write what can be checked.
    pub verify: bool,
    /// Have the system throw away the data of READs.
    pub discard: bool,
    /// Ask for stable writes.
    pub stable: bool,
    /// Who calls: user and group.
    pub ids: (u32, u32),
}

/// Why there was no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No root.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The files could not be made.
    #[error("preparing the files: {0}")]
    Prepare(#[from] Nfs3Error),
    /// The files could not be filled.
    #[error("filling the files: {0}")]
    Fill(String),
    /// Data comes by RDMA: nothing is there to throw away.
    #[error("--discard works over TCP alone")]
    Discard,
    /// A connection broke under load.
    #[error("under load: {0}")]
    Client(#[from] ClientError),
}

/// Carry out a load. `started` is called when the files are ready and the clock starts.
///
/// # Errors
/// When it could not be carried out to its end. Calls that fail are counted, and are no error.
pub fn run(settings: &LoadSettings, started: impl FnOnce()) -> Result<Report, LoadError> {
    let (uid, gid) = settings.ids;
    let credential = AuthSys::new(uid, gid, &[]).map_or(Credential::None, Credential::Sys);
    let root = match settings.op {
        Op::Null => FileHandle(Vec::new()),
        _ => settings.target.root(&settings.export, settings.mount_port, &credential)?,
    };
    let plan = Plan {
        op: settings.op,
        size: settings.size,
        depth: settings.depth,
        file_bytes: settings.file_bytes,
        random: settings.random,
        verify: settings.verify,
        discard: settings.discard,
        stable: if settings.stable { Stable::FileSync } else { Stable::Unstable },
        calls: settings.calls,
        time: settings.time,
    };
    let barrier = Barrier::new(settings.connections + 1);
    let one = |number: usize| -> Result<Tally, LoadError> {
        let worker = prepare(settings, &root, number, &credential);
        barrier.wait();
        Ok(worker?.run(&plan)?)
    };
    let (tally, seconds, cpu) = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..settings.connections).map(|number| scope.spawn(move || one(number))).collect();
        barrier.wait();
        started();
        let (start, cpu) = (Instant::now(), process_cpu());
        let mut sum = Tally::default();
        let mut failed = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(tally)) => sum.merge(tally),
                Ok(Err(error)) => failed = failed.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        match failed {
            Some(error) => Err(error),
            None => Ok((sum, seconds, process_cpu() - cpu)),
        }
    })?;
    Ok(report(settings, &tally, seconds, cpu))
}

fn report(settings: &LoadSettings, tally: &Tally, seconds: f64, cpu: Duration) -> Report {
    Report {
        target: settings.target.to_string(),
        op: format!("{:?}", settings.op).to_lowercase(),
        size: settings.size,
        depth: settings.depth,
        connections: settings.connections,
        random: settings.random,
        verify: settings.verify,
        discard: settings.discard,
        seconds,
        calls: tally.calls,
        ops_per_second: tally.calls as f64 / seconds,
        mib_per_second: tally.bytes as f64 / seconds / f64::from(1 << 20),
        latency_us: Latency::from(&tally.latency),
        errors: tally.errors,
        first_error: tally.first_error.clone(),
        process_cpu_seconds: cpu.as_secs_f64(),
        lane_cpu_us_per_call: None,
        ops_per_lane_cpu_second: None,
        payload_bytes_copied: None,
    }
}
