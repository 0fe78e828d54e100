//! MKDIR, SYMLINK and MKNOD (RFC 1813 sections 3.3.9 to 3.3.11).

use std::sync::Arc;

use rustix::{
    fs::{FileType, Mode, makedev},
    io::Errno,
};

use crate::{
    attr::Changes,
    error::BackendError,
    identity::Identity,
    op::{NodeKind, Outcome},
};

use super::{
    attr::stat,
    backend::{Arounds, LocalBackend},
    lookup::{lookup_failed, open_child},
    open_file::OpenFile,
    set_attributes::{as_caller, check_initial, set_mode},
};

const SET_IDS: u32 = 0o6000;

impl LocalBackend {
    /// MKDIR.
    pub(super) fn make_directory(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        changes: &Changes,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let mode = changes.mode.unwrap_or(0o755);
        let make = || {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mkdirat(&directory.path, name, mode)
        };
        self.make(who, directory, name, changes, "mkdirat", around, make)
    }

    /// SYMLINK.
    pub(super) fn make_symlink(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        target: &[u8],
        changes: &Changes,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let make = || rustix::fs::symlinkat(target, &directory.path, name);
        let changes = Changes { mode: None, size: None, ..*changes };
        self.make(who, directory, name, &changes, "symlinkat", around, make)
    }

    /// MKNOD.
    pub(super) fn make_node(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        node: NodeKind,
        changes: &Changes,
        around: &mut Arounds,
    ) -> Result<Outcome, BackendError> {
        let (kind, device) = match node {
            NodeKind::Character(device) => (FileType::CharacterDevice, device),
            NodeKind::Block(device) => (FileType::BlockDevice, device),
            NodeKind::Fifo => (FileType::Fifo, Default::default()),
            NodeKind::Socket => (FileType::Socket, Default::default()),
        };
        let mode = Mode::from_raw_mode(changes.mode.unwrap_or(0o644) & 0o7777);
        let device = makedev(device.major, device.minor);
        let make = || rustix::fs::mknodat(&directory.path, name, kind, mode, device);
        self.make(who, directory, name, changes, "mknodat", around, make)
    }

    #[allow(clippy::too_many_arguments)] // one private path for three operations
    fn make(
        &self,
        who: &Arc<Identity>,
        directory: &OpenFile,
        name: &[u8],
        changes: &Changes,
        call: &'static str,
        around: &mut Arounds,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<Outcome, BackendError> {
        check_initial(changes)?;
        let (file, more) = self.change_directory(directory, &mut around.first, |_| {
            as_caller(who, call, make)?;
            let fd = open_child(directory, name, false).map_err(lookup_failed)?;
            let (file, about) = self.adopt(fd, directory, name, true)?;
            let mut more = self.apply_initial(who, &file, &about.attributes, changes)?;
            // mkdir(2) leaves these out. What it made of the other bits (default ACL) must stay.
            let missing = changes.mode.unwrap_or(0) & SET_IDS & !about.attributes.mode;
            if missing != 0 {
                let mode = about.attributes.mode | missing;
                let _changing = file.changing();
                as_caller(who, "fchmod", || set_mode(&file, mode))?;
                more = true;
            }
            Ok((file, more))
        })?;
        if more {
            self.make_durable(&file)?;
        }
        self.make_durable(directory)?;
        let attributes = stat(&file.path).ok().map(|about| about.attributes);
        Ok(Outcome::Created { object: file.handle, attributes })
    }
}
