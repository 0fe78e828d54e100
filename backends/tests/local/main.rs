//! The local backend through its public interface: every operation, with and without io_uring, in every way
//! of moving data.

mod attributes;
mod data;
mod directories;
mod handles;
mod identities;
mod lane;
mod names;
mod stress;
