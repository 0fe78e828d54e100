//! The whole server in this process, from transport to backend, with files in memory: what one core can do
//! without network and drive.
//!
//! The client runs on threads of its own; the server's lanes are told apart by the names of their threads,
//! so that their CPU time can be had by itself.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use backends::{
    LaneResources,
    blocking::BlockingPool,
    memory::{MemoryBackend, MemorySettings},
};
use buffers::{Arena, ArenaError, PoolLayout, copies, pool::Carver};
use gateway::{
    dispatch::{LaneService, Limits, Shared},
    exports::{
        ClientRules, Export, ExportSettings, ExportTable, Exports, HandleKey, Rights, Squash,
        TableError,
    },
};
use rpc_rdma::{
    driver::{
        ConnectionLimits, Lane, LaneContext, LaneHandle, LaneSettings, rdma::RdmaSettings,
        stream::StreamSettings,
    },
    service::Service,
    soft::{Fabric, FabricSettings, Violations},
    wire::WireError,
};

use crate::{
    load::{self, LoadError, LoadSettings},
    report::{Report, threads_cpu},
    target::Target,
};

/// Path of the one export.
pub const EXPORT: &str = "/bench";

/// Names of the lanes' threads begin with this; nobody else's does.
const LANE_NAME: &str = "bench-lane";
const LANE_POOL_BYTES: usize = 64 << 20;
const DRAIN: Duration = Duration::from_secs(5);

/// How the client reaches the server in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// RPC-over-RDMA over the soft fabric.
    Soft,
    /// TCP over the loopback device.
    Tcp,
}

/// Why the server in this process did not serve.
#[derive(Debug, thiserror::Error)]
pub enum SoftError {
    /// Threads, sockets.
    #[error("cannot start the server: {0}")]
    Start(#[from] io::Error),
    /// Buffers.
    #[error(transparent)]
    Buffers(#[from] ArenaError),
    /// The export.
    #[error(transparent)]
    Export(#[from] TableError),
    /// The fabric.
    #[error("the soft fabric refuses: {0}")]
    Fabric(#[from] WireError),
    /// The load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A device would have punished what the server did.
    #[error("the server broke rules of RDMA: {0:?}")]
    Violations(Violations),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// How to reach it.
    pub target: Target,
    fabric: Arc<Fabric>,
    lanes: Vec<LaneHandle>,
}

impl Server {
    /// Start `lanes` lanes over files in memory, of at most `bytes` altogether.
    ///
    /// # Errors
    /// When something it needs cannot be had.
    pub fn start(
        transport: Transport,
        lanes: usize,
        spin: Duration,
        bytes: u64,
    ) -> Result<Self, SoftError> {
        Self::over(transport, lanes, spin, exports(bytes)?)
    }

    /// Start `lanes` lanes that serve these exports.
    ///
    /// # Errors
    /// When something it needs cannot be had.
    pub fn over(
        transport: Transport,
        lanes: usize,
        spin: Duration,
        exports: Arc<Exports>,
    ) -> Result<Self, SoftError> {
        let shared = Shared::new(exports, HandleKey::random()?, Limits::default());
        let blocking = BlockingPool::start(1, 64)?;
        let layout = PoolLayout::within(LANE_POOL_BYTES);
        let mut carver = Carver::new(Arena::map(layout.bytes() * lanes + (4 << 20))?);
        let limits = ConnectionLimits::new(4096, 4096, 4096);
        let fabric = Fabric::new(FabricSettings::default());
        let (listener, target) = match transport {
            Transport::Soft => (None, Target::Soft(fabric.clone())),
            Transport::Tcp => {
                let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                let listener = TcpListener::bind(any)?;
                let address = listener.local_addr()?;
                (Some(listener), Target::Tcp(address))
            }
        };
        let mut server = Self { target, fabric, lanes: Vec::new() };
        for number in 0..lanes {
            let settings = LaneSettings {
                name: format!("{LANE_NAME}{number}"),
                cpu: None,
                spin,
                stream: StreamSettings::default(),
                rdma: RdmaSettings::default(),
                limits: limits.clone(),
            };
            let (shared, blocking) = (shared.clone(), blocking.clone());
            let make = move |context: &LaneContext| {
                let resources = LaneResources {
                    pool: context.pool.clone(),
                    ring: None,
                    blocking,
                    waker: context.waker.clone(),
                };
                Ok(Box::new(LaneService::new(shared, resources)?) as Box<dyn Service>)
            };
            let pool = carver.pool(layout);
            let lane = Lane::spawn(settings, pool.clone(), Box::new(make))?;
            match &listener {
                Some(listener) => lane.listen_tcp(listener.try_clone()?)?,
                None => {
                    let provider = server.fabric.provider(pool.arena().clone())?;
                    lane.add_provider(Box::new(provider))?;
                }
            }
            server.lanes.push(lane);
        }
        Ok(server)
    }

    /// End it, in order.
    ///
    /// # Errors
    /// When it broke a rule while it ran.
    pub fn stop(self) -> Result<(), SoftError> {
        for lane in self.lanes {
            // The thread ends once it has drained, which `join` waits for.
            drop(lane.drain(DRAIN)?);
            lane.join();
        }
        match self.fabric.violations() {
            none if none == Violations::default() => Ok(()),
            violations => Err(SoftError::Violations(violations)),
        }
    }
}

fn exports(bytes: u64) -> Result<Arc<Exports>, TableError> {
    let backend =
        MemoryBackend::new(MemorySettings { bytes_max: bytes, ..MemorySettings::default() });
    let settings = ExportSettings {
        id: 1,
        path: EXPORT.to_owned(),
        origin: "memory".to_owned(),
        read_only: false,
        squash: Squash::None,
        anonymous_uid: 65534,
        anonymous_gid: 65534,
        clients: ClientRules::everyone(Rights::ReadWrite),
        require_reserved_port: false,
    };
    let export = Arc::new(Export::new(settings, backend));
    Ok(Exports::new(ExportTable::new(vec![export])?))
}

/// Memory that a load needs: its files, twice while they are overwritten, and some room.
pub fn memory_bytes(settings: &LoadSettings) -> u64 {
    let files = settings.file_bytes.saturating_mul(settings.connections as u64);
    files.saturating_mul(2).saturating_add(64 << 20)
}

/// Carry out a load on a server that runs; the report says what its lanes took.
///
/// # Errors
/// When the load could not be carried out.
pub fn measure(settings: &LoadSettings) -> Result<Report, SoftError> {
    let (mut lanes, mut copied) = (Duration::ZERO, 0);
    let mut report = load::run(settings, || {
        lanes = threads_cpu(LANE_NAME);
        copied = copies::total();
    })?;
    let lanes = (threads_cpu(LANE_NAME) - lanes).as_secs_f64();
    if report.calls > 0 {
        report.lane_cpu_us_per_call = Some(lanes * 1e6 / report.calls as f64);
        report.ops_per_lane_cpu_second = Some(report.calls as f64 / lanes.max(1e-9));
    }
    report.payload_bytes_copied = Some(copies::total() - copied);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Op;

    fn settings(target: Target, op: Op, size: usize) -> LoadSettings {
        LoadSettings {
            target,
            export: EXPORT.to_owned(),
            mount_port: None,
            op,
            size,
            depth: 8,
            connections: 2,
            time: Duration::from_secs(1),
            calls: Some(50),
            file_bytes: 1 << 20,
            random: true,
            verify: true,
            discard: false,
            stable: false,
            ids: (0, 0),
        }
    }

    #[test]
    fn every_load_over_every_transport_comes_back_right() {
        for transport in [Transport::Soft, Transport::Tcp] {
            let server = Server::start(transport, 2, Duration::ZERO, 64 << 20).unwrap();
            for op in [Op::Null, Op::Getattr, Op::Read, Op::Write, Op::Mixed] {
                for size in [1000, 4096, 65536] {
                    let settings = settings(server.target.clone(), op, size);
                    let report = measure(&settings).unwrap();
                    assert_eq!((report.calls, report.errors), (100, 0), "{:?}", report.first_error);
                }
            }
            let read = settings(server.target.clone(), Op::Read, 65536);
            let thrown_away = measure(&LoadSettings { verify: false, discard: true, ..read });
            match transport {
                Transport::Tcp => assert_eq!(thrown_away.unwrap().calls, 100),
                Transport::Soft => assert!(thrown_away.is_err(), "nothing can be thrown away"),
            }
            server.stop().unwrap();
        }
    }
}
