//! RPC over a byte stream from the client's side (RFC 5531 section 11).

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, IoSlice, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use buffers::Payload;
use bytes::{Bytes, BytesMut};
use rustix::{
    buffer::spare_capacity,
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, recv},
};

use super::{
    message::{Procedure, encode_call},
    rpc_client::{CallFault, ClientError, Reply, ReplyOptions, RpcClient},
};
use crate::{
    rpc::{
        Credential,
        record::{FragmentHeader, MARK_BYTES},
    },
    xdr::Rope,
};

/// Bytes that one read asks for at least.
const READ_BYTES: usize = 64 << 10;
/// Bytes that one read throws away at most.
const DISCARD_BYTES: usize = 1 << 20;
/// Parts that one vectored write takes.
const SLICES_MAX: usize = 64;
const XID_BYTES: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// How the client behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpClientSettings {
    /// Longest record that we take, in bytes.
    pub record_bytes_max: usize,
    /// Cut calls into random fragments, drawn from this seed.
    pub fragments_seed: Option<u64>,
    /// The first xid.
    pub first_xid: u32,
}

impl Default for TcpClientSettings {
    fn default() -> Self {
        Self { record_bytes_max: 8 << 20, fragments_seed: None, first_xid: 0x7c00_0000 }
    }
}

/// An RPC client on one TCP connection.
#[derive(Debug)]
pub struct TcpClient {
    stream: TcpStream,
    settings: TcpClientSettings,
    next_xid: u32,
    pending: BTreeSet<u32>,
    outbox: VecDeque<Bytes>,
    inbox: Vec<u8>,
    /// Fragments of a record that has not ended yet.
    fragments: BytesMut,
    unmatched: Vec<Bytes>,
    ended: bool,
    discard: Option<Discard>,
}

/// Records of which only the beginning is taken.
#[derive(Debug)]
struct Discard {
    /// So many bytes of each.
    keep: usize,
    /// The beginning of the record whose rest is being thrown away, and how much of that is still to come.
    under_way: Option<(Bytes, usize)>,
    /// Never written to: the system drops the bytes instead of copying them here (tcp(7), MSG_TRUNC).
    nowhere: Vec<u8>,
}

impl TcpClient {
    /// Connect.
    ///
    /// # Errors
    /// When the connection cannot be had.
    pub fn connect(address: SocketAddr, settings: TcpClientSettings) -> io::Result<Self> {
        Self::new(TcpStream::connect(address)?, settings)
    }

    /// A client on a stream that is connected.
    ///
    /// # Errors
    /// When the stream cannot be made non-blocking.
    pub fn new(stream: TcpStream, settings: TcpClientSettings) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            settings,
            next_xid: settings.first_xid,
            pending: BTreeSet::new(),
            outbox: VecDeque::new(),
            inbox: Vec::new(),
            fragments: BytesMut::new(),
            unmatched: Vec::new(),
            ended: false,
            discard: None,
        })
    }

    /// Records that answer no call of ours.
    pub fn take_unmatched(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.unmatched)
    }

    /// Send bytes as they are, without record marks.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.outbox.push_back(Bytes::copy_from_slice(bytes));
        self.send()
    }

    /// Put a record into the outbox.
    fn push_record(&mut self, message: &Rope) {
        let Some(mut seed) = self.settings.fragments_seed else {
            self.outbox.push_back(Bytes::copy_from_slice(&FragmentHeader::single(message.len())));
            self.outbox.extend(message.parts().iter().filter_map(Payload::bytes).cloned());
            return;
        };
        let mut rest = Bytes::from(message.flatten());
        loop {
            // xorshift64; the seed must not be 0.
            seed = seed.max(1);
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let fragment = rest.split_to((seed % (rest.len() as u64 + 1)) as usize);
            let last = if rest.is_empty() { LAST_FRAGMENT } else { 0 };
            let mark = fragment.len() as u32 | last;
            self.outbox.push_back(Bytes::copy_from_slice(&mark.to_be_bytes()));
            self.outbox.push_back(fragment);
            if rest.is_empty() {
                break;
            }
        }
        self.settings.fragments_seed = Some(seed);
    }

    /// Write what the socket takes.
    fn send(&mut self) -> Result<(), ClientError> {
        self.outbox.retain(|part| !part.is_empty());
        while !self.outbox.is_empty() {
            let slices: Vec<IoSlice<'_>> =
                self.outbox.iter().take(SLICES_MAX).map(|part| IoSlice::new(part)).collect();
            let mut written = match self.stream.write_vectored(&slices) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            while let Some(part) = self.outbox.front_mut()
                && written > 0
            {
                let now = written.min(part.len());
                written -= now;
                let _ = part.split_to(now);
                if part.is_empty() {
                    self.outbox.pop_front();
                }
            }
        }
        Ok(())
    }

    /// Bytes that are missing to the fragment at the front of the inbox.
    fn missing(&self) -> Result<usize, ClientError> {
        let Some(mark) = self.inbox.first_chunk::<MARK_BYTES>() else { return Ok(MARK_BYTES) };
        let len = FragmentHeader::decode(*mark).len;
        if len.saturating_add(self.fragments.len()) > self.settings.record_bytes_max {
            return Err(ClientError::Protocol("a record is longer than the limit"));
        }
        Ok((MARK_BYTES + len).saturating_sub(self.inbox.len()))
    }

    /// Read what the socket has. False at its end.
    fn receive(&mut self, out: &mut Vec<Reply>) -> Result<bool, ClientError> {
        loop {
            match self.read()? {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(true),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::CONNRESET) => return Ok(false),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            if self.missing()? == 0 {
                self.take_records(out)?;
            }
            self.discard(out);
        }
    }

    /// One read from the socket: into the inbox, or to nowhere.
    fn read(&mut self) -> Result<rustix::io::Result<usize>, ClientError> {
        let missing = self.missing()?;
        let Some(discard) = &mut self.discard else {
            self.inbox.reserve(missing.max(READ_BYTES));
            return Ok(rustix::io::read(&self.stream, spare_capacity(&mut self.inbox)));
        };
        if let Some((_, rest)) = &mut discard.under_way {
            let len = (*rest).min(discard.nowhere.len());
            let got = recv(&self.stream, &mut discard.nowhere[..len], RecvFlags::TRUNC);
            return Ok(got.map(|(_, len)| {
                *rest = rest.saturating_sub(len);
                len
            }));
        }
        // No more than the beginning, lest the rest be copied as well.
        let start = self.inbox.len();
        let beginning = (MARK_BYTES + discard.keep).saturating_sub(start);
        let wanted = if beginning == 0 { missing } else { missing.min(beginning) };
        self.inbox.resize(start + wanted, 0);
        let got = rustix::io::read(&self.stream, &mut self.inbox[start..]);
        self.inbox.truncate(start + got.unwrap_or(0));
        Ok(got)
    }

    /// Begin or end to throw away a record's rest. Records in several fragments are taken whole.
    fn discard(&mut self, out: &mut Vec<Reply>) {
        let Some(discard) = &mut self.discard else { return };
        if let Some((beginning, _)) = discard.under_way.take_if(|(_, rest)| *rest == 0) {
            return self.on_record(beginning, out);
        }
        let Some(mark) = self.inbox.first_chunk::<MARK_BYTES>() else { return };
        let FragmentHeader { last, len } = FragmentHeader::decode(*mark);
        let beginning = self.inbox.get(MARK_BYTES..MARK_BYTES + discard.keep);
        if let Some(beginning) = beginning
            && last
            && self.fragments.is_empty()
            && len > discard.keep
        {
            let rest = MARK_BYTES + len - self.inbox.len();
            discard.under_way = Some((Bytes::copy_from_slice(beginning), rest));
            self.inbox.clear();
        }
    }

    /// Take the whole fragments off the inbox; what is left of it starts the next one.
    fn take_records(&mut self, out: &mut Vec<Reply>) -> Result<(), ClientError> {
        let mut bytes = Bytes::from(std::mem::take(&mut self.inbox));
        while let Some(mark) = bytes.first_chunk::<MARK_BYTES>() {
            let FragmentHeader { last, len } = FragmentHeader::decode(*mark);
            if len.saturating_add(self.fragments.len()) > self.settings.record_bytes_max {
                return Err(ClientError::Protocol("a record is longer than the limit"));
            }
            if bytes.len() < MARK_BYTES + len {
                break;
            }
            let fragment = bytes.split_to(MARK_BYTES + len).split_off(MARK_BYTES);
            if last && self.fragments.is_empty() {
                self.on_record(fragment, out);
            } else {
                self.fragments.extend_from_slice(&fragment);
                if last {
                    let record = self.fragments.split().freeze();
                    self.on_record(record, out);
                }
            }
        }
        self.inbox = bytes.to_vec();
        Ok(())
    }

    fn on_record(&mut self, record: Bytes, out: &mut Vec<Reply>) {
        let xid = record.first_chunk::<XID_BYTES>().map(|xid| u32::from_be_bytes(*xid));
        match xid.filter(|xid| self.pending.remove(xid)) {
            Some(xid) => out.push(Reply { xid, result: Ok(Rope::inline(record)) }),
            None => self.unmatched.push(record),
        }
    }
}

impl RpcClient for TcpClient {
    fn call(
        &mut self,
        procedure: Procedure,
        credential: &Credential,
        args: Rope,
        _reply: ReplyOptions,
    ) -> Result<u32, ClientError> {
        if self.ended {
            return Err(ClientError::Disconnected);
        }
        let xid = self.next_xid;
        self.next_xid = self.next_xid.wrapping_add(1);
        self.push_record(&encode_call(xid, procedure, credential, &args));
        self.pending.insert(xid);
        Ok(xid)
    }

    fn poll(&mut self, out: &mut Vec<Reply>) -> Result<(), ClientError> {
        if self.ended {
            return Err(ClientError::Disconnected);
        }
        // A broken pipe is told by the read below, behind the replies that had come before it.
        let sent = self.send();
        if !self.receive(out)? {
            self.ended = true;
            let result = Err(CallFault::Disconnected);
            let lost = std::mem::take(&mut self.pending).into_iter();
            out.extend(lost.map(|xid| Reply { xid, result: result.clone() }));
            return Ok(());
        }
        sent
    }

    fn wait(&mut self, timeout: Duration) {
        let mut flags = PollFlags::IN;
        if !self.outbox.is_empty() {
            flags |= PollFlags::OUT;
        }
        let timeout = Timespec::try_from(timeout).ok();
        // Whatever it says, the next `poll` finds out.
        let _ = poll(&mut [PollFd::new(&self.stream, flags)], timeout.as_ref());
    }

    fn outstanding(&self) -> usize {
        self.pending.len()
    }

    fn keep_at_most(&mut self, bytes: usize) -> bool {
        // Nothing is known of a reply without its xid.
        let keep = bytes.max(XID_BYTES);
        self.discard = Some(Discard { keep, under_way: None, nowhere: vec![0; DISCARD_BYTES] });
        true
    }
}
