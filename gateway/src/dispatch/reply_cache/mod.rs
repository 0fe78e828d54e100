//! Replies of calls that must not be carried out twice (the duplicate request cache).
//!
//! * [`key`]: by what a repeated call is recognised
//! * [`cache`]: the replies

pub mod cache;
pub mod key;

pub use cache::{Admission, ReplyCache, Waiter};
pub use key::{Key, KeyHasher};
