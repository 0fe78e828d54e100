//! The one identity that the ring knows besides our own.
//!
//! `sqe.personality` makes the kernel carry out an operation with credentials that were registered before, also
//! on its own worker threads. Data operations go through descriptors that are open, so the kernel asks no more
//! who may read or write; what is left are the side effects of a write by somebody without privileges: set-id
//! bits are cleared, quotas and reserved blocks hold. Nobody's credentials serve for that, whoever the caller
//! is.
//!
//! The registration takes the credentials of the thread that asks, and a lane must never change its own (see
//! `creds::keep`). So the ring is made, disabled, on a thread that has become nobody and ends right after; the
//! lane enables it and is its issuer from then on.

use std::io;

use io_uring::{IoUring, squeue};

use crate::blocking::creds;

/// A disabled ring and the id of nobody's credentials in it; 0 (ourselves) where we cannot be others anyway.
pub struct Made {
    /// The ring, to be enabled by its issuer.
    pub ring: IoUring<squeue::Entry>,
    /// For operations on behalf of ordinary users.
    pub nobody: u16,
}

/// Make a ring with `build` that knows nobody's credentials.
///
/// # Errors
/// When the ring cannot be made, or the credentials cannot be registered.
pub fn make(build: impl FnOnce() -> io::Result<IoUring<squeue::Entry>> + Send) -> io::Result<Made> {
    if !creds::can_switch() {
        return Ok(Made { ring: build()?, nobody: 0 });
    }
    let work = || {
        let ring = build()?;
        creds::become_nobody()?;
        let nobody = ring.submitter().register_personality()?;
        Ok(Made { ring, nobody })
    };
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that makes the ring panicked")))
}
