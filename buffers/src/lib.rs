//! The one memory that every device of the gateway shares.
//!
//! Payload bytes travel drive → buffer → wire and wire → buffer → drive. For that the same pages must be
//! known to the network adapter (a memory region) and to io_uring (fixed buffers), so the memory is mapped
//! once, early, and handed out in pieces:
//!
//! * [`arena`]: the mapping itself, in chunks of at most 1 GiB, on huge pages where there are any.
//! * [`pool`]: size classes over a part of the arena, one pool for each lane.
//! * [`lease`]: a piece in somebody's hand; it goes back to its pool when it is dropped.
//! * [`line`]: who waits for a piece.
//! * [`pages`]: pages of the page cache that go to a socket by reference.
//! * [`copies`]: the counter of payload bytes that were copied by the CPU in our code.
//!
//! A lease becomes [`bytes::Bytes`] without a copy ([`Lease::freeze`]); whoever gets such `Bytes` asks the
//! arena ([`Arena::locate`]) whether they lie in registered memory.

pub mod arena;
pub mod copies;
pub mod lease;
pub mod line;
pub mod pages;
pub mod payload;
pub mod pool;

pub use arena::{Arena, ArenaError, Location};
pub use lease::Lease;
pub use line::Place;
pub use pages::{PagePool, Pages};
pub use payload::Payload;
pub use pool::{Pool, PoolLayout, PoolStats};
