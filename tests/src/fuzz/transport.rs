//! Decoders of the transports.

use buffers::Pool;
use bytes::Bytes;
use rpc_rdma::{
    chunk,
    header::{self, PrivateData},
    rpc,
    tcp::{Assembler, AssemblerLimits, Next, Space},
    xdr::{Piece, Rope},
};

/// A message whose first byte says where a piece of bulk data is cut out of it.
fn rope(data: &[u8]) -> Rope {
    let Some((&cut, rest)) = data.split_first() else { return Rope::default() };
    let at = usize::from(cut);
    if at % 3 != 0 || at + 8 > rest.len() {
        return Rope::inline(Bytes::copy_from_slice(rest));
    }
    let head = [&rest[..at], &rest[at + 8..]].concat();
    let piece = Piece { at, data: Bytes::copy_from_slice(&rest[at..at + 8]).into() };
    Rope { head: head.into(), pieces: vec![piece] }
}

pub(super) fn rpc_call(data: &[u8]) {
    let message = rope(data);
    if let Ok(decoded) = rpc::call::decode(message) {
        assert!(decoded.args_at <= decoded.message.head.len());
        let mut args = decoded.args();
        while args.u32("word").is_ok() {}
    }
}

/// The first bytes say how the rest arrives in pieces.
pub(super) fn record_stream(data: &[u8]) {
    let Some((&step, mut rest)) = data.split_first() else { return };
    let pool = Pool::standalone(8 << 20);
    let mut assembler = Assembler::new(AssemblerLimits::default());
    let mut records = 0;
    let offset = |start: &[u8]| start.get(3).map(|&b| usize::from(b)).filter(|&at| at > 8);
    while let Ok(next) = assembler.next(offset) {
        match next {
            Next::Record(record) => {
                records += 1;
                assert!(record.len() <= AssemblerLimits::default().record_bytes_max + 2048);
            }
            Next::Buffer(bytes) => assembler.lend(pool.take(bytes).expect("limits fit the pool")),
            Next::More if rest.is_empty() => break,
            Next::More => {
                let size = (usize::from(step) + 1).min(rest.len());
                let taken = match assembler.space() {
                    Space::Stream(buffer, limit) => {
                        let size = size.min(limit);
                        buffer.extend_from_slice(&rest[..size]);
                        size
                    }
                    Space::Buffer(buffer) => {
                        let size = size.min(buffer.len());
                        buffer[..size].copy_from_slice(&rest[..size]);
                        assembler.filled(size);
                        size
                    }
                };
                assert!(taken > 0);
                rest = &rest[taken..];
            }
        }
    }
    assert!(records <= data.len() / 4, "every record has a mark");
}

pub(super) fn rdma_call_header(data: &[u8]) {
    let message = Rope::inline(Bytes::copy_from_slice(data));
    let Ok((header, len)) = header::decode(&message) else { return };
    assert!(len <= data.len());
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(again, data[..len], "what was accepted encodes to the same bytes");
    if let Ok(chunks) = chunk::read_chunks(&header.lists.read, 1 << 20) {
        let _ = chunk::body_offsets(&chunks, data.len() - len);
    }
}

pub(super) fn rdma_reply_header(data: &[u8]) {
    let message = Rope::inline(Bytes::copy_from_slice(data));
    if let Ok((_, len)) = header::decode_reply(&message) {
        assert!(len <= data.len());
    }
}

pub(super) fn rdma_private_data(data: &[u8]) {
    if let Some(found) = PrivateData::find(data) {
        assert_eq!(PrivateData::find(&found.encode()), Some(found));
    }
}
