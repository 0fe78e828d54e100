//! Trouble on purpose: any backend, wrapped so that operations fail, take long, come back in another order,
//! or read and write less than was asked.
//!
//! Everything is decided by a seed and a list of rules, so that a run can be repeated. Rules can be written
//! as text for chaos runs of a whole server (see [`plan::Rule`]).
//!
//! * [`plan`]: the rules
//! * [`backend`]: the wrapper
//! * `held`: completions that are kept back
//! * `alarm`: wakes the lane when a delay is over
//! * `chance`: the random numbers

mod alarm;
pub mod backend;
mod chance;
mod held;
pub mod plan;

pub use backend::FaultBackend;
pub use plan::{Fault, FaultPlan, Rule, Trigger};
