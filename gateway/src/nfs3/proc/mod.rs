//! The procedures, one file each (RFC 1813 section 3.3), and the table of them.

mod access;
mod capability;
mod commit;
mod create;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod listing;
mod lookup;
mod mkdir;
mod mknod;
mod null;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod remove;
mod rename;
mod rmdir;
mod setattr;
mod symlink;
mod table;
mod write;

pub use table::{Request, cacheable, failure, has_procedure, procedure_name};
