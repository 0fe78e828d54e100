//! The gateway: NFS programs over the RPC transports, served from the storage backends.
//!
//! Modules, top to bottom; each uses only what stands below it:
//!
//! * [`cli`], [`lifecycle`]: the command line becomes one valid configuration, again at each reload; start,
//!   signals, drain
//! * [`dispatch`]: program, version and procedure to handler; duplicate requests; admission
//! * [`nfs3`], [`mount`], [`portmap`]: the programs
//! * [`config`]: the TOML file: schema, check, limits report
//! * [`exports`]: what is served to whom; file handles; squashing

pub mod cli;
pub mod config;
pub mod dispatch;
pub mod exports;
pub mod lifecycle;
pub mod mount;
pub mod nfs3;
pub mod portmap;
