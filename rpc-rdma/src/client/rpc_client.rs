//! What every transport's client can do.

use std::{
    io,
    time::{Duration, Instant},
};

use super::message::Procedure;
use crate::{
    rpc::Credential,
    wire::{WireError, WireFault},
    xdr::Rope,
};

/// How large the reply of a call may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyOptions {
    /// Most bytes of the reply message without bulk data.
    pub reply_bytes_max: usize,
    /// Most bytes of bulk data that may be placed directly (RFC 8267); `None` for procedures without it.
    pub bulk_bytes_max: Option<usize>,
    /// Bytes of the reply that follow the bulk data.
    pub after_bulk_bytes: usize,
}

impl ReplyOptions {
    /// A reply of at most `bytes` without bulk data.
    pub const fn message(bytes: usize) -> Self {
        Self { reply_bytes_max: bytes, bulk_bytes_max: None, after_bulk_bytes: 0 }
    }

    /// A reply that ends with bulk data.
    pub const fn bulk(reply_bytes_max: usize, bulk_bytes_max: usize) -> Self {
        Self { reply_bytes_max, bulk_bytes_max: Some(bulk_bytes_max), after_bulk_bytes: 0 }
    }
}

/// Why a call got no reply message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// The server answered ERR_CHUNK.
    #[error("the server reports a chunk error")]
    Chunk,
    /// The server answered ERR_VERS.
    #[error("the server speaks versions {low} to {high} of RPC-over-RDMA")]
    Version {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The connection ended first.
    #[error("the connection ended before the reply came")]
    Disconnected,
    /// The server's reply breaks a rule of RPC-over-RDMA.
    #[error("the reply breaks the protocol: {0}")]
    Protocol(&'static str),
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Of the call.
    pub xid: u32,
    /// The reply message from its xid on, or why there is none.
    pub result: Result<Rope, CallFault>,
}

/// Why the connection is of no more use.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server turned us down.
    #[error("the server rejects the connection")]
    Rejected,
    /// The connection has ended.
    #[error("the connection has ended")]
    Disconnected,
    /// The connection failed on our side.
    #[error("the connection failed: {0:?}")]
    Failed(WireFault),
    /// The device refused.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The server's bytes cannot be understood.
    #[error("the server breaks the protocol: {0}")]
    Protocol(&'static str),
    /// No reply in time.
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
    /// The call got no reply message.
    #[error(transparent)]
    Call(#[from] CallFault),
}

/// A connection that calls can be made on. Calls are pipelined; what flow control does not allow yet waits in
/// the client.
pub trait RpcClient {
    /// Make a call; its reply comes from [`Self::poll`]. Returns the xid.
    ///
    /// # Errors
    /// When the connection is of no more use.
    fn call(
        &mut self,
        procedure: Procedure,
        credential: &Credential,
        args: Rope,
        reply: ReplyOptions,
    ) -> Result<u32, ClientError>;

    /// Append the replies that have come. When the connection ends, every call under way comes back with
    /// [`CallFault::Disconnected`] first; the next `poll` is the error.
    ///
    /// # Errors
    /// When the connection is of no more use.
    fn poll(&mut self, out: &mut Vec<Reply>) -> Result<(), ClientError>;

    /// Sleep until `poll` may have something, but not longer than `timeout`. It may return early.
    fn wait(&mut self, timeout: Duration);

    /// Calls that have no reply yet.
    fn outstanding(&self) -> usize;

    /// From now on, take no more than the first `bytes` of a reply message (but its xid always) and have the
    /// rest thrown away where it arrives, so that a load generator measures the server and not its own
    /// copying. False where the transport cannot do so (all but TCP).
    fn keep_at_most(&mut self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }

    /// Make a call and wait for its reply. Replies of other calls that come meanwhile are dropped.
    ///
    /// # Errors
    /// When there is no reply message in time.
    fn call_and_wait(
        &mut self,
        procedure: Procedure,
        credential: &Credential,
        args: Rope,
        reply: ReplyOptions,
        timeout: Duration,
    ) -> Result<Rope, ClientError> {
        let deadline = Instant::now() + timeout;
        let xid = self.call(procedure, credential, args, reply)?;
        let mut replies = Vec::new();
        loop {
            self.poll(&mut replies)?;
            if let Some(reply) = replies.drain(..).find(|reply| reply.xid == xid) {
                return Ok(reply.result?);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::TimedOut(timeout));
            }
            self.wait(left);
        }
    }
}

impl<C: RpcClient + ?Sized> RpcClient for Box<C> {
    fn call(
        &mut self,
        procedure: Procedure,
        credential: &Credential,
        args: Rope,
        reply: ReplyOptions,
    ) -> Result<u32, ClientError> {
        (**self).call(procedure, credential, args, reply)
    }

    fn poll(&mut self, out: &mut Vec<Reply>) -> Result<(), ClientError> {
        (**self).poll(out)
    }

    fn wait(&mut self, timeout: Duration) {
        (**self).wait(timeout);
    }

    fn outstanding(&self) -> usize {
        (**self).outstanding()
    }

    fn keep_at_most(&mut self, bytes: usize) -> bool {
        (**self).keep_at_most(bytes)
    }
}
