//! A lane for tests: one backend, one thread, one call at a time or many at once.

mod pump;

pub use pump::Lane;
