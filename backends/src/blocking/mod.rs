//! A small bounded pool of threads for calls that can block.

/// The pool.
#[derive(Debug)]
pub struct BlockingPool;
