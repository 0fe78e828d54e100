//! A server on the `nfsserve` crate, for comparison: serves the files of one directory, without
//! subdirectories. Files stay open and are read and written in place, which is the fastest that the crate's
//! interface allows; a file system that opens them anew for each call would be slower.
//!
//! `nfsserve_dir ADDRESS:PORT DIRECTORY`

use std::{
    collections::BTreeMap,
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use nfsserve::{
    nfs::{
        fattr3, fileid3, filename3, ftype3, nfspath3, nfsstat3, nfstime3, sattr3, set_size3,
        specdata3,
    },
    tcp::{NFSTcp, NFSTcpListener},
    vfs::{DirEntry, NFSFileSystem, ReadDirResult, VFSCapabilities},
};

const ROOT: fileid3 = 1;

/// Files that were looked up, by their identity.
#[derive(Debug, Default)]
struct Open {
    ids: BTreeMap<Vec<u8>, fileid3>,
    files: BTreeMap<fileid3, Arc<File>>,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    open: Mutex<Open>,
}

fn status(error: io::Error) -> nfsstat3 {
    match error.kind() {
        io::ErrorKind::NotFound => nfsstat3::NFS3ERR_NOENT,
        io::ErrorKind::PermissionDenied => nfsstat3::NFS3ERR_ACCES,
        _ => nfsstat3::NFS3ERR_IO,
    }
}

fn attributes(id: fileid3, metadata: &Metadata) -> fattr3 {
    let time = |seconds: i64, nanoseconds: i64| nfstime3 {
        seconds: seconds as u32,
        nseconds: nanoseconds as u32,
    };
    fattr3 {
        ftype: if metadata.is_dir() { ftype3::NF3DIR } else { ftype3::NF3REG },
        mode: metadata.mode() & 0o7777,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        used: metadata.blocks() * 512,
        rdev: specdata3::default(),
        fsid: metadata.dev(),
        fileid: id,
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
    }
}

impl Directory {
    fn path(&self, name: &[u8]) -> PathBuf {
        self.path.join(Path::new(std::ffi::OsStr::from_bytes(name)))
    }

    /// Open a file by name, once.
    fn open(&self, name: &[u8], create: bool) -> Result<(fileid3, Arc<File>), nfsstat3> {
        if name.contains(&b'/') || name == b".." {
            return Err(nfsstat3::NFS3ERR_INVAL);
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = open.ids.get(name)
            && let Some(file) = open.files.get(&id)
        {
            return Ok((id, file.clone()));
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(create).open(self.path(name));
        let file = Arc::new(file.map_err(status)?);
        let id = ROOT + 1 + open.ids.len() as u64;
        open.ids.insert(name.to_vec(), id);
        open.files.insert(id, file.clone());
        Ok((id, file))
    }

    fn file(&self, id: fileid3) -> Result<Arc<File>, nfsstat3> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.files.get(&id).cloned().ok_or(nfsstat3::NFS3ERR_STALE)
    }
}

#[async_trait]
impl NFSFileSystem for Directory {
    fn capabilities(&self) -> VFSCapabilities {
        VFSCapabilities::ReadWrite
    }

    fn root_dir(&self) -> fileid3 {
        ROOT
    }

    async fn lookup(&self, _dirid: fileid3, name: &filename3) -> Result<fileid3, nfsstat3> {
        if name.0 == b"." {
            return Ok(ROOT);
        }
        Ok(self.open(&name.0, false)?.0)
    }

    async fn getattr(&self, id: fileid3) -> Result<fattr3, nfsstat3> {
        let metadata = match id {
            ROOT => std::fs::metadata(&self.path),
            _ => self.file(id)?.metadata(),
        };
        Ok(attributes(id, &metadata.map_err(status)?))
    }

    async fn setattr(&self, id: fileid3, attr: sattr3) -> Result<fattr3, nfsstat3> {
        if let set_size3::size(size) = attr.size {
            self.file(id)?.set_len(size).map_err(status)?;
        }
        self.getattr(id).await
    }

    async fn read(
        &self,
        id: fileid3,
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), nfsstat3> {
        let file = self.file(id)?;
        let mut data = vec![0; count as usize];
        let got = file.read_at(&mut data, offset).map_err(status)?;
        data.truncate(got);
        Ok((data, got < count as usize))
    }

    async fn write(&self, id: fileid3, offset: u64, data: &[u8]) -> Result<fattr3, nfsstat3> {
        self.file(id)?.write_all_at(data, offset).map_err(status)?;
        self.getattr(id).await
    }

    async fn create(
        &self,
        _dirid: fileid3,
        name: &filename3,
        _attr: sattr3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        let (id, _) = self.open(&name.0, true)?;
        Ok((id, self.getattr(id).await?))
    }

    async fn create_exclusive(
        &self,
        _dirid: fileid3,
        name: &filename3,
    ) -> Result<fileid3, nfsstat3> {
        Ok(self.open(&name.0, true)?.0)
    }

    async fn mkdir(
        &self,
        _dirid: fileid3,
        _name: &filename3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn remove(&self, _dirid: fileid3, name: &filename3) -> Result<(), nfsstat3> {
        std::fs::remove_file(self.path(&name.0)).map_err(status)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = open.ids.get(&name.0).copied() {
            open.files.remove(&id);
        }
        Ok(())
    }

    async fn rename(
        &self,
        _from_dirid: fileid3,
        _from: &filename3,
        _to_dirid: fileid3,
        _to: &filename3,
    ) -> Result<(), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn readdir(
        &self,
        _dirid: fileid3,
        start_after: fileid3,
        max_entries: usize,
    ) -> Result<ReadDirResult, nfsstat3> {
        let known: Vec<_> = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.ids.iter().map(|(name, id)| (*id, name.clone())).collect()
        };
        let mut entries = Vec::new();
        let after = known.into_iter().filter(|(id, _)| *id > start_after);
        for (fileid, name) in after.take(max_entries) {
            let attr = self.getattr(fileid).await?;
            entries.push(DirEntry { fileid, name: filename3::from(&name[..]), attr });
        }
        let end = entries.len() < max_entries;
        Ok(ReadDirResult { entries, end })
    }

    async fn symlink(
        &self,
        _dirid: fileid3,
        _name: &filename3,
        _target: &nfspath3,
        _attr: &sattr3,
    ) -> Result<(fileid3, fattr3), nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }

    async fn readlink(&self, _id: fileid3) -> Result<nfspath3, nfsstat3> {
        Err(nfsstat3::NFS3ERR_NOTSUPP)
    }
}

fn main() -> io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let (Some(address), Some(path)) = (args.next(), args.next()) else {
        return Err(io::Error::other("usage: nfsserve_dir ADDRESS:PORT DIRECTORY"));
    };
    let address = address.into_string().map_err(|_| io::Error::other("not an address"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let directory = Directory { path: path.into(), open: Mutex::default() };
        let listener = NFSTcpListener::bind(&address, directory).await?;
        println!("listening on {}:{}", listener.get_listen_ip(), listener.get_listen_port());
        listener.handle_forever().await
    })
}
