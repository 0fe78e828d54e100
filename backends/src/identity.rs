//! Who asks: the caller's ids after squashing.

use std::sync::Arc;

/// Supplementary groups that one caller may have (the kernel's own limit is 65,536; AUTH_SYS carries 16).
pub const GROUPS_MAX: usize = 1024;

/// User, group and supplementary groups with which an operation is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id; new files get it.
    pub gid: u32,
    /// Supplementary groups, at most [`GROUPS_MAX`].
    pub groups: Arc<[u32]>,
}

impl Identity {
    /// The superuser, without supplementary groups.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::from([]) }
    }

    /// This user in this group only.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Arc::from([]) }
    }

    /// Whether `gid` is the caller's group or one of the supplementary ones.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
