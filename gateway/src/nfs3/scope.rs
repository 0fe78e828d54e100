//! What a procedure knows of its surroundings, what it asks for, and what came of it.

use std::sync::Arc;

use backends::{
    Capabilities, Completion, Identity, ObjectHandle, Operation, Outcome, attr::Around,
};
use rpc_rdma::service::ReplyBudget;

use super::Status;
use crate::exports::Export;

/// The surroundings of one admitted call.
#[derive(Debug, Clone)]
pub struct Scope {
    /// The export that the first handle belongs to.
    pub export: Arc<Export>,
    /// The object of the first handle.
    pub object: ObjectHandle,
    /// The object of the second handle (RENAME, LINK); `None` when it belongs to another export.
    pub second: Option<ObjectHandle>,
    /// The caller after squashing.
    pub identity: Arc<Identity>,
    /// Whether the caller may change nothing here.
    pub read_only: bool,
    /// How much the reply may be.
    pub budget: ReplyBudget,
}

impl Scope {
    /// What the export's backend can do.
    pub fn capabilities(&self) -> Capabilities {
        self.export.backend.capabilities()
    }
}

/// What a procedure wants from the backend.
#[derive(Debug)]
pub enum Plan {
    /// This operation.
    Ask(Operation),
    /// To read; whoever carries the plan out brings the buffer.
    Read {
        /// Where.
        offset: u64,
        /// At most how many bytes.
        count: u32,
    },
}

/// What came of a call.
#[derive(Debug)]
pub struct Done {
    /// The result.
    pub result: Result<Outcome, Status>,
    /// See [`Completion::first`].
    pub first: Around,
    /// See [`Completion::second`].
    pub second: Around,
}

impl Done {
    /// A failure about which nothing more is known.
    pub fn failed(status: Status) -> Self {
        Self { result: Err(status), first: Around::default(), second: Around::default() }
    }

    /// The status to answer with.
    pub fn status(&self) -> Status {
        self.result.as_ref().err().copied().unwrap_or(Status::Ok)
    }

    /// The status to answer with when the result is not the one that the procedure needs: a success of
    /// another kind is the backend's fault.
    pub fn failure(&self) -> Status {
        self.result.as_ref().err().copied().unwrap_or(Status::ServerFault)
    }
}

impl From<Completion> for Done {
    fn from(completion: Completion) -> Self {
        Self {
            result: completion.result.map_err(|error| error.kind.into()),
            first: completion.first,
            second: completion.second,
        }
    }
}
