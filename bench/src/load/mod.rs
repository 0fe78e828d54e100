//! A pipelined NFSv3 load: so many connections, each on its own thread with a file of its own, each with so
//! many calls under way.

mod prepare;
mod run;
mod worker;

pub use run::{LoadError, LoadSettings, run};
pub use worker::Op;
