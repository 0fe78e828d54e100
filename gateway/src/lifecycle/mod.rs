//! Start, run, reload, drain.
//!
//! * [`run`][mod@run]: the whole of it
//! * [`start`]: buffers, lanes, listeners
//! * [`ports`]: rpcbind, or our own portmapper
//! * [`rdma`]: the RDMA side
//! * [`services`]: the programs of a lane
//! * [`signals`]: SIGTERM, SIGINT, SIGHUP, SIGUSR1
//! * [`listen`]: TCP listeners
//! * [`banner`]: what is said at the start
//! * [`reload`]: what SIGHUP does
//! * [`statistics`]: what SIGUSR1 and the end say
//! * [`storage`], [`hosts`], [`state`]: exports, names of clients, the key of the file handles
//! * [`resources`], [`logging`]: limits of the process; the log

pub mod banner;
pub mod hosts;
pub mod listen;
pub mod logging;
pub mod ports;
pub mod rdma;
pub mod reload;
pub mod resources;
pub mod run;
pub mod services;
pub mod signals;
pub mod start;
pub mod state;
pub mod statistics;
pub mod storage;
