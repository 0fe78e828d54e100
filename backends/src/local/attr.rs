//! Attributes from statx(2).

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp, Timespec};

use crate::{
    attr::{Attributes, Device, FileKind, Timestamp},
    error::BackendError,
};

/// What statx says of an object, with the parts that only this backend needs.
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    /// The protocol's view.
    pub attributes: Attributes,
    /// When the inode was made, if the file system keeps it.
    pub born: Option<Timestamp>,
    /// Device that the object is on.
    pub device: (u32, u32),
    /// Alignments that direct I/O asks for in memory and in the file, in bytes; 0: no direct I/O.
    pub direct_align: (u32, u32),
}

impl Stat {
    /// Same device and inode.
    pub fn same_object(&self, other: &Self) -> bool {
        self.device == other.device && self.attributes.file_id == other.attributes.file_id
    }
}

fn time(from: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: from.tv_sec, nanos: from.tv_nsec }
}

/// For the calls that set times.
pub fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }
}

/// The kind that a mode says.
pub fn kind_of_mode(mode: u32) -> FileKind {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Character,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Regular,
    }
}

fn convert(raw: &Statx) -> Stat {
    let mode = u32::from(raw.stx_mode);
    let born = StatxFlags::from_bits_retain(raw.stx_mask).contains(StatxFlags::BTIME);
    Stat {
        attributes: Attributes {
            kind: kind_of_mode(mode),
            mode: mode & 0o7777,
            links: raw.stx_nlink,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            size: raw.stx_size,
            used: raw.stx_blocks.saturating_mul(512),
            device: Device { major: raw.stx_rdev_major, minor: raw.stx_rdev_minor },
            // A protocol must not see 0, and no file system that matters has it.
            file_id: raw.stx_ino.max(1),
            accessed: time(raw.stx_atime),
            modified: time(raw.stx_mtime),
            changed: time(raw.stx_ctime),
        },
        born: born.then(|| time(raw.stx_btime)),
        device: (raw.stx_dev_major, raw.stx_dev_minor),
        direct_align: (raw.stx_dio_mem_align, raw.stx_dio_offset_align),
    }
}

/// Attributes of the object behind `fd`, which may be `O_PATH`.
///
/// # Errors
/// What statx says.
pub fn stat(fd: impl AsFd) -> Result<Stat, BackendError> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    stat_with(fd, mask)
}

/// The same with the alignments for direct I/O.
///
/// # Errors
/// What statx says.
pub fn stat_direct(fd: impl AsFd) -> Result<Stat, BackendError> {
    stat_with(fd, StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::DIOALIGN)
}

fn stat_with(fd: impl AsFd, mask: StatxFlags) -> Result<Stat, BackendError> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask)
        .map(|raw| convert(&raw))
        .map_err(|errno| BackendError::from_io(errno.into(), "statx"))
}
