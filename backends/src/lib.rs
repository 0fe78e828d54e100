//! Where the data lives.
//!
//! A backend takes owned operations ([`op::Request`]) and gives owned completions ([`op::Completion`]); it
//! knows nothing of RPC or NFS versions. Modules, top to bottom; each uses only what stands below it:
//!
//! * [`fault`]: wraps any backend with errors, delays and short I/O
//! * [`nfsserve`]: any `nfsserve::vfs::NFSFileSystem` as a backend
//! * [`memory`]: the reference model
//! * [`local`]: files of a local file system
//! * [`backend`]: the trait, and what a lane gives to it
//! * [`uring`]: the lane's io_uring
//! * [`blocking`]: a small bounded pool of threads for calls that can block
//! * [`permission`]: the rules of mode bits, for backends that no kernel checks
//! * [`op`], [`attr`], [`error`], [`identity`], [`handle`]: the vocabulary

pub mod attr;
pub mod backend;
pub mod blocking;
pub mod error;
pub mod fault;
pub mod handle;
pub mod identity;
pub mod local;
pub mod memory;
pub mod nfsserve;
pub mod op;
pub mod permission;
pub mod uring;

pub use attr::{Attributes, FileKind, Timestamp};
pub use backend::{Backend, Capabilities, LaneBackend, LaneResources};
pub use error::{BackendError, ErrorKind};
pub use handle::ObjectHandle;
pub use identity::Identity;
pub use op::{Completion, Operation, Outcome, Request, Token};
