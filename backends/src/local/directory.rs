//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17).
//!
//! A cookie is the position that the file system itself gives after an entry (`d_off`), moved by three: 0 is
//! the start, 1 and 2 are never given, because NFSv4 reserves them. File systems keep positions stable while
//! names come and go and across restarts, so nothing is kept here between two pages.

use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use bytes::Bytes;
use rustix::{
    fs::{OFlags, RawDir, SeekFrom},
    io::Errno,
};

use crate::{
    attr::{Around, Attributes, FileKind},
    blocking::creds,
    error::{BackendError, ErrorKind},
    handle::ObjectHandle,
    identity::Identity,
    op::{Entry, Outcome, ReadDirectory},
};

use super::{
    attr::{Stat, stat},
    backend::{Arounds, LocalBackend},
    lookup::open_child,
    open_file::OpenFile,
};

const COOKIE_SHIFT: u64 = 3;
const BUFFER_BYTES: usize = 32 << 10;
/// Entries in one answer, whatever the client asks for: bounds the work of one call.
const ENTRIES_MAX: u32 = 8192;
/// What an entry costs besides its name, in bytes.
const ENTRY_BYTES: usize = 24;

fn position_of(cookie: u64) -> Result<u64, BackendError> {
    match cookie {
        0 => Ok(0),
        1 | 2 => Err(BackendError::new(ErrorKind::BadCookie, "readdir")),
        cookie => Ok(cookie.wrapping_sub(COOKIE_SHIFT)),
    }
}

impl LocalBackend {
    /// One page of a directory.
    pub(super) fn read_directory(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        asked: &ReadDirectory,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let about = stat(&directory.path)?;
        around.first = Around::after(about.attributes);
        if directory.kind != FileKind::Directory {
            return Err(BackendError::new(ErrorKind::NotDirectory, "readdir"));
        }
        let position = position_of(asked.cookie)?;
        let fd = open_listing(who, directory)?;
        if position != 0 {
            rustix::fs::seek(&fd, SeekFrom::Start(position)).map_err(seek_failed)?;
        }
        let is_root = about.same_object(&self.root_stat);
        let (mut entries, end) = self.page(&fd, asked, is_root)?;
        if asked.plus {
            creds::with(who, || {
                for entry in &mut entries {
                    entry.object = self.object_of(directory, &about, is_root, entry);
                }
            })
            .map_err(|error| BackendError::from_io(error, "setfsuid"))?;
        }
        around.first = self.after(directory);
        Ok(Outcome::Entries { entries, end })
    }

    fn page(
        &self,
        fd: &OwnedFd,
        asked: &ReadDirectory,
        is_root: bool,
    ) -> Result<(Vec<Entry>, bool), BackendError> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut listing = RawDir::new(fd, &mut buffer);
        let mut entries = Vec::new();
        let mut left = asked.name_bytes_max as usize;
        while let Some(next) = listing.next() {
            let next = next.map_err(|errno| BackendError::from_io(errno.into(), "getdents64"))?;
            let name = next.file_name().to_bytes();
            let cost = name.len() + ENTRY_BYTES;
            if cost > left || entries.len() as u64 >= u64::from(asked.entries_max.min(ENTRIES_MAX))
            {
                if entries.is_empty() {
                    return Err(BackendError::new(ErrorKind::TooSmall, "readdir"));
                }
                return Ok((entries, false));
            }
            left -= cost;
            let above_root = is_root && name == b"..";
            let file_id =
                if above_root { self.root_stat.attributes.file_id } else { next.ino().max(1) };
            entries.push(Entry {
                file_id,
                cookie: next.next_entry_cookie().wrapping_add(COOKIE_SHIFT),
                name: Bytes::copy_from_slice(name),
                object: None,
            });
        }
        Ok((entries, true))
    }

    /// Handle and attributes of an entry, as far as the caller may look. An entry that has vanished, or that
    /// another file system is mounted on, has none.
    fn object_of(
        &self,
        directory: &OpenFile,
        about: &Stat,
        is_root: bool,
        entry: &Entry,
    ) -> Option<(ObjectHandle, Attributes)> {
        match &entry.name[..] {
            b"." => Some((directory.handle, about.attributes)),
            b".." if is_root => Some((directory.handle, about.attributes)),
            // Whether the parent is still inside the export is LOOKUP's business.
            b".." => None,
            name => {
                let fd = open_child(directory, name, false).ok()?;
                let about = stat(&fd).ok()?;
                let handle = self.handle_of(&fd, &about, directory, name).ok()?;
                Some((handle, about.attributes))
            }
        }
    }
}

/// A fresh descriptor to list with, opened as the caller.
fn open_listing(who: &Identity, directory: &OpenFile) -> Result<OwnedFd, BackendError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    creds::with(who, || directory.reopen(flags))
        .and_then(|opened| opened)
        .map_err(|error| BackendError::from_io(error, "open"))
}

fn seek_failed(errno: Errno) -> BackendError {
    match errno {
        Errno::INVAL | Errno::OVERFLOW => BackendError {
            kind: ErrorKind::BadCookie,
            operation: "lseek",
            source: Some(errno.into()),
        },
        errno => BackendError::from_io(errno.into(), "lseek"),
    }
}
