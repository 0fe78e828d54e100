//! One owned read, write or sync of a file: how it becomes a submission entry, and how the same thing is
//! done by a plain system call where there is no ring.
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

use buffers::{Lease, Pages};
use bytes::Bytes;
use io_uring::{opcode, squeue, types};
use rustix::io::ReadWriteFlags;

use crate::identity::Identity;

/// What to do with the file; the memory belongs to the operation until it is done.
#[derive(Debug)]
pub enum IoKind {
    /// Read into `into[start..start + len]`.
    Read {
        /// Where to.
        into: Lease,
        /// First byte of the lease to fill.
        start: usize,
        /// How many bytes to read.
        len: usize,
    },
    /// Put pages of the file, up to `len` bytes, into `pages`. Whoever gets the result counts them.
    Splice {
        /// Where to.
        pages: Pages,
        /// How many bytes.
        len: usize,
    },
    /// Write all of these bytes.
    Write {
        /// The bytes.
        data: Bytes,
    },
    /// Make the file stable.
    Sync {
        /// Only the data and what is needed to find it.
        data_only: bool,
    },
}

/// An operation on a file. It owns the file, the memory and the identity until it is done.
#[derive(Debug)]
pub struct Io {
    /// The file.
    pub file: Arc<OwnedFd>,
    /// Position in the file, in bytes.
    pub offset: u64,
    /// `RWF_*` flags.
    pub flags: i32,
    /// With whose rights; `None`: the process's own.
    pub identity: Option<Arc<Identity>>,
    /// What to do.
    pub kind: IoKind,
}

impl Io {
    /// Do it here and now with a plain system call. Like a completion's result: a count, or a negative error
    /// number. Interrupted calls are tried again.
    pub fn run_blocking(&mut self) -> i32 {
        loop {
            let result = self.call();
            match result {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return -error.raw_os_error(),
                Ok(count) => return i32::try_from(count).unwrap_or(i32::MAX),
            }
        }
    }

    fn call(&mut self) -> rustix::io::Result<usize> {
        let flags = ReadWriteFlags::from_bits_retain(self.flags.cast_unsigned());
        match &mut self.kind {
            IoKind::Read { into, start, len } => {
                let Some(part) = into.get_mut(*start..start.saturating_add(*len)) else {
                    return Err(rustix::io::Errno::FAULT);
                };
                let mut parts = [IoSliceMut::new(part)];
                rustix::io::preadv2(&self.file, &mut parts, self.offset, flags)
            }
            IoKind::Splice { pages, len } => {
                pages.splice_from(self.file.as_fd(), self.offset, *len).map_err(|error| {
                    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
                })
            }
            IoKind::Write { data } => {
                rustix::io::pwritev2(&self.file, &[IoSlice::new(data)], self.offset, flags)
            }
            IoKind::Sync { data_only: true } => rustix::fs::fdatasync(&self.file).map(|()| 0),
            IoKind::Sync { data_only: false } => rustix::fs::fsync(&self.file).map(|()| 0),
        }
    }

    /// The submission entry. `slot` is the file's place in the ring's table, `locate` tells in which
    /// registered buffer some bytes lie.
    ///
    /// The entry holds addresses of the lease's or the bytes' memory, which does not move with `self`: whoever
    /// submits it must keep `self` alive until the completion.
    pub(super) fn entry(
        &mut self,
        slot: Option<u32>,
        locate: impl Fn(&[u8]) -> Option<u16>,
    ) -> Option<squeue::Entry> {
        // In an entry a slot number stands where the descriptor would, with a flag that says so.
        let fd = match slot {
            Some(slot) => types::Fd(i32::try_from(slot).ok()?),
            None => types::Fd(self.file.as_raw_fd()),
        };
        let (offset, flags) = (self.offset, self.flags);
        let entry = match &mut self.kind {
            IoKind::Read { into, start, len } => {
                let part = into.get_mut(*start..start.checked_add(*len)?)?;
                let bytes = u32::try_from(part.len()).ok()?;
                match locate(part) {
                    Some(index) => opcode::ReadFixed::new(fd, part.as_mut_ptr(), bytes, index)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Read::new(fd, part.as_mut_ptr(), bytes)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            IoKind::Splice { pages, len } => {
                let bytes = u32::try_from(*len).ok()?;
                let from = i64::try_from(offset).ok()?;
                let pipe = types::Fd(pages.entrance().ok()?.as_raw_fd());
                // The slot of the table would be the pipe's, not the file's.
                let file = types::Fd(self.file.as_raw_fd());
                return Some(opcode::Splice::new(file, from, pipe, -1, bytes).build());
            }
            IoKind::Write { data } => {
                let bytes = u32::try_from(data.len()).ok()?;
                match locate(data) {
                    Some(index) => opcode::WriteFixed::new(fd, data.as_ptr(), bytes, index)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, data.as_ptr(), bytes)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            IoKind::Sync { data_only } => {
                let flags = if *data_only {
                    types::FsyncFlags::DATASYNC
                } else {
                    types::FsyncFlags::empty()
                };
                opcode::Fsync::new(fd).flags(flags).build()
            }
        };
        Some(if slot.is_some() { entry.flags(squeue::Flags::FIXED_FILE) } else { entry })
    }
}
