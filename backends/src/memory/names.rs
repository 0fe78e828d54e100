//! Operations on directory entries: look up, list, create, remove, rename, link.
//!
//! Checks come in the order in which Linux makes them, so that both give the same error when there are
//! several reasons to fail.

use bytes::Bytes;

use super::{
    data::FileData,
    directory::{COOKIE_PARENT, COOKIE_SELF, Directory},
    inode::{Content, Inode},
    tree::{Id, LINKS_MAX, Tree, require_name},
};
use crate::{
    attr::{Attributes, Changes, Device, FileKind, SetTime, Timestamp},
    error::{BackendError, ErrorKind},
    identity::Identity,
    op::{CreateHow, Entry, LINK_BYTES_MAX, NodeKind, Outcome, ReadDirectory},
    permission::{self, EXECUTE, READ, SET_GID, WRITE},
};

type Result<T> = std::result::Result<T, BackendError>;

/// Bytes that an entry counts in a listing besides its name.
const ENTRY_OVERHEAD_BYTES: u64 = 24;

fn fail<T>(kind: ErrorKind, step: &'static str) -> Result<T> {
    Err(BackendError::new(kind, step))
}

impl Tree {
    /// Go into a directory: what it holds, for somebody who may search it.
    fn search(&self, who: &Identity, directory: Id, step: &'static str) -> Result<&Directory> {
        let content = self.directory(directory, step)?;
        permission::require(who, &self.attributes(directory, step)?, EXECUTE, step)?;
        Ok(content)
    }

    /// What a name leads to, for somebody who may search the directory.
    fn find(&self, who: &Identity, directory: Id, name: &[u8], step: &'static str) -> Result<Id> {
        let found = self.search(who, directory, step)?.get(name);
        found.ok_or_else(|| BackendError::new(ErrorKind::NotFound, step))
    }

    pub(super) fn lookup(&self, who: &Identity, directory: Id, name: &[u8]) -> Result<Outcome> {
        let content = self.search(who, directory, "lookup")?;
        let id = match name {
            b"." => directory,
            b".." => content.parent,
            _ => {
                require_name(name, "lookup")?;
                self.find(who, directory, name, "lookup")?
            }
        };
        let attributes = self.attributes(id, "lookup")?;
        Ok(Outcome::Found { object: self.handle(id), attributes })
    }

    pub(super) fn read_directory(
        &self,
        who: &Identity,
        id: Id,
        args: &ReadDirectory,
    ) -> Result<Outcome> {
        let step = "readdir";
        let directory = self.directory(id, step)?;
        permission::require(who, &self.attributes(id, step)?, READ, step)?;
        if !directory.knows(args.cookie) {
            return fail(ErrorKind::BadCookie, step);
        }
        let dots = [(COOKIE_SELF, ".", id), (COOKIE_PARENT, "..", directory.parent)];
        let dots = dots
            .into_iter()
            .filter(|&(cookie, ..)| cookie > args.cookie)
            .map(|(cookie, name, id)| (cookie, Bytes::from_static(name.as_bytes()), id));
        let named = directory.after(args.cookie.max(COOKIE_PARENT));
        let mut all = dots.chain(named.map(|(cookie, name, id)| (cookie, name.clone(), id)));

        let (mut entries, mut bytes) = (Vec::new(), 0_u64);
        let end = loop {
            let Some((cookie, name, id)) = all.next() else { break true };
            bytes += name.len() as u64 + ENTRY_OVERHEAD_BYTES;
            let full = entries.len() as u64 >= u64::from(args.entries_max)
                || bytes > u64::from(args.name_bytes_max);
            if full {
                break false;
            }
            let attributes = self.attributes(id, step)?;
            let object = args.plus.then(|| (self.handle(id), attributes));
            entries.push(Entry { file_id: attributes.file_id, cookie, name, object });
        };
        if entries.is_empty() && !end {
            return fail(ErrorKind::TooSmall, step);
        }
        Ok(Outcome::Entries { entries, end })
    }

    pub(super) fn create(
        &mut self,
        who: &Identity,
        directory: Id,
        name: Bytes,
        how: CreateHow,
    ) -> Result<Outcome> {
        let step = "create";
        require_name(&name, step)?;
        let existing = self.search(who, directory, step)?.get(&name);
        if let Some(id) = existing {
            return self.create_over(who, id, how);
        }
        let (changes, verifier) = match how {
            CreateHow::Unchecked(changes) | CreateHow::Guarded(changes) => (changes, None),
            CreateHow::Exclusive(verifier) => (Changes::default(), Some(verifier)),
        };
        let content = Content::Regular(FileData::default());
        let id = self.make(who, directory, name, &changes, content, step)?;
        self.get_mut(id, step)?.verifier = verifier;
        self.created(id, step)
    }

    /// CREATE of a name that is taken.
    fn create_over(&mut self, who: &Identity, id: Id, how: CreateHow) -> Result<Outcome> {
        let step = "create";
        let inode = self.get(id, step)?;
        let regular = matches!(inode.content, Content::Regular(_));
        match how {
            CreateHow::Unchecked(changes) if regular => {
                let only_size = Changes { size: changes.size, ..Changes::default() };
                self.apply_changes(who, id, &only_size, step)?;
                self.created(id, step)
            }
            CreateHow::Exclusive(verifier) if regular && inode.verifier == Some(verifier) => {
                self.created(id, step)
            }
            _ => fail(ErrorKind::Exists, step),
        }
    }

    pub(super) fn make_directory(
        &mut self,
        who: &Identity,
        directory: Id,
        name: Bytes,
        changes: &Changes,
    ) -> Result<Outcome> {
        let content = Content::Directory(Directory::new(directory));
        self.make_new(who, directory, name, changes, content, "mkdir")
    }

    pub(super) fn make_symlink(
        &mut self,
        who: &Identity,
        directory: Id,
        name: Bytes,
        target: Bytes,
        changes: &Changes,
    ) -> Result<Outcome> {
        if target.is_empty() || target.contains(&0) {
            return fail(ErrorKind::Invalid, "symlink");
        }
        if target.len() > LINK_BYTES_MAX {
            return fail(ErrorKind::NameTooLong, "symlink");
        }
        self.make_new(who, directory, name, changes, Content::Symlink(target), "symlink")
    }

    pub(super) fn make_node(
        &mut self,
        who: &Identity,
        directory: Id,
        name: Bytes,
        node: NodeKind,
        changes: &Changes,
    ) -> Result<Outcome> {
        let device = match node {
            NodeKind::Character(device) | NodeKind::Block(device) => device,
            NodeKind::Fifo | NodeKind::Socket => Device::default(),
        };
        let content = Content::Special(node.into(), device);
        self.make_new(who, directory, name, changes, content, "mknod")
    }

    /// Make an object under a name that must be free.
    fn make_new(
        &mut self,
        who: &Identity,
        directory: Id,
        name: Bytes,
        changes: &Changes,
        content: Content,
        step: &'static str,
    ) -> Result<Outcome> {
        require_name(&name, step)?;
        if self.search(who, directory, step)?.get(&name).is_some() {
            return fail(ErrorKind::Exists, step);
        }
        let id = self.make(who, directory, name, changes, content, step)?;
        self.created(id, step)
    }

    /// Make an object under a name that is free.
    fn make(
        &mut self,
        who: &Identity,
        directory: Id,
        name: Bytes,
        changes: &Changes,
        content: Content,
        step: &'static str,
    ) -> Result<Id> {
        let parent = self.attributes(directory, step)?;
        permission::require(who, &parent, WRITE | EXECUTE, step)?;
        let is_directory = matches!(content, Content::Directory(_));
        let is_device =
            matches!(content, Content::Special(FileKind::Character | FileKind::Block, _));
        if is_device && !permission::is_root(who) {
            return fail(ErrorKind::NotOwner, step);
        }
        let inherited_gid = if parent.mode & SET_GID != 0 { parent.gid } else { who.gid };
        permission::require_creation(who, changes, inherited_gid, step)?;
        if is_directory && parent.links >= LINKS_MAX {
            return fail(ErrorKind::TooManyLinks, step);
        }
        self.require_entry(step)?;
        if let (Content::Regular(_), Some(size)) = (&content, changes.size) {
            Self::require_size(size, step)?;
        }

        let now = self.now();
        let gid = changes.gid.unwrap_or(inherited_gid);
        let mode = new_mode(who, &parent, gid, changes, &content);
        let mut inode = Inode {
            mode,
            links: if is_directory { 2 } else { 1 },
            uid: changes.uid.unwrap_or(who.uid),
            gid,
            accessed: set_time(changes.accessed, now, now),
            modified: set_time(changes.modified, now, now),
            changed: now,
            verifier: None,
            content,
        };
        if let (Content::Regular(data), Some(size)) = (&mut inode.content, changes.size) {
            data.set_size(size);
        }
        let id = self.allocate(inode);
        self.attach(directory, name, id, step)?;
        Ok(id)
    }

    fn created(&self, id: Id, step: &'static str) -> Result<Outcome> {
        let attributes = Some(self.attributes(id, step)?);
        Ok(Outcome::Created { object: self.handle(id), attributes })
    }

    pub(super) fn remove(&mut self, who: &Identity, directory: Id, name: &[u8]) -> Result<Outcome> {
        let step = "remove";
        require_name(name, step)?;
        let id = self.find(who, directory, name, step)?;
        self.require_removable(who, directory, id, false, step)?;
        self.detach(directory, name, step)?;
        self.unlink(id, step)?;
        Ok(Outcome::Done)
    }

    pub(super) fn remove_directory(
        &mut self,
        who: &Identity,
        directory: Id,
        name: &[u8],
    ) -> Result<Outcome> {
        let step = "rmdir";
        require_name(name, step)?;
        let id = self.find(who, directory, name, step)?;
        self.require_removable(who, directory, id, true, step)?;
        self.require_empty(id, step)?;
        self.detach(directory, name, step)?;
        self.unlink(id, step)?;
        Ok(Outcome::Done)
    }

    /// Fail unless the caller may take `victim` out of `directory` and it is (or is not) a directory itself.
    fn require_removable(
        &self,
        who: &Identity,
        directory: Id,
        victim: Id,
        want_directory: bool,
        step: &'static str,
    ) -> Result<()> {
        let attr = self.attributes(victim, step)?;
        permission::require_delete(who, &self.attributes(directory, step)?, &attr, step)?;
        match (attr.kind == FileKind::Directory, want_directory) {
            (false, true) => fail(ErrorKind::NotDirectory, step),
            (true, false) => fail(ErrorKind::IsDirectory, step),
            _ => Ok(()),
        }
    }

    fn require_empty(&self, id: Id, step: &'static str) -> Result<()> {
        if self.directory(id, step)?.is_empty() { Ok(()) } else { fail(ErrorKind::NotEmpty, step) }
    }

    pub(super) fn rename(
        &mut self,
        who: &Identity,
        (from, from_name): (Id, &[u8]),
        (to, to_name): (Id, Bytes),
    ) -> Result<Outcome> {
        let step = "rename";
        require_name(from_name, step)?;
        require_name(&to_name, step)?;
        self.directory(from, step)?;
        self.directory(to, step)?;
        self.search(who, to, step)?;
        let source = self.find(who, from, from_name, step)?;
        let target = self.search(who, to, step)?.get(&to_name);
        let is_directory = self.directory(source, step).is_ok();
        if is_directory && self.is_below(to, source, step)? {
            return fail(ErrorKind::Invalid, step);
        }
        if let Some(target) = target
            && target != source
            && self.directory(target, step).is_ok()
            && self.is_below(from, target, step)?
        {
            return fail(ErrorKind::NotEmpty, step);
        }
        if target == Some(source) {
            return Ok(Outcome::Done);
        }
        self.require_renamable(who, (from, source), (to, target), is_directory)?;
        if let Some(target) = target {
            self.detach(to, &to_name, step)?;
            self.unlink(target, step)?;
        }
        self.detach(from, from_name, step)?;
        self.attach(to, to_name, source, step)?;
        Ok(Outcome::Done)
    }

    /// The permission and type checks of a rename, once it is clear what is where.
    fn require_renamable(
        &self,
        who: &Identity,
        (from, source): (Id, Id),
        (to, target): (Id, Option<Id>),
        is_directory: bool,
    ) -> Result<()> {
        let step = "rename";
        self.require_removable(who, from, source, is_directory, step)?;
        let parent = self.attributes(to, step)?;
        match target {
            Some(target) => self.require_removable(who, to, target, is_directory, step)?,
            None => permission::require(who, &parent, WRITE | EXECUTE, step)?,
        }
        if is_directory && from != to {
            // The entry ".." of the moved directory changes.
            permission::require(who, &self.attributes(source, step)?, WRITE, step)?;
            if target.is_none() && parent.links >= LINKS_MAX {
                return fail(ErrorKind::TooManyLinks, step);
            }
        }
        match target {
            Some(target) if is_directory => self.require_empty(target, step),
            _ => Ok(()),
        }
    }

    pub(super) fn link(
        &mut self,
        who: &Identity,
        object: Id,
        directory: Id,
        name: Bytes,
    ) -> Result<Outcome> {
        let step = "link";
        require_name(&name, step)?;
        let attr = self.attributes(object, step)?;
        if attr.kind == FileKind::Directory {
            return fail(ErrorKind::IsDirectory, step);
        }
        if self.search(who, directory, step)?.get(&name).is_some() {
            return fail(ErrorKind::Exists, step);
        }
        permission::require_link(who, &attr, step)?;
        let parent = self.attributes(directory, step)?;
        permission::require(who, &parent, WRITE | EXECUTE, step)?;
        if attr.links >= LINKS_MAX {
            return fail(ErrorKind::TooManyLinks, step);
        }
        self.require_entry(step)?;
        self.get_mut(object, step)?.links += 1;
        self.attach(directory, name, object, step)?;
        Ok(Outcome::Done)
    }
}

/// The mode of a new object: as asked, private when nothing is asked; directories inherit SET_GID.
fn new_mode(
    who: &Identity,
    parent: &Attributes,
    gid: u32,
    changes: &Changes,
    content: &Content,
) -> u32 {
    match content {
        Content::Symlink(_) => 0o777,
        Content::Directory(_) => {
            let asked = permission::mode_after_chmod(who, gid, changes.mode.unwrap_or(0o700));
            asked | parent.mode & SET_GID
        }
        Content::Regular(_) | Content::Special(..) => {
            permission::mode_after_chmod(who, gid, changes.mode.unwrap_or(0o600))
        }
    }
}

/// What a time becomes.
pub(super) fn set_time(set: SetTime, kept: Timestamp, now: Timestamp) -> Timestamp {
    match set {
        SetTime::Keep => kept,
        SetTime::Now => now,
        SetTime::To(time) => time,
    }
}
