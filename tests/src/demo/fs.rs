//! The file system. It checks no permission, keeps no conditions, and lists by file id: what an adapter has
//! to make up for.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use async_trait::async_trait;
use nfsserve::{
    nfs::{
        fattr3, fileid3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, sattr3, set_atime,
        set_gid3, set_mode3, set_mtime, set_size3, set_uid3,
    },
    vfs::{DirEntry, NFSFileSystem, ReadDirResult, VFSCapabilities},
};

const ROOT: fileid3 = 1;

#[derive(Debug)]
enum Content {
    File(Vec<u8>),
    Directory { parent: fileid3, names: BTreeMap<Vec<u8>, fileid3> },
    Symlink(Vec<u8>),
}

#[derive(Debug)]
struct Node {
    attr: fattr3,
    content: Content,
}

#[derive(Debug)]
struct Nodes {
    nodes: BTreeMap<fileid3, Node>,
    last_id: fileid3,
    clock: u32,
}

/// Name of a file whose creation panics, to see what a bug in a file system does to the server.
pub const PANIC_NAME: &[u8] = b"panic";

/// An in-memory file system with directories, files and symbolic links. The root belongs to the superuser
/// and is open to everybody.
#[derive(Debug)]
pub struct DemoFileSystem {
    state: Mutex<Nodes>,
}

impl Default for DemoFileSystem {
    fn default() -> Self {
        let mut state = Nodes { nodes: BTreeMap::new(), last_id: 0, clock: 1_700_000_000 };
        state.add(ftype3::NF3DIR, 0o777, directory(ROOT));
        Self { state: Mutex::new(state) }
    }
}

fn directory(parent: fileid3) -> Content {
    Content::Directory { parent, names: BTreeMap::new() }
}

impl Nodes {
    fn now(&mut self) -> nfstime3 {
        self.clock += 1;
        nfstime3 { seconds: self.clock, nseconds: 0 }
    }

    fn add(&mut self, ftype: ftype3, mode: u32, content: Content) -> fileid3 {
        self.last_id += 1;
        let (fileid, now) = (self.last_id, self.now());
        let attr = fattr3 {
            ftype,
            mode,
            nlink: 1,
            fileid,
            atime: now,
            mtime: now,
            ctime: now,
            ..fattr3::default()
        };
        self.nodes.insert(fileid, Node { attr, content });
        fileid
    }

    fn node(&mut self, id: fileid3) -> Result<&mut Node, nfsstat3> {
        self.nodes.get_mut(&id).ok_or(nfsstat3::NFS3ERR_NOENT)
    }

    fn attr(&mut self, id: fileid3) -> Result<fattr3, nfsstat3> {
        let node = self.node(id)?;
        let size = match &node.content {
            Content::File(bytes) | Content::Symlink(bytes) => bytes.len(),
            Content::Directory { names, .. } => names.len() * 32,
        };
        Ok(fattr3 { size: size as u64, used: size as u64, ..node.attr })
    }

    fn names(&mut self, id: fileid3) -> Result<&mut BTreeMap<Vec<u8>, fileid3>, nfsstat3> {
        match &mut self.node(id)?.content {
            Content::Directory { names, .. } => Ok(names),
            _ => Err(nfsstat3::NFS3ERR_NOTDIR),
        }
    }

    fn bytes(&mut self, id: fileid3) -> Result<&mut Vec<u8>, nfsstat3> {
        match &mut self.node(id)?.content {
            Content::File(bytes) => Ok(bytes),
            _ => Err(nfsstat3::NFS3ERR_INVAL),
        }
    }

    fn enter(
        &mut self,
        dir: fileid3,
        name: &filename3,
        (ftype, content): (ftype3, Content),
    ) -> Result<fileid3, nfsstat3> {
        if self.names(dir)?.contains_key(&name.0) {
            return Err(nfsstat3::NFS3ERR_EXIST);
        }
        let id = self.add(ftype, 0o644, content);
        self.names(dir)?.insert(name.0.clone(), id);
        self.touch(dir)?;
        Ok(id)
    }

    fn touch(&mut self, id: fileid3) -> Result<(), nfsstat3> {
        let now = self.now();
        let attr = &mut self.node(id)?.attr;
        attr.mtime = now;
        attr.ctime = now;
        Ok(())
    }

    fn set(&mut self, id: fileid3, set: &sattr3) -> Result<fattr3, nfsstat3> {
        if let set_size3::size(size) = set.size {
            self.bytes(id)?.resize(size as usize, 0);
        }
        let now = self.now();
        let attr = &mut self.node(id)?.attr;
        attr.ctime = now;
        if let set_mode3::mode(mode) = set.mode {
            attr.mode = mode;
        }
        if let set_uid3::uid(uid) = set.uid {
            attr.uid = uid;
        }
        if let set_gid3::gid(gid) = set.gid {
            attr.gid = gid;
        }
        match set.atime {
            set_atime::DONT_CHANGE => {}
            set_atime::SET_TO_SERVER_TIME => attr.atime = now,
            set_atime::SET_TO_CLIENT_TIME(time) => attr.atime = time,
        }
        match set.mtime {
            set_mtime::DONT_CHANGE => {}
            set_mtime::SET_TO_SERVER_TIME => attr.mtime = now,
            set_mtime::SET_TO_CLIENT_TIME(time) => attr.mtime = time,
        }
        self.attr(id)
    }
}

impl DemoFileSystem {
    fn state(&self) -> MutexGuard<'_, Nodes> {
        self.state.lock().expect("no panic while the lock is held")
    }
}

#[async_trait]
impl NFSFileSystem for DemoFileSystem {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadWrite
    }

    fn root_dir(&self) -> fileid3 {
        ROOT
    }

    async fn lookup(&self, dirid: fileid3, filename: &filename3) -> Result<fileid3, nfsstat3> {
        let mut state = self.state();
        if filename.as_ref() == b".." {
            return match state.node(dirid)?.content {
                Content::Directory { parent, .. } => Ok(parent),
                _ => Err(nfsstat3::NFS3ERR_NOTDIR),
            };
        }
        state.names(dirid)?.get(&filename.0).copied().ok_or(nfsstat3::NFS3ERR_NOENT)
    }

    async fn getattr(&self, id: fileid3) -> Result<fattr3, nfsstat3> {
        self.state().attr(id)
    }

    async fn setattr(&self, id: fileid3, setattr: sattr3) -> Result<fattr3, nfsstat3> {
        self.state().set(id, &setattr)
    }

    async fn read(
        &self,
        id: fileid3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        tokio::task::yield_now().await;
        let mut state = self.state();
        let bytes = state.bytes(id)?;
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + count as usize);
        Ok((bytes[start..end].to_vec(), end == bytes.len()))
    }

    async fn write(&self, id: fileid3, offset: u64, data: &[u8]) -> Result<fattr3, nfsstat3> {
        tokio::task::yield_now().await;
        let mut state = self.state();
        let bytes = state.bytes(id)?;
        let start = offset as usize;
        bytes.resize(bytes.len().max(start + data.len()), 0);
        bytes[start..start + data.len()].copy_from_slice(data);
        state.touch(id)?;
        state.attr(id)
    }

    async fn create(
        &self,
        dirid: fileid3,
        filename: &filename3,
        attr: sattr3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        assert_ne!(filename.as_ref(), PANIC_NAME, "a bug in the file system");
        let file = (ftype3::NF3REG, Content::File(Vec::new()));
        let mut state = self.state();
        let id = state.enter(dirid, filename, file)?;
        Ok((id, state.set(id, &attr)?))
    }

    async fn create_exclusive(
        &self,
        dirid: fileid3,
        filename: &filename3,
    ) -> Result<fileid3, nfsstat3> {
        self.state().enter(dirid, filename, (ftype3::NF3REG, Content::File(Vec::new())))
    }

    async fn mkdir(
        &self,
        dirid: fileid3,
        dirname: &filename3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        let mut state = self.state();
        let id = state.enter(dirid, dirname, (ftype3::NF3DIR, directory(dirid)))?;
        Ok((id, state.attr(id)?))
    }

    async fn remove(&self, dirid: fileid3, filename: &filename3) -> Result<(), nfsstat3> {
        let mut state = self.state();
        let removed = state.names(dirid)?.remove(&filename.0);
        state.nodes.remove(&removed.ok_or(nfsstat3::NFS3ERR_NOENT)?);
        state.touch(dirid)
    }

    async fn rename(
        &self,
        from_dirid: fileid3,
        from_filename: &filename3,
        to_dirid: fileid3,
        to_filename: &filename3,
    ) -> Result<(), nfsstat3> {
        let mut state = self.state();
        let moved = state.names(from_dirid)?.remove(&from_filename.0);
        let moved = moved.ok_or(nfsstat3::NFS3ERR_NOENT)?;
        if let Some(replaced) = state.names(to_dirid)?.insert(to_filename.0.clone(), moved) {
            state.nodes.remove(&replaced);
        }
        if let Content::Directory { parent, .. } = &mut state.node(moved)?.content {
            *parent = to_dirid;
        }
        state.touch(from_dirid)?;
        state.touch(to_dirid)
    }

    async fn readdir(
        &self,
        dirid: fileid3,
        start_after: fileid3,
        max_entries: usize,
    ) -> Result<ReadDirResult, nfsstat3> {
        let mut state = self.state();
        let mut ids: Vec<_> =
            state.names(dirid)?.iter().map(|(name, id)| (*id, name.clone())).collect();
        ids.sort_unstable();
        ids.retain(|(id, _)| *id > start_after);
        let end = ids.len() <= max_entries;
        ids.truncate(max_entries);
        let mut entries = Vec::new();
        for (fileid, name) in ids {
            entries.push(DirEntry { fileid, name: name.into(), attr: state.attr(fileid)? });
        }
        Ok(ReadDirResult { entries, end })
    }

    async fn symlink(
        &self,
        dirid: fileid3,
        linkname: &filename3,
        symlink: &nfspath3,
        attr: &sattr3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        let link = (ftype3::NF3LNK, Content::Symlink(symlink.0.clone()));
        let mut state = self.state();
        let id = state.enter(dirid, linkname, link)?;
        Ok((id, state.set(id, attr)?))
    }

    async fn readlink(&self, id: fileid3) -> Result<nfspath3, nfsstat3> {
        match &self.state().node(id)?.content {
            Content::Symlink(target) => Ok(target.clone().into()),
            _ => Err(nfsstat3::NFS3ERR_INVAL),
        }
    }
}
