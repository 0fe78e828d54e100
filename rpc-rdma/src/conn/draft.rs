//! Which way a reply goes (RFC 8166 sections 3.4.6 and 4.4), decided before a buffer is taken.
//!
//! Results that may be placed directly fill the Write chunks in order. What is left goes inline if it fits
//! there, even when a Reply chunk was offered (it saves the client's RDMA Write and costs nothing), otherwise
//! into the Reply chunk. Padding is never written into a Write chunk.

use buffers::{
    Arena, Lease,
    copies::{self, Why},
};
use bytes::Bytes;

use super::settings::{CALL_BYTES_MAX, Terms};
use crate::{
    chunk::{ChunkLists, Segment, WriteChunk},
    header::{Header, Procedure},
    wire::{RdmaWrite, RemoteMemory, Work},
    xdr::{Rope, pad_bytes},
};

const ZEROS: &[u8] = &[0; 3];

/// Why a reply cannot go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfit {
    /// A result is larger than its Write chunk.
    WriteChunk,
    /// The message is larger than the inline threshold and the Reply chunk.
    Message,
}

/// A reply that is planned and waits for buffers.
#[derive(Debug)]
pub(super) struct Draft {
    header: Vec<u8>,
    message: Vec<Part>,
    long: Option<Long>,
    /// Of the results that lie in registered memory.
    writes: Vec<RdmaWrite>,
    /// The other results for Write chunks.
    copied: Vec<Placed>,
    placed_bytes: usize,
    invalidate: Option<u32>,
    send_bytes: usize,
    /// Buffers for the long message and for what is copied, in this order.
    leases: Vec<Lease>,
    send: Option<Lease>,
}

/// A message that goes by the Reply chunk.
#[derive(Debug)]
struct Long {
    chunk: WriteChunk,
    bytes: usize,
}

/// A stretch of the message.
#[derive(Debug)]
struct Part {
    bytes: Bytes,
    payload: bool,
}

/// A result for a Write chunk that has to be copied into registered memory.
#[derive(Debug)]
struct Placed {
    data: Bytes,
    chunk: WriteChunk,
}

/// What goes where.
struct Assigned {
    writes: Vec<RdmaWrite>,
    copied: Vec<Placed>,
    placed_bytes: usize,
    message: Vec<Part>,
    /// The write list with the lengths used.
    returned: Vec<WriteChunk>,
}

/// What a call offered for its reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer<'a> {
    /// Transaction id.
    pub xid: u32,
    /// Write list and Reply chunk.
    pub lists: &'a ChunkLists,
    /// Key that may be invalidated.
    pub invalidate: Option<u32>,
    /// Credits to grant.
    pub credits: u32,
}

impl Draft {
    /// A message that is nothing but a header: RDMA_ERROR. It invalidates nothing.
    pub fn header_only(header: Vec<u8>) -> Self {
        Self {
            send_bytes: header.len(),
            header,
            message: Vec::new(),
            long: None,
            writes: Vec::new(),
            copied: Vec::new(),
            placed_bytes: 0,
            invalidate: None,
            leases: Vec::new(),
            send: None,
        }
    }

    /// Plan the reply to a call.
    ///
    /// # Errors
    /// When the client has not offered enough for it.
    pub fn plan(
        reply: &Rope,
        offer: Offer<'_>,
        terms: &Terms,
        arena: &Arena,
    ) -> Result<Self, Misfit> {
        let mut writes_left = terms.send_requests.saturating_sub(1);
        let assigned = assign(reply, offer.lists, arena, &mut writes_left)?;
        let Assigned { writes, copied, placed_bytes, message, returned } = assigned;
        let message_bytes: usize = message.iter().map(|part| part.bytes.len()).sum();
        let unused = offer.lists.reply.as_ref().map(WriteChunk::unused);
        let mut header = Header {
            xid: offer.xid,
            credits: offer.credits,
            procedure: Procedure::Message,
            lists: ChunkLists { read: Vec::new(), write: returned, reply: unused },
        };
        let mut send_bytes = header.encoded_bytes() + message_bytes;
        let mut long = None;
        if send_bytes > terms.send_bytes_max {
            let chunk = offer.lists.reply.as_ref().ok_or(Misfit::Message)?;
            let fits = chunk.capacity_within(writes_left) >= message_bytes as u64
                && message_bytes <= CALL_BYTES_MAX
                && header.encoded_bytes() <= terms.send_bytes_max;
            if !fits {
                return Err(Misfit::Message);
            }
            header.procedure = Procedure::NoMessage;
            header.lists.reply = Some(used(chunk, message_bytes));
            long = Some(Long { chunk: chunk.clone(), bytes: message_bytes });
            send_bytes = header.encoded_bytes();
        }
        let mut encoded = Vec::with_capacity(header.encoded_bytes());
        header.encode(&mut encoded);
        Ok(Self {
            header: encoded,
            message,
            long,
            writes,
            copied,
            placed_bytes,
            invalidate: offer.invalidate.filter(|_| terms.invalidate),
            send_bytes,
            leases: Vec::new(),
            send: None,
        })
    }

    /// Size of the next buffer that it needs, or `None` when it has all.
    pub fn need(&self) -> Option<usize> {
        let long = self.long.iter().map(|long| long.bytes);
        let mut large = long.chain(self.copied.iter().map(|placed| placed.data.len()));
        // The small one last: every reply needs one, so nobody may hold it while he waits for more.
        let small = || self.send.is_none().then_some(self.send_bytes);
        large.nth(self.leases.len()).or_else(small)
    }

    /// The next buffer.
    pub fn give(&mut self, lease: Lease) {
        if self.leases.len() < usize::from(self.is_long()) + self.copied.len() {
            self.leases.push(lease);
        } else {
            self.send = Some(lease);
        }
    }

    /// Whether the message goes by the Reply chunk.
    pub fn is_long(&self) -> bool {
        self.long.is_some()
    }

    /// Bytes that go into Write chunks.
    pub fn placed_bytes(&self) -> usize {
        self.placed_bytes
    }

    /// The work, when it has all its buffers; `None` before.
    pub fn build(mut self) -> Option<Work> {
        let mut send = self.send.take()?;
        let mut leases = self.leases.into_iter();
        let mut writes = self.writes;
        let mut copied_registered = 0;
        let mut long_message = None;
        let header_bytes = self.header.len();
        send.get_mut(..header_bytes)?.copy_from_slice(&self.header);
        let payload: usize =
            self.message.iter().filter(|p| p.payload).map(|part| part.bytes.len()).sum();
        let send_bytes = match &self.long {
            None => {
                copies::count(Why::Inline, payload);
                header_bytes + join(&self.message, send.get_mut(header_bytes..)?)?
            }
            Some(long) => {
                let mut buffer = leases.next()?;
                let len = join(&self.message, &mut buffer)?;
                copied_registered += payload;
                long_message = Some((buffer.freeze(0, len), &long.chunk));
                header_bytes
            }
        };
        for Placed { data, chunk } in self.copied {
            let mut buffer = leases.next()?;
            buffer.get_mut(..data.len())?.copy_from_slice(&data);
            copied_registered += data.len();
            scatter(&buffer.freeze(0, data.len()), &chunk, &mut writes);
        }
        if let Some((message, chunk)) = long_message {
            scatter(&message, chunk, &mut writes);
        }
        copies::count(Why::Register, copied_registered);
        let send = send.freeze(0, send_bytes);
        Some(Work::Reply { writes, send, invalidate: self.invalidate })
    }
}

/// Give every result its Write chunk as long as there are any; the others stay in the message.
fn assign(
    reply: &Rope,
    offered: &ChunkLists,
    arena: &Arena,
    writes_left: &mut usize,
) -> Result<Assigned, Misfit> {
    let mut returned = Vec::with_capacity(offered.write.len());
    let mut chunks = offered.write.iter();
    let (mut writes, mut copied, mut placed_bytes) = (Vec::new(), Vec::new(), 0);
    let mut message = Vec::with_capacity(2 * reply.pieces.len() + 1);
    let mut done = 0;
    for piece in &reply.pieces {
        // Pages of the page cache are asked for on streams only.
        let data = piece.data.bytes().ok_or(Misfit::WriteChunk)?;
        let len = data.len();
        let at = piece.at.clamp(done, reply.head.len());
        message.push(Part { bytes: reply.head.slice(done..at), payload: false });
        done = at;
        // An empty chunk at its turn asks for this result inline.
        let chunk = if len == 0 { None } else { chunks.next() };
        let fillable = chunk.filter(|chunk| chunk.capacity() > 0);
        returned.extend(chunk.map(|chunk| used(chunk, fillable.map_or(0, |_| len))));
        match fillable {
            Some(chunk) => {
                let requests = used_segments(chunk, len).ok_or(Misfit::WriteChunk)?;
                *writes_left = writes_left.checked_sub(requests).ok_or(Misfit::WriteChunk)?;
                placed_bytes += len;
                if arena.locate(data).is_some() {
                    writes.reserve_exact(requests);
                    scatter(data, chunk, &mut writes);
                } else if len > CALL_BYTES_MAX {
                    return Err(Misfit::WriteChunk);
                } else {
                    copied.push(Placed { data: data.clone(), chunk: chunk.clone() });
                }
            }
            None => {
                message.push(Part { bytes: data.clone(), payload: true });
                let pad = Bytes::from_static(ZEROS).slice(..pad_bytes(len));
                message.push(Part { bytes: pad, payload: false });
            }
        }
    }
    message.push(Part { bytes: reply.head.slice(done..), payload: false });
    returned.extend(chunks.map(WriteChunk::unused));
    Ok(Assigned { writes, copied, placed_bytes, message, returned })
}

/// Segments that `len` bytes fill, or `None` when they do not fit.
fn used_segments(chunk: &WriteChunk, len: usize) -> Option<usize> {
    let mut left = len as u64;
    let mut count = 0;
    for segment in chunk.segments.iter().filter(|s| s.length > 0) {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(u64::from(segment.length));
        count += 1;
    }
    (left == 0).then_some(count)
}

/// The chunk as returned when `len` bytes were written into it.
fn used(chunk: &WriteChunk, len: usize) -> WriteChunk {
    let mut left = len;
    let fill = |segment: &Segment| {
        let length = left.min(segment.length as usize);
        left -= length;
        Segment { length: length as u32, ..*segment }
    };
    WriteChunk { segments: chunk.segments.iter().map(fill).collect() }
}

/// RDMA Writes of `data` into the segments in order.
fn scatter(data: &Bytes, chunk: &WriteChunk, writes: &mut Vec<RdmaWrite>) {
    let mut done = 0;
    for segment in chunk.segments.iter().filter(|s| s.length > 0) {
        let end = data.len().min(done + segment.length as usize);
        if done == end {
            break;
        }
        let remote = RemoteMemory { rkey: segment.handle, address: segment.offset };
        writes.push(RdmaWrite { local: data.slice(done..end), remote });
        done = end;
    }
}

/// Put the parts one behind the other; returns their length.
fn join(parts: &[Part], out: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    for part in parts {
        let end = at + part.bytes.len();
        out.get_mut(at..end)?.copy_from_slice(&part.bytes);
        at = end;
    }
    Some(at)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use buffers::Pool;

    use super::*;
    use crate::{
        header::{ReplyHeader, decode_reply},
        rpc::reply,
    };

    const XID: u32 = 0x5a01_c0de;

    fn terms() -> Terms {
        Terms {
            credits: 128,
            receives: 136,
            send_requests: 64,
            reads_outstanding: 16,
            send_bytes_max: 4096,
            invalidate: true,
        }
    }

    fn chunk(segments: &[(u32, u32, u64)]) -> WriteChunk {
        let segment = |&(handle, length, offset): &_| Segment { handle, length, offset };
        WriteChunk { segments: segments.iter().map(segment).collect() }
    }

    fn payload(pool: &Arc<Pool>, len: usize) -> Bytes {
        let mut lease = pool.take(len).unwrap();
        for (i, byte) in lease.iter_mut().enumerate().take(len) {
            *byte = i as u8;
        }
        lease.freeze(0, len)
    }

    /// READ3resok without attributes.
    fn read_reply(data: Bytes) -> Rope {
        let mut writer = reply::success(XID);
        writer.u32(0);
        writer.bool(false);
        writer.u32(data.len() as u32);
        writer.bool(true);
        writer.payload(data);
        writer.finish()
    }

    type Sent = (Vec<RdmaWrite>, Bytes, Option<u32>);

    fn send(
        reply: &Rope,
        lists: &ChunkLists,
        terms: &Terms,
        pool: &Arc<Pool>,
    ) -> Result<Sent, Misfit> {
        let offer = Offer { xid: XID, lists, invalidate: lists.sole_handle(), credits: 128 };
        let mut draft = Draft::plan(reply, offer, terms, pool.arena())?;
        while let Some(bytes) = draft.need() {
            draft.give(pool.take(bytes).unwrap());
        }
        let Work::Reply { writes, send, invalidate } = draft.build().unwrap() else {
            panic!("a reply is a reply")
        };
        assert!(pool.arena().locate(&send).is_some());
        assert!(writes.iter().all(|w| pool.arena().locate(&w.local).is_some()));
        assert!(send.len() <= terms.send_bytes_max);
        Ok((writes, send, invalidate))
    }

    fn header(send: &Bytes) -> (Header, usize) {
        match decode_reply(&Rope::inline(send.clone())).unwrap() {
            (ReplyHeader::Message(header), len) => (header, len),
            (other, _) => panic!("not a message: {other:?}"),
        }
    }

    #[test]
    fn read_reply_is_byte_exact() {
        let pool = Pool::standalone(16 << 20);
        let first = (0x12301, 8192, 0x5a01_c0de_1000_0000);
        let second = (0x12402, 1808, 0x5a01_c0de_2000_0000);
        let lists = ChunkLists { write: vec![chunk(&[first, second])], ..ChunkLists::default() };
        let data = payload(&pool, 8195);
        let before = copies::copied(Why::Register);
        let (writes, sent, invalidate) =
            send(&read_reply(data.clone()), &lists, &terms(), &pool).unwrap();
        #[rustfmt::skip]
        let words = [
            XID, 1, 0x80, 0,
            0, 1, 2,
            0x12301, 0x2000, XID, 0x1000_0000,
            0x12402, 3, XID, 0x2000_0000,
            0, 0,
            XID, 1, 0, 0, 0, 0,
            0, 0, 0x2003, 1,
            0x2003_u32,
        ];
        let expected: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
        assert_eq!(sent, expected);
        assert_eq!(sent.len(), 112);
        assert_eq!(invalidate, None);
        assert_eq!(writes.len(), 2);
        assert_eq!(writes[0].local, data.slice(..8192));
        assert_eq!(writes[1].local, data.slice(8192..));
        let remote = RemoteMemory { rkey: 0x12402, address: 0x5a01_c0de_2000_0000 };
        assert_eq!(writes[1].remote, remote);
        assert_eq!(writes[0].local.as_ptr(), data.as_ptr());
        assert_eq!(copies::copied(Why::Register), before);
    }

    #[test]
    fn read_results_of_every_small_size_inline() {
        let pool = Pool::standalone(16 << 20);
        for len in (0..200).chain(4000..4060) {
            let reply = read_reply(payload(&pool, len));
            let (writes, sent, _) = match send(&reply, &ChunkLists::default(), &terms(), &pool) {
                Ok(sent) => sent,
                Err(misfit) => {
                    assert!(28 + reply.len() > 4096 && misfit == Misfit::Message, "{len}");
                    continue;
                }
            };
            assert!(writes.is_empty());
            assert_eq!(sent[28..], reply.flatten(), "{len}");
        }
    }

    #[test]
    fn small_reply_goes_inline_although_a_reply_chunk_was_offered() {
        let pool = Pool::standalone(16 << 20);
        let lists = ChunkLists { reply: Some(chunk(&[(5, 7000, 1)])), ..ChunkLists::default() };
        let (writes, sent, invalidate) =
            send(&read_reply(Bytes::new()), &lists, &terms(), &pool).unwrap();
        let (header, _) = header(&sent);
        assert!(writes.is_empty());
        assert_eq!(header.procedure, Procedure::Message);
        assert_eq!(header.lists.reply, Some(chunk(&[(5, 0, 1)])));
        assert_eq!(invalidate, Some(5));
    }

    #[test]
    fn large_reply_goes_by_the_reply_chunk_with_its_padding() {
        let pool = Pool::standalone(16 << 20);
        let segments = [(5, 101, 1000), (6, 0, 7), (7, 65536, 2000), (8, 4, 3000)];
        let lists = ChunkLists { reply: Some(chunk(&segments)), ..ChunkLists::default() };
        let reply = read_reply(payload(&pool, 5001));
        let (writes, sent, _) = send(&reply, &lists, &terms(), &pool).unwrap();
        let (header, len) = header(&sent);
        assert_eq!((header.procedure, len), (Procedure::NoMessage, sent.len()));
        let total = reply.len() as u32;
        let expected = chunk(&[(5, 101, 1000), (6, 0, 7), (7, total - 101, 2000), (8, 0, 3000)]);
        assert_eq!(header.lists.reply, Some(expected));
        let written: Vec<u8> = writes.iter().flat_map(|w| w.local.to_vec()).collect();
        assert_eq!(written, reply.flatten());
    }

    #[test]
    fn bug_19_reply_too_large_for_everything() {
        let pool = Pool::standalone(16 << 20);
        let reply = read_reply(payload(&pool, 5000));
        let misfit = send(&reply, &ChunkLists::default(), &terms(), &pool).unwrap_err();
        assert_eq!(misfit, Misfit::Message);
        let small = ChunkLists { reply: Some(chunk(&[(5, 5000, 1)])), ..ChunkLists::default() };
        assert_eq!(send(&reply, &small, &terms(), &pool).unwrap_err(), Misfit::Message);
        let small = ChunkLists { write: vec![chunk(&[(5, 4999, 1)])], ..ChunkLists::default() };
        assert_eq!(send(&reply, &small, &terms(), &pool).unwrap_err(), Misfit::WriteChunk);
    }

    #[test]
    fn a_peer_with_a_1024_byte_threshold_gets_no_longer_send() {
        let pool = Pool::standalone(16 << 20);
        let terms = Terms { send_bytes_max: 1024, ..terms() };
        let reply = read_reply(payload(&pool, 952));
        assert_eq!(send(&reply, &ChunkLists::default(), &terms, &pool).unwrap().1.len(), 1024);
        let reply = read_reply(payload(&pool, 953));
        let misfit = send(&reply, &ChunkLists::default(), &terms, &pool).unwrap_err();
        assert_eq!(misfit, Misfit::Message);
    }

    #[test]
    fn several_write_chunks_in_order_and_an_empty_one_means_inline() {
        let pool = Pool::standalone(16 << 20);
        let lists = ChunkLists {
            write: vec![
                chunk(&[(1, 100, 0)]),
                chunk(&[]),
                chunk(&[(3, 100, 0)]),
                chunk(&[(4, 9, 0)]),
            ],
            ..ChunkLists::default()
        };
        let mut writer = reply::success(XID);
        for len in [10, 11, 0, 12] {
            writer.payload(payload(&pool, len));
        }
        let (writes, sent, invalidate) = send(&writer.finish(), &lists, &terms(), &pool).unwrap();
        let (header, len) = header(&sent);
        let expected =
            [chunk(&[(1, 10, 0)]), chunk(&[]), chunk(&[(3, 12, 0)]), chunk(&[(4, 0, 0)])];
        assert_eq!(header.lists.write, expected);
        let targets: Vec<u32> = writes.iter().map(|w| w.remote.rkey).collect();
        assert_eq!(targets, [1, 3]);
        // The second result stays in the message, padded.
        assert_eq!(sent.len(), len + 24 + 4 + 4 + 12 + 4 + 4);
        assert_eq!(invalidate, None);
    }

    #[test]
    fn payload_outside_the_arena_is_copied_and_counted() {
        let pool = Pool::standalone(16 << 20);
        let lists = ChunkLists { write: vec![chunk(&[(1, 9000, 0)])], ..ChunkLists::default() };
        let data = Bytes::from(vec![7; 8999]);
        let before = copies::copied(Why::Register);
        let (writes, _, _) = send(&read_reply(data.clone()), &lists, &terms(), &pool).unwrap();
        assert_eq!(writes[0].local, data);
        assert!(copies::copied(Why::Register) >= before + 8999);
    }

    /// Everything at once: a result that goes as it is, one that is copied, and a long message.
    #[test]
    fn buffers_are_asked_for_in_turn_the_small_one_last() {
        let pool = Pool::standalone(16 << 20);
        let lists = ChunkLists {
            write: vec![chunk(&[(1, 100, 0)]), chunk(&[(2, 9000, 0)]), chunk(&[(3, 50, 0)])],
            reply: Some(chunk(&[(4, 7000, 0)])),
            ..ChunkLists::default()
        };
        let mut writer = reply::success(XID);
        let (copied, registered) = (Bytes::from(vec![7; 90]), payload(&pool, 8999));
        writer.payload(copied.clone());
        writer.payload(registered.clone());
        writer.payload(Bytes::from(vec![8; 50]));
        writer.payload(payload(&pool, 6000));
        let reply = writer.finish();
        let offer = Offer { xid: XID, lists: &lists, invalidate: None, credits: 128 };
        let mut draft = Draft::plan(&reply, offer, &terms(), pool.arena()).unwrap();
        assert_eq!(draft.placed_bytes(), 90 + 8999 + 50);
        let mut needs = Vec::new();
        while let Some(bytes) = draft.need() {
            needs.push(bytes);
            draft.give(pool.take(bytes).unwrap());
        }
        let Some(Work::Reply { writes, send, .. }) = draft.build() else { panic!("all is there") };
        let (header, _) = header(&send);
        let message_bytes = header.lists.reply.unwrap().capacity() as usize;
        assert_eq!(needs, [message_bytes, 90, 50, send.len()]);
        assert!(message_bytes > 6000);
        let written = |rkey| writes.iter().find(|w| w.remote.rkey == rkey).unwrap().local.clone();
        assert_eq!(writes.len(), 4);
        assert_eq!((written(1), written(2)), (copied, registered.clone()));
        assert_eq!((written(2).as_ptr(), written(3)[..] == [8; 50]), (registered.as_ptr(), true));
        assert_eq!(written(4).len(), message_bytes);
    }

    #[test]
    fn a_draft_that_lacks_a_buffer_builds_nothing() {
        let pool = Pool::standalone(16 << 20);
        let lists = ChunkLists { write: vec![chunk(&[(1, 100, 0)])], ..ChunkLists::default() };
        let reply = read_reply(Bytes::from(vec![7; 90]));
        let offer = Offer { xid: XID, lists: &lists, invalidate: None, credits: 128 };
        for given in 0..2 {
            let mut draft = Draft::plan(&reply, offer, &terms(), pool.arena()).unwrap();
            (0..given).for_each(|_| draft.give(pool.take(draft.need().unwrap()).unwrap()));
            assert!(draft.need().is_some() && draft.build().is_none());
        }
    }

    #[test]
    fn a_reply_that_exceeds_the_send_queue_is_refused_not_posted() {
        let pool = Pool::standalone(16 << 20);
        let segments: Vec<_> = (0..40).map(|i| (i + 1, 100, 0)).collect();
        let lists = ChunkLists { write: vec![chunk(&segments)], ..ChunkLists::default() };
        let small = Terms { send_requests: 32, ..terms() };
        let fits = read_reply(payload(&pool, 3100));
        assert_eq!(send(&fits, &lists, &small, &pool).unwrap().0.len(), 31);
        let over = read_reply(payload(&pool, 3101));
        assert_eq!(send(&over, &lists, &small, &pool).unwrap_err(), Misfit::WriteChunk);
    }

    #[test]
    fn bug_29_the_send_is_exactly_what_was_encoded() {
        let pool = Pool::standalone(16 << 20);
        let mut header = Vec::new();
        crate::header::encode_chunk_error(&mut header, XID, 9);
        let mut draft = Draft::header_only(header.clone());
        draft.give(pool.take(draft.need().unwrap()).unwrap());
        assert_eq!(draft.need(), None);
        let Some(Work::Reply { send, invalidate: None, .. }) = draft.build() else {
            panic!("an error reply invalidates nothing")
        };
        assert_eq!(send, header);
    }
}
