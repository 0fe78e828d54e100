//! One connection under load.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use rpc_rdma::{
    client::{ClientError, Reply, RpcClient},
    rpc::Credential,
    xdr::Rope,
};

use crate::{
    histogram::Histogram,
    nfs3::{Call, FileHandle, Stable, call, result},
    pattern,
    target::Connection,
};

/// How long to sleep at most while replies are awaited.
const WAIT: Duration = Duration::from_millis(100);
/// Without any reply for so long the server counts as stuck.
const STUCK: Duration = Duration::from_secs(30);

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Op {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// GETATTR of the file.
    Getattr,
    /// NULL.
    Null,
    /// Seven READs to three WRITEs.
    Mixed,
}

/// What one connection has to do.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub op: Op,
    pub size: usize,
    pub depth: usize,
    pub file_bytes: u64,
    pub random: bool,
    pub verify: bool,
    /// Only the heads of the replies come.
    pub discard: bool,
    pub stable: Stable,
    /// Stop after so many calls, or after so long.
    pub calls: Option<u64>,
    pub time: Duration,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub calls: u64,
    pub bytes: u64,
    pub errors: u64,
    pub first_error: Option<String>,
    pub latency: Histogram,
}

impl Tally {
    pub(super) fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.latency.merge(&other.latency);
    }

    fn fail(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }
}

#[derive(Debug, Clone, Copy)]
struct Issued {
    at: Instant,
    op: Op,
    offset: u64,
}

/// A connection with its file.
pub(super) struct Worker {
    pub rpc: Connection,
    pub credential: Credential,
    pub file: FileHandle,
    /// Number of the file, which decides its content.
    pub number: u64,
    pub seed: u64,
}

impl Worker {
    /// Carry out a plan.
    pub(super) fn run(&mut self, plan: &Plan) -> Result<Tally, ClientError> {
        let mut tally = Tally::default();
        let mut under_way = HashMap::with_capacity(plan.depth * 2);
        let mut replies = Vec::new();
        let (mut issued, mut position) = (0, 0);
        let start = Instant::now();
        let mut last_reply = start;
        // Without verification the content does not matter, and making it would cost more than sending it.
        let block = Bytes::from(vec![0x5a; plan.size]);
        loop {
            let over = match plan.calls {
                Some(calls) => issued >= calls,
                None => start.elapsed() >= plan.time,
            };
            if over && under_way.is_empty() {
                return Ok(tally);
            }
            let more = |issued| !over && plan.calls.is_none_or(|calls| issued < calls);
            while under_way.len() < plan.depth && more(issued) {
                let (xid, call) = self.issue(plan, issued, &mut position, &block)?;
                under_way.insert(xid, call);
                issued += 1;
            }
            self.rpc.poll(&mut replies)?;
            if replies.is_empty() {
                if last_reply.elapsed() > STUCK {
                    return Err(ClientError::TimedOut(STUCK));
                }
                self.rpc.wait(WAIT);
                continue;
            }
            last_reply = Instant::now();
            for reply in replies.drain(..) {
                if let Some(issued) = under_way.remove(&reply.xid) {
                    let latency = last_reply.saturating_duration_since(issued.at);
                    self.check(plan, issued, reply, latency, &mut tally);
                }
            }
        }
    }

    fn issue(
        &mut self,
        plan: &Plan,
        number: u64,
        position: &mut u64,
        block: &Bytes,
    ) -> Result<(u32, Issued), ClientError> {
        let op = match plan.op {
            Op::Mixed if number % 10 < 7 => Op::Read,
            Op::Mixed => Op::Write,
            op => op,
        };
        let offset = self.offset(plan, position);
        let Call { procedure, args, reply } = match op {
            Op::Read | Op::Mixed => call::read(&self.file, offset, plan.size as u32),
            Op::Write => {
                let data = match plan.verify {
                    true => {
                        let mut data = vec![0; plan.size];
                        pattern::fill(self.number, offset, &mut data);
                        data.into()
                    }
                    false => block.clone(),
                };
                call::write(&self.file, offset, plan.stable, data)
            }
            Op::Getattr => call::getattr(&self.file),
            Op::Null => call::null(),
        };
        let at = Instant::now();
        let xid = self.rpc.call(procedure, &self.credential, args, reply)?;
        Ok((xid, Issued { at, op, offset }))
    }

    /// The next offset: a multiple of the size such that the whole block lies in the file.
    fn offset(&mut self, plan: &Plan, position: &mut u64) -> u64 {
        let blocks = (plan.file_bytes / plan.size.max(1) as u64).max(1);
        let block = match plan.random {
            true => {
                // xorshift64; the seed is not 0.
                self.seed ^= self.seed << 13;
                self.seed ^= self.seed >> 7;
                self.seed ^= self.seed << 17;
                self.seed % blocks
            }
            false => {
                let block = *position % blocks;
                *position += 1;
                block
            }
        };
        block * plan.size as u64
    }

    fn check(
        &self,
        plan: &Plan,
        issued: Issued,
        reply: Reply,
        latency: Duration,
        tally: &mut Tally,
    ) {
        let checked = match reply.result {
            Ok(rope) => self.check_results(plan, issued, &rope),
            Err(fault) => Err(fault.to_string()),
        };
        match checked {
            Ok(bytes) => {
                tally.calls += 1;
                tally.bytes += bytes as u64;
                tally.latency.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
            }
            Err(error) => tally.fail(format!("{:?} at {}: {error}", issued.op, issued.offset)),
        }
    }

    /// Payload bytes of the reply, or what is wrong with it.
    fn check_results(&self, plan: &Plan, issued: Issued, reply: &Rope) -> Result<usize, String> {
        match issued.op {
            Op::Read | Op::Mixed if plan.discard => {
                match result::read_head(reply).map_err(|e| e.to_string())? as usize {
                    count if count == plan.size => Ok(count),
                    count => Err(format!("{count} bytes instead of {}", plan.size)),
                }
            }
            Op::Read | Op::Mixed => {
                let got = result::read(reply).map_err(|e| e.to_string())?;
                if got.data.len() != plan.size {
                    return Err(format!("{} bytes instead of {}", got.data.len(), plan.size));
                }
                if plan.verify && !pattern::matches(self.number, issued.offset, &got.data) {
                    return Err("wrong data".to_owned());
                }
                Ok(got.data.len())
            }
            Op::Write => {
                let written = result::write(reply).map_err(|e| e.to_string())?;
                if written.count as usize != plan.size {
                    return Err(format!("{} bytes instead of {}", written.count, plan.size));
                }
                if written.committed < plan.stable as u32 {
                    return Err(format!("stable_how {} is too weak", written.committed));
                }
                Ok(plan.size)
            }
            Op::Getattr => result::getattr(reply).map(|_| 0).map_err(|e| e.to_string()),
            Op::Null => result::null(reply).map(|()| 0).map_err(|e| e.to_string()),
        }
    }
}
