//! The responder's side of an RPC-over-RDMA connection (RFC 8166) as a state machine without I/O.
//!
//! Whoever drives a [`Connection`] tells it what has happened, with the time, and then carries out the actions
//! that it asks for. Every call gets exactly one message back, or the connection closes: a silent drop would
//! cost the client a credit for ever.
//!
//! The life of a connection is the table in [`state`]. The life of a call:
//!
//! ```text
//! message ─┬─ no Read chunk ──────────────────────────────┐
//!          └─ Gathering: lease → RDMA Reads → … → lease ──┴─ Executing ── reply ─ Preparing: leases ─ Queued ─ Sending
//!          └─ header refused ────────────────────────────────────────────────────┘
//! ```

mod action;
mod budget;
mod calls;
mod connection;
mod draft;
mod gather;
mod meter;
mod replies;
mod send_queue;
mod settings;
pub mod state;
mod table;

pub use action::{Action, CloseReason, Counters};
pub use connection::Connection;
pub use settings::{CALL_BYTES_MAX, Settings, Terms};
pub use state::State;
pub use table::CallId;
