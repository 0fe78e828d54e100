//! The lane's io_uring.

/// A lane's ring, shared by the backends that run on the lane.
#[derive(Debug, Clone)]
pub struct LaneRing;
