//! The configuration: from text or arguments to one checked value, or to a list of what is wrong and how
//! to mend it.
//!
//! * [`load`]: the one way in, for `serve`, `check-config` and a reload alike
//! * [`memory`]: the limits, summed
//! * [`check`]: what must hold between keys
//! * [`export`], [`sections`]: the keys as they are written
//! * [`schema`]: the checked value
//! * [`value`]: what keys take; [`read`], [`de`], [`tree`], [`problem`]: serde over a tree with positions
//! * [`machine`]: what the defaults depend on

pub mod check;
pub mod de;
pub mod export;
pub mod load;
pub mod machine;
pub mod memory;
pub mod problem;
pub mod read;
pub mod schema;
pub mod sections;
pub mod tree;
pub mod value;

pub use load::{from_file, from_text, from_tree};
pub use machine::Machine;
pub use problem::{Place, Problem, Problems};
pub use schema::Config;
