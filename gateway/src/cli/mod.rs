//! The command line: its arguments become one valid configuration early, by the same checks as a file.
//!
//! * [`arguments`]: what can be written
//! * [`source`]: arguments and file, laid over each other
//! * [`run`]: the subcommands
//! * [`doctor`]: what this machine offers

pub mod arguments;
pub mod doctor;
pub mod run;
pub mod source;

pub use run::run;
