//! RPC-over-RDMA from the client's side (RFC 8166), the way the Linux client does it.
//!
//! The client is also a judge: a reply that breaks a rule (an echoed chunk that differs, a Send longer than
//! agreed, a grant of 0, a key invalidated that is not the call's) comes back as [`CallFault::Protocol`].

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};

use bytes::Bytes;

use super::{
    memory::{Chunk, Memory},
    message::{Procedure, encode_call},
    rpc_client::{CallFault, ClientError, Reply, ReplyOptions, RpcClient},
    settings::RdmaClientSettings,
    shape::{CallForm, ReplyForm, Shape, reply_bytes},
};
use crate::{
    chunk::{ChunkLists, ReadSegment, WriteChunk},
    endpoint::{Access, Endpoint, EndpointEvent, Region},
    header::{
        HEADER_BYTES_MIN, Header, PrivateData, Procedure as HeaderProcedure, ReplyHeader,
        decode_reply,
    },
    rpc::Credential,
    wire::{WireError, WireFault},
    xdr::{Piece, Rope, pad_bytes},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Up,
    Rejected,
    Disconnected,
    Failed(WireFault),
}

/// A call that waits for credits.
#[derive(Debug)]
struct Waiting {
    xid: u32,
    message: Rope,
    reply: ReplyOptions,
}

/// A call that was sent.
#[derive(Debug)]
struct Pending<R> {
    read: Vec<Chunk<R>>,
    write: Option<Chunk<R>>,
    reply: Option<Chunk<R>>,
    after_bulk_bytes: usize,
}

/// An RPC client on one RDMA connection.
pub struct RdmaClient<E: Endpoint> {
    endpoint: E,
    settings: RdmaClientSettings,
    phase: Phase,
    /// Why the endpoint refused a Send.
    refused: Option<WireError>,
    /// `scratch` holds a call for which the send queue had no room.
    stalled: bool,
    call_bytes_max: usize,
    reply_bytes_max: usize,
    granted: u32,
    receives: usize,
    next_xid: u32,
    waiting: VecDeque<Waiting>,
    pending: BTreeMap<u32, Pending<E::Region>>,
    memory: Memory<E::Region>,
    events: Vec<EndpointEvent>,
    unmatched: Vec<Bytes>,
    scratch: Vec<u8>,
}

impl<E: Endpoint> fmt::Debug for RdmaClient<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaClient")
            .field("phase", &self.phase)
            .field("granted", &self.granted)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

impl<E: Endpoint> RdmaClient<E> {
    /// A client on an endpoint that has been asked to connect with the private data of `settings`.
    pub fn new(endpoint: E, settings: RdmaClientSettings) -> Self {
        Self {
            endpoint,
            phase: Phase::Connecting,
            refused: None,
            stalled: false,
            call_bytes_max: 0,
            reply_bytes_max: 0,
            granted: 1,
            receives: settings.receives_posted,
            next_xid: settings.first_xid,
            waiting: VecDeque::new(),
            pending: BTreeMap::new(),
            memory: Memory::new(settings.new_keys),
            events: Vec::new(),
            unmatched: Vec::new(),
            scratch: Vec::new(),
            settings,
        }
    }

    /// Whether the server has accepted and nothing has gone wrong since.
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Credits that the server granted last; 1 before the first reply.
    pub fn granted(&self) -> u32 {
        self.granted
    }

    /// Change the shape of the calls that follow.
    pub fn set_shape(&mut self, shape: Shape) {
        self.settings.shape = shape;
    }

    /// The endpoint: for tests that register memory or misbehave.
    pub fn endpoint_mut(&mut self) -> &mut E {
        &mut self.endpoint
    }

    /// Messages that answer no call of ours (what came of [`Self::send_raw`]).
    pub fn take_unmatched(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.unmatched)
    }

    /// Send bytes as they are, past credits and headers. The answer, if any, is in [`Self::take_unmatched`].
    ///
    /// # Errors
    /// When it cannot be posted.
    pub fn send_raw(&mut self, message: &[u8]) -> Result<(), ClientError> {
        self.endpoint.post_receive()?;
        self.receives += 1;
        Ok(self.endpoint.send(message)?)
    }

    /// Hang up.
    pub fn disconnect(&mut self) {
        self.endpoint.disconnect();
    }

    fn error(&self) -> Option<ClientError> {
        match self.phase {
            Phase::Connecting | Phase::Up => None,
            Phase::Rejected => Some(ClientError::Rejected),
            Phase::Disconnected => Some(ClientError::Disconnected),
            Phase::Failed(fault) => Some(ClientError::Failed(fault)),
        }
    }

    /// Calls that may be under way now.
    fn window(&self) -> usize {
        match self.settings.heed_credits {
            true => self.granted.min(self.settings.credits) as usize,
            false => usize::MAX,
        }
    }

    /// Send what the credits and the send queue allow.
    fn send_waiting(&mut self) -> Result<(), ClientError> {
        if self.stalled {
            self.post_call();
        }
        while self.phase == Phase::Up
            && !self.stalled
            && self.refused.is_none()
            && self.pending.len() < self.window()
        {
            let Some(waiting) = self.waiting.pop_front() else { break };
            let pending = self.marshal(&waiting)?;
            self.pending.insert(waiting.xid, pending);
            self.post_call();
        }
        Ok(())
    }

    /// Post the call in `scratch`. It counts as sent: its end is told by a reply or by the end of the
    /// connection.
    fn post_call(&mut self) {
        self.stalled = false;
        while self.receives < self.pending.len() {
            match self.endpoint.post_receive() {
                Ok(()) => self.receives += 1,
                Err(error) => return self.refused = Some(error),
            }
        }
        match self.endpoint.send(&self.scratch) {
            Ok(()) => {}
            // A reply can overtake the completion of its call's Send, so that more Sends are under way than
            // calls. Their completions make room.
            Err(WireError::QueueFull) => self.stalled = true,
            Err(error) => self.refused = Some(error),
        }
    }

    /// Build the Send of a call in `scratch`, and the chunks that go with it.
    fn marshal(&mut self, waiting: &Waiting) -> Result<Pending<E::Region>, ClientError> {
        let Waiting { xid, message, reply } = waiting;
        let shape = self.settings.shape;
        let mut lists = ChunkLists::default();
        let (procedure, body, read) = match shape.call_form(message, self.call_bytes_max) {
            CallForm::Inline => (HeaderProcedure::Message, message.flatten().into(), Vec::new()),
            CallForm::ReadChunk => {
                let read = self.read_chunks(message, &mut lists)?;
                (HeaderProcedure::Message, message.head.clone(), read)
            }
            CallForm::PositionZero => {
                let chunk = self.read_chunk(0, &message.flatten(), &mut lists)?;
                (HeaderProcedure::NoMessage, Bytes::new(), vec![chunk])
            }
        };
        let mut pending =
            Pending { read, write: None, reply: None, after_bulk_bytes: reply.after_bulk_bytes };
        match shape.reply_form(reply, self.reply_bytes_max) {
            ReplyForm::Inline => {}
            ReplyForm::WriteChunk => {
                let len = reply.bulk_bytes_max.unwrap_or(0);
                let pad = shape.pad_segment && pad_bytes(len) > 0;
                let chunk = self.chunk(Access::RemoteWrite, len, pad)?;
                lists.write.push(WriteChunk { segments: chunk.segments().collect() });
                pending.write = Some(chunk);
            }
            ReplyForm::ReplyChunk => {
                let chunk = self.chunk(Access::RemoteWrite, reply_bytes(reply), false)?;
                lists.reply = Some(WriteChunk { segments: chunk.segments().collect() });
                pending.reply = Some(chunk);
            }
        }
        let credits = self.settings.credits;
        self.scratch.clear();
        Header { xid: *xid, credits, procedure, lists }.encode(&mut self.scratch);
        self.scratch.extend_from_slice(&body);
        Ok(pending)
    }

    fn chunk(
        &mut self,
        access: Access,
        len: usize,
        pad: bool,
    ) -> Result<Chunk<E::Region>, ClientError> {
        let segment_bytes = self.settings.shape.segment_bytes_max;
        Ok(self.memory.take(&mut self.endpoint, access, len, segment_bytes, pad)?)
    }

    fn read_chunk(
        &mut self,
        position: usize,
        data: &[u8],
        lists: &mut ChunkLists,
    ) -> Result<Chunk<E::Region>, ClientError> {
        let mut chunk = self.chunk(Access::RemoteRead, data.len(), false)?;
        chunk.write(data);
        let position = position as u32;
        lists.read.extend(chunk.segments().map(|segment| ReadSegment { position, segment }));
        Ok(chunk)
    }

    /// A Read chunk for each piece; positions count the message as if nothing had been taken out of it.
    fn read_chunks(
        &mut self,
        message: &Rope,
        lists: &mut ChunkLists,
    ) -> Result<Vec<Chunk<E::Region>>, ClientError> {
        let mut before = 0;
        let mut chunks = Vec::with_capacity(message.pieces.len());
        for piece in &message.pieces {
            let data = piece.data.bytes().ok_or(ClientError::Failed(WireFault::Local))?;
            let padding = pad_bytes(data.len());
            let position = piece.at + before;
            let chunk = match self.settings.shape.read_padding && padding > 0 {
                true => {
                    let mut padded = data.to_vec();
                    padded.resize(data.len() + padding, 0);
                    self.read_chunk(position, &padded, lists)?
                }
                false => self.read_chunk(position, data, lists)?,
            };
            chunks.push(chunk);
            before += data.len() + padding;
        }
        Ok(chunks)
    }

    fn on_event(&mut self, event: EndpointEvent, out: &mut Vec<Reply>) -> Result<(), ClientError> {
        match event {
            EndpointEvent::Connected { private_data } => {
                let server = PrivateData::find(&private_data).unwrap_or_default();
                self.call_bytes_max = self.settings.send_bytes.min(server.receive_bytes);
                self.reply_bytes_max = self.settings.receive_bytes.min(server.send_bytes);
                self.phase = Phase::Up;
            }
            EndpointEvent::Received { message, invalidated } => {
                self.receives = self.receives.saturating_sub(1);
                self.on_message(message, invalidated, out)?;
            }
            EndpointEvent::Sent => {}
            EndpointEvent::Rejected { .. } => self.end(Phase::Rejected, out),
            EndpointEvent::Disconnected => self.end(Phase::Disconnected, out),
            EndpointEvent::Failed(fault) => self.end(Phase::Failed(fault), out),
        }
        Ok(())
    }

    fn end(&mut self, phase: Phase, out: &mut Vec<Reply>) {
        if matches!(self.phase, Phase::Connecting | Phase::Up) {
            self.phase = phase;
        }
        let sent = std::mem::take(&mut self.pending).into_keys();
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|w| w.xid);
        let result = Err(CallFault::Disconnected);
        out.extend(sent.chain(waiting).map(|xid| Reply { xid, result: result.clone() }));
    }

    fn on_message(
        &mut self,
        message: Bytes,
        invalidated: Option<u32>,
        out: &mut Vec<Reply>,
    ) -> Result<(), ClientError> {
        let rope = Rope::inline(message.clone());
        let Ok((header, header_bytes)) = decode_reply(&rope) else {
            self.unmatched.push(message);
            return Ok(());
        };
        let (xid, credits) = match &header {
            ReplyHeader::Message(header) => (header.xid, header.credits),
            ReplyHeader::VersionError { xid, credits, .. } => (*xid, *credits),
            ReplyHeader::ChunkError { xid, credits } => (*xid, *credits),
        };
        let Some(pending) = self.pending.remove(&xid) else {
            self.unmatched.push(message);
            return Ok(());
        };
        self.granted = credits.clamp(1, self.settings.credits.max(1));
        let too_long = message.len() > self.reply_bytes_max.max(HEADER_BYTES_MIN);
        let result = match header {
            _ if too_long => Err(CallFault::Protocol("a Send is longer than was agreed")),
            _ if credits == 0 => Err(CallFault::Protocol("a reply grants no credits")),
            _ if !pending.may_lose(invalidated) => {
                Err(CallFault::Protocol("a key was invalidated that is not the call's"))
            }
            ReplyHeader::ChunkError { .. } => Err(CallFault::Chunk),
            ReplyHeader::VersionError { low, high, .. } => Err(CallFault::Version { low, high }),
            ReplyHeader::Message(header) => {
                pending.open(&header, message.slice(header_bytes..)).map_err(CallFault::Protocol)
            }
        };
        let chunks = pending.read.into_iter().chain(pending.write).chain(pending.reply);
        for chunk in chunks {
            self.memory.put(&mut self.endpoint, chunk, invalidated)?;
        }
        out.push(Reply { xid, result });
        Ok(())
    }
}

impl<R: Region> Pending<R> {
    /// Whether the key that the server has taken away is one of this call's.
    fn may_lose(&self, invalidated: Option<u32>) -> bool {
        let mut chunks = self.read.iter().chain(&self.write).chain(&self.reply);
        invalidated.is_none_or(|rkey| chunks.any(|chunk| chunk.has_key(rkey)))
    }

    /// Put the reply message together.
    fn open(&self, header: &Header, body: Bytes) -> Result<Rope, &'static str> {
        if !header.lists.read.is_empty() {
            return Err("a reply has a Read list");
        }
        let reply = match (&self.reply, &header.lists.reply) {
            (_, None) => Vec::new(),
            (None, Some(_)) => return Err("a Reply chunk came back that was not offered"),
            (Some(offered), Some(echoed)) => offered.read(&echoed.segments)?,
        };
        let bulk = match (&self.write, &header.lists.write[..]) {
            (None, []) => Vec::new(),
            (Some(offered), [echoed]) => offered.read(&echoed.segments)?,
            _ => return Err("the Write list came back with another number of chunks"),
        };
        let head = match header.procedure {
            HeaderProcedure::Message if reply.is_empty() => body,
            HeaderProcedure::Message => return Err("RDMA_MSG with a Reply chunk that was used"),
            HeaderProcedure::NoMessage if reply.is_empty() => {
                return Err("RDMA_NOMSG without a Reply chunk");
            }
            HeaderProcedure::NoMessage if !body.is_empty() || !bulk.is_empty() => {
                return Err("RDMA_NOMSG with something besides the Reply chunk");
            }
            HeaderProcedure::NoMessage => reply.into(),
        };
        if head.first_chunk::<4>() != Some(&header.xid.to_be_bytes()) {
            return Err("the xid of the reply is not that of its header");
        }
        let at = head.len().checked_sub(self.after_bulk_bytes);
        let at = at.ok_or("the reply is too short for its bulk data")?;
        let pieces = match bulk.is_empty() {
            true => Vec::new(),
            false => vec![Piece { at, data: Bytes::from(bulk).into() }],
        };
        Ok(Rope { head, pieces })
    }
}

impl<E: Endpoint> RpcClient for RdmaClient<E> {
    fn call(
        &mut self,
        procedure: Procedure,
        credential: &Credential,
        args: Rope,
        reply: ReplyOptions,
    ) -> Result<u32, ClientError> {
        if let Some(error) = self.error() {
            return Err(error);
        }
        let xid = self.next_xid;
        self.next_xid = self.next_xid.wrapping_add(1);
        let message = encode_call(xid, procedure, credential, &args);
        self.waiting.push_back(Waiting { xid, message, reply });
        self.send_waiting()?;
        Ok(xid)
    }

    fn poll(&mut self, out: &mut Vec<Reply>) -> Result<(), ClientError> {
        let before = out.len();
        let mut events = std::mem::take(&mut self.events);
        self.endpoint.poll(&mut events);
        for event in events.drain(..) {
            self.on_event(event, out)?;
        }
        self.events = events;
        self.send_waiting()?;
        if self.refused.is_some() && self.phase == Phase::Up {
            self.end(Phase::Failed(WireFault::Local), out);
        }
        if out.len() > before {
            return Ok(());
        }
        match (self.error(), self.refused.take()) {
            (None, _) => Ok(()),
            (Some(ClientError::Failed(WireFault::Local)), Some(refused)) => Err(refused.into()),
            (Some(error), _) => Err(error),
        }
    }

    fn wait(&mut self, timeout: Duration) {
        self.endpoint.wait(timeout);
    }

    fn outstanding(&self) -> usize {
        self.waiting.len() + self.pending.len()
    }
}
