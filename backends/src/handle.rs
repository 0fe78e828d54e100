//! A backend's own name for a file system object.

use std::fmt;

/// Longest handle that a backend may make, in bytes: what is left of NFSv3's 64 after the gateway's frame.
pub const HANDLE_BYTES_MAX: usize = 44;

/// Opaque, persistent bytes: equal for equal objects, different for an object that reuses an inode number,
/// valid across restarts and renames. The gateway authenticates them before a backend sees them again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectHandle {
    len: u8,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl ObjectHandle {
    /// A handle of these bytes, or `None` when they are more than [`HANDLE_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut handle =
            Self { len: u8::try_from(bytes.len()).ok()?, bytes: [0; HANDLE_BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for ObjectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert!(ObjectHandle::new(&[7; HANDLE_BYTES_MAX]).is_some());
        assert!(ObjectHandle::new(&[7; HANDLE_BYTES_MAX + 1]).is_none());
        assert_eq!(ObjectHandle::new(b"ab").unwrap().as_bytes(), b"ab");
    }
}
