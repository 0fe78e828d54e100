//! System calls that rustix does not wrap: file handles, and access checks by descriptor.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

/// Longest handle of a file system that we take, in bytes: what an `ObjectHandle` has room for.
pub const FS_HANDLE_BYTES_MAX: usize = 39;

/// A file system's own handle of an object: `struct file_handle` of name_to_handle_at(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsHandle {
    /// The file system's type of handle.
    pub kind: i32,
    len: u8,
    bytes: [u8; FS_HANDLE_BYTES_MAX],
}

impl FsHandle {
    /// A handle of these bytes, or `None` when they are too many.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut handle =
            Self { kind, len: u8::try_from(bytes.len()).ok()?, bytes: [0; FS_HANDLE_BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The kernel's layout, with room for the longest handle.
#[repr(C)]
struct RawHandle {
    bytes_len: u32,
    kind: i32,
    bytes: [u8; FS_HANDLE_BYTES_MAX + 1],
}

/// Handle of the object behind `fd` (which may be `O_PATH`).
pub fn name_to_handle(fd: impl AsFd) -> io::Result<FsHandle> {
    let mut raw = RawHandle {
        bytes_len: FS_HANDLE_BYTES_MAX as u32,
        kind: 0,
        bytes: [0; FS_HANDLE_BYTES_MAX + 1],
    };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: the path is a NUL-terminated constant, `raw` has room for the `bytes_len` that it announces, and
    // both outputs live until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            &raw mut raw,
            &raw mut mount_id,
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = raw.bytes.get(..raw.bytes_len as usize);
    bytes
        .and_then(|bytes| FsHandle::new(raw.kind, bytes))
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

/// Open the object behind a handle. Needs CAP_DAC_READ_SEARCH.
pub fn open_by_handle(mount: impl AsFd, handle: &FsHandle, flags: i32) -> io::Result<OwnedFd> {
    let mut raw = RawHandle {
        bytes_len: u32::from(handle.len),
        kind: handle.kind,
        bytes: [0; FS_HANDLE_BYTES_MAX + 1],
    };
    for (to, from) in raw.bytes.iter_mut().zip(handle.bytes()) {
        *to = *from;
    }
    // SAFETY: `raw` is a whole `struct file_handle` and the kernel only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_fd().as_raw_fd(),
            &raw mut raw,
            flags | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether this thread's file system identity has all of `mode` (`R_OK | W_OK | X_OK`) on the object
/// behind `fd`.
pub fn may_access(fd: impl AsFd, mode: i32) -> io::Result<bool> {
    // SAFETY: the path is a NUL-terminated constant; the rest are integers.
    let result = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EACCESS | libc::AT_EMPTY_PATH,
        )
    };
    if result == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS | libc::ETXTBSY) => Ok(false),
        _ => Err(error),
    }
}
