//! The programs of a lane, driven with the bytes of calls over the memory backend.

mod driver;
mod flows;
mod golden;
mod hostile;
mod listings;
mod panics;
mod policy;
mod replays;
mod starvation;
