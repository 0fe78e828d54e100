//! The trait that every backend implements, in two halves: the shared one and the lane's.

use std::{fmt, io, os::fd::OwnedFd, sync::Arc, task::Waker};

use buffers::Pool;

use crate::{
    attr::Timestamp,
    blocking::BlockingPool,
    handle::ObjectHandle,
    op::{Completion, Request},
    uring::LaneRing,
};

/// What a backend can do; the protocol layer advertises exactly this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Hard links.
    pub hard_links: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Special files.
    pub special_files: bool,
    /// Times can be set.
    pub set_times: bool,
    /// COMMIT does something: writes may be acknowledged as unstable.
    pub unstable_writes: bool,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Largest file in bytes.
    pub file_bytes_max: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
    /// Most hard links of one object.
    pub links_max: u32,
    /// Granularity of timestamps.
    pub time_granularity: Timestamp,
}

/// What a lane lends to the backends that run on it.
#[derive(Clone)]
pub struct LaneResources {
    /// Buffer memory of the lane.
    pub pool: Arc<Pool>,
    /// The lane's io_uring; `None` where it is forbidden or switched off.
    pub ring: Option<LaneRing>,
    /// Threads for calls that can block; shared by all lanes.
    pub blocking: Arc<BlockingPool>,
    /// Wakes the lane: a completion is waiting that no file descriptor announces.
    pub waker: Waker,
}

impl fmt::Debug for LaneResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneResources").field("ring", &self.ring.is_some()).finish_non_exhaustive()
    }
}

/// The shared half of a backend: made once for an export.
pub trait Backend: Send + Sync + fmt::Debug {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Handle of the export's root.
    fn root(&self) -> ObjectHandle;

    /// The half that lives on a lane; called once on each lane's own thread.
    ///
    /// # Errors
    /// When the lane's part cannot be set up; the export is then not served.
    fn attach(self: Arc<Self>, lane: &LaneResources) -> io::Result<Box<dyn LaneBackend>>;
}

/// The half of a backend that lives on one lane and is used only from its thread.
///
/// Every request gets exactly one completion, from `submit` itself or later from `completions`.
pub trait LaneBackend: fmt::Debug {
    /// Begin. Returns the completion at once when the operation could be done without blocking.
    fn submit(&mut self, request: Request) -> Option<Completion>;

    /// Append what has finished since the last call.
    fn completions(&mut self, out: &mut Vec<Completion>);

    /// Hand batched work to the kernel; called at the end of every turn of the lane.
    fn flush(&mut self) {}

    /// File descriptors that become readable when `completions` may have something, besides the waker.
    fn wake_fds(&self) -> Vec<Arc<OwnedFd>> {
        Vec::new()
    }
}
