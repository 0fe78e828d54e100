//! NFS version 3 (RFC 1813): one file for each procedure, over the operations of the backends.
//!
//! Nothing here touches a socket, a clock or a lock: a call's arguments become a [`Request`], the request a
//! [`Plan`] for one backend operation, and what the operation gave becomes the results. Admission (exports,
//! squashing) and the life of a call stand above, in `dispatch`.

pub mod attr;
pub mod name;
pub mod proc;
pub mod reply;
pub mod scope;
pub mod status;
pub mod types;

pub use proc::{Request, cacheable, failure, has_procedure, procedure_name};
pub use reply::Reply;
pub use scope::{Done, Plan, Scope};
pub use status::Status;
