//! READDIR. The interface goes on after a file id and knows no "." and "..".

use ::nfsserve::{nfs::fileid3, vfs::NFSFileSystem};
use bytes::Bytes;

use super::{
    backend::{Result, Shared},
    convert,
};
use crate::{
    attr::{Attributes, FileKind},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{Entry, NAME_BYTES_MAX, Outcome, ReadDirectory},
    permission::{self, READ},
};

/// Cookie of "."; an entry's cookie is its file id and [`COOKIE_PARENT`] together.
const COOKIE_SELF: u64 = 1;
/// Cookie of "..".
const COOKIE_PARENT: u64 = 2;
/// Bytes that an entry counts besides its name.
const ENTRY_OVERHEAD_BYTES: u64 = 24;
/// Most entries that the file system is asked for at a time.
const BATCH_MAX: u64 = 1024;

/// Entries as they are collected, up to what the caller has room for.
struct Page<'a> {
    args: &'a ReadDirectory,
    entries: Vec<Entry>,
    bytes: u64,
    full: bool,
}

impl Page<'_> {
    fn push(&mut self, name: Bytes, attr: &Attributes, cookie: u64) {
        let bytes = self.bytes + name.len() as u64 + ENTRY_OVERHEAD_BYTES;
        self.full |= bytes > u64::from(self.args.name_bytes_max)
            || self.entries.len() as u64 >= u64::from(self.args.entries_max);
        if self.full {
            return;
        }
        self.bytes = bytes;
        let object = self.args.plus.then(|| (convert::handle(attr.file_id), *attr));
        self.entries.push(Entry { file_id: attr.file_id, cookie, name, object });
    }
}

impl<F: NFSFileSystem + Send + Sync> Shared<F> {
    pub(super) async fn read_directory(
        &self,
        who: &Identity,
        id: fileid3,
        args: &ReadDirectory,
    ) -> Result<Outcome> {
        let step = "readdir";
        let attr = self.attributes(id, step).await?;
        if attr.kind != FileKind::Directory {
            return Err(BackendError::new(ErrorKind::NotDirectory, step));
        }
        permission::require(who, &attr, READ, step)?;
        let mut page = Page { args, entries: Vec::new(), bytes: 0, full: false };
        if args.cookie < COOKIE_SELF {
            page.push(Bytes::from_static(b"."), &attr, COOKIE_SELF);
        }
        if args.cookie < COOKIE_PARENT {
            let parent = self.parent(id).await.unwrap_or(attr);
            page.push(Bytes::from_static(b".."), &parent, COOKIE_PARENT);
        }
        let after = args.cookie.saturating_sub(COOKIE_PARENT);
        let end = !page.full && self.named_entries(id, after, &mut page).await?;
        if page.entries.is_empty() && !end {
            return Err(BackendError::new(ErrorKind::TooSmall, step));
        }
        Ok(Outcome::Entries { entries: page.entries, end })
    }

    /// Fill the page with the entries after `after`; returns whether the last one is in it.
    async fn named_entries(
        &self,
        id: fileid3,
        after: fileid3,
        page: &mut Page<'_>,
    ) -> Result<bool> {
        let by_bytes = u64::from(page.args.name_bytes_max) / (ENTRY_OVERHEAD_BYTES + 1) + 1;
        let batch = by_bytes.min(u64::from(page.args.entries_max)).clamp(1, BATCH_MAX);
        let listed = self.fs.readdir(id, after, batch as usize).await;
        let listed = listed.map_err(convert::object_error("readdir"))?;
        // A page without entries that is not the last would make clients ask for ever.
        let end = listed.end || listed.entries.is_empty();
        for entry in listed.entries {
            let dots = matches!(&entry.name[..], b"." | b"..");
            let cookie = entry.fileid.checked_add(COOKIE_PARENT);
            let (Some(cookie), 1..=NAME_BYTES_MAX, false) = (cookie, entry.name.len(), dots) else {
                continue;
            };
            let attr = convert::attributes(&entry.attr);
            let attr = Attributes { file_id: entry.fileid, ..attr };
            page.push(Bytes::from(entry.name.0), &attr, cookie);
        }
        Ok(end && !page.full)
    }

    /// Whether a directory has no entries.
    pub(super) async fn is_empty(&self, id: fileid3, step: &'static str) -> Result<bool> {
        let listed = self.fs.readdir(id, 0, 3).await.map_err(convert::object_error(step))?;
        Ok(listed.entries.iter().all(|entry| matches!(&entry.name[..], b"." | b"..")))
    }

    /// The directory above, when the file system can tell; the root's is itself.
    pub(super) async fn parent(&self, id: fileid3) -> Result<Attributes> {
        let parent = if id == self.fs.root_dir() {
            id
        } else {
            let name = b".."[..].into();
            self.fs.lookup(id, &name).await.map_err(convert::error("lookup"))?
        };
        self.attributes(parent, "lookup").await
    }
}
