//! Attributes of an object, in the terms of the file system.

/// Seconds and nanoseconds since 1970 (UTC); `nanos` < 1,000,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    Block,
    /// Character device.
    Character,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Device numbers of a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Everything that a protocol reports of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits (`07777`).
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space that it really takes, in bytes.
    pub used: u64,
    /// Device numbers (device nodes only).
    pub device: Device,
    /// Number of the object, unique within the export and never zero.
    pub file_id: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
}

/// The part of the attributes that a client compares to see whether somebody else changed the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the attributes.
    pub changed: Timestamp,
}

impl From<&Attributes> for Before {
    fn from(attr: &Attributes) -> Self {
        Self { size: attr.size, modified: attr.modified, changed: attr.changed }
    }
}

/// Attributes around an operation: weak cache consistency data (RFC 1813 section 2.6).
///
/// `before` is given only when nothing that goes through the gateway can have come between the sample and
/// the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Around {
    /// Sampled before the operation.
    pub before: Option<Before>,
    /// Sampled after it.
    pub after: Option<Attributes>,
}

impl Around {
    /// Only the attributes after the operation are known.
    pub fn after(attr: Attributes) -> Self {
        Self { before: None, after: Some(attr) }
    }
}

/// How SETATTR and the creating operations set a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// The server's clock.
    Now,
    /// This time.
    To(Timestamp),
}

/// Attributes to set; `None` and `Keep` leave what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Permission bits (`07777`).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: SetTime,
    /// Last change of the content.
    pub modified: SetTime,
}

impl Changes {
    /// Nothing to set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Space and objects of a file system, as the caller may use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Size in bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Free bytes for an ordinary user.
    pub available: u64,
    /// How many objects there can be.
    pub files_total: u64,
    /// How many more there can be.
    pub files_free: u64,
    /// The same for an ordinary user.
    pub files_available: u64,
}
