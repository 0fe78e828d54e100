//! The lane's io_uring: owned operations on files, completed on the lane's own thread.

mod files;
pub mod op;
mod personality;
mod ring;

pub use op::{Io, IoKind};
pub use ring::{IoDone, LaneRing, RingOwner, RingSettings};
