//! Where the payload of a call begins, so that a byte stream can receive it straight into a page-aligned
//! buffer.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use rpc_rdma::{
    rpc::{Call, RPC_VERSION, auth::AUTH_BODY_BYTES_MAX, call::CALL},
    xdr::{UNIT_BYTES, pad_bytes},
};

use crate::nfs3::types::{HANDLE_BYTES_MAX, PROGRAM, TRANSFER_BYTES_MAX, VERSION};

const PROCEDURE_READ: u32 = 6;
const PROCEDURE_WRITE: u32 = 7;

/// A cursor over the first bytes of a record.
struct Words<'a> {
    start: &'a [u8],
    offset: usize,
}

impl Words<'_> {
    fn word(&mut self) -> Option<u32> {
        let bytes = self.start.get(self.offset..)?.first_chunk::<UNIT_BYTES>()?;
        self.offset += UNIT_BYTES;
        Some(u32::from_be_bytes(*bytes))
    }

    fn expect(&mut self, value: u32) -> Option<()> {
        (self.word()? == value).then_some(())
    }

    fn skip_opaque(&mut self, limit: u32) -> Option<()> {
        let len = self.word().filter(|len| *len <= limit)? as usize;
        self.offset += len + pad_bytes(len);
        Some(())
    }
}

/// Offset from the xid of the data of an NFSv3 WRITE, behind its length word. `None` when it is another
/// call, or `start` ends before the length word does.
pub fn bulk_offset(start: &[u8]) -> Option<usize> {
    let mut words = Words { start, offset: UNIT_BYTES };
    for value in [CALL, RPC_VERSION, PROGRAM, VERSION, PROCEDURE_WRITE] {
        words.expect(value)?;
    }
    for _ in ["credential", "verifier"] {
        words.word()?;
        words.skip_opaque(AUTH_BODY_BYTES_MAX)?;
    }
    words.skip_opaque(HANDLE_BYTES_MAX)?;
    // Offset (two words), count, stable_how, length of the data.
    for _ in 0..5 {
        words.word()?;
    }
    Some(words.offset)
}

/// Most bytes of file data in the reply to a call: those that a READ asks for.
pub fn reply_bulk_bytes(call: &Call) -> usize {
    let header = &call.header;
    if (header.program, header.version, header.procedure) != (PROGRAM, VERSION, PROCEDURE_READ) {
        return 0;
    }
    let mut args = call.args();
    let count = args
        .opaque(HANDLE_BYTES_MAX, "file handle")
        .and_then(|_| args.u64("offset"))
        .and_then(|_| args.u32("count"));
    count.map_or(0, |count| count.min(TRANSFER_BYTES_MAX) as usize)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use rpc_rdma::xdr::Writer;

    use super::*;

    fn write_call(credential: &[u8], handle: &[u8], data: &'static [u8]) -> (Vec<u8>, usize) {
        let mut writer = Writer::default();
        for word in [9, CALL, RPC_VERSION, PROGRAM, VERSION, PROCEDURE_WRITE, 1] {
            writer.u32(word);
        }
        writer.opaque(credential);
        writer.u32(0);
        writer.opaque(b"");
        writer.opaque(handle);
        writer.u64(4096);
        writer.u32(data.len() as u32);
        writer.u32(0);
        writer.payload(Bytes::from_static(data));
        let rope = writer.finish();
        let at = rope.pieces.first().map_or(rope.head.len(), |piece| piece.at);
        (rope.flatten(), at)
    }

    #[test]
    fn finds_the_data_behind_credentials_and_handles_of_any_length() {
        for credential in [0, 1, 24, 399, 400] {
            for handle in [0, 1, 33, 64] {
                let (bytes, at) = write_call(&vec![1; credential], &vec![2; handle], b"payload");
                assert_eq!(bulk_offset(&bytes), Some(at));
                assert_eq!(bulk_offset(&bytes[..at]), Some(at));
                assert_eq!(bulk_offset(&bytes[..at - 1]), None);
            }
        }
        assert_eq!(bulk_offset(&write_call(&[1; 401], &[2; 8], b"payload").0), None);
        assert_eq!(bulk_offset(&write_call(&[1; 40], &[2; 65], b"payload").0), None);
    }

    #[test]
    fn a_read_says_how_much_it_may_come_to() {
        let bytes = |procedure, count: u32| {
            let mut writer = Writer::default();
            for word in [9, CALL, RPC_VERSION, PROGRAM, VERSION, procedure, 0, 0, 0, 0] {
                writer.u32(word);
            }
            writer.opaque(b"handle");
            writer.u64(4096);
            writer.u32(count);
            reply_bulk_bytes(&rpc_rdma::rpc::call::decode(writer.finish()).unwrap())
        };
        assert_eq!(bytes(PROCEDURE_READ, 70_000), 70_000);
        assert_eq!(bytes(PROCEDURE_READ, u32::MAX), TRANSFER_BYTES_MAX as usize);
        assert_eq!(bytes(PROCEDURE_WRITE, 70_000), 0);
    }

    #[test]
    fn other_calls_have_none() {
        let (bytes, _) = write_call(b"", b"handle", b"payload");
        for word in 1..=5 {
            let mut other = bytes.clone();
            other[word * 4 + 3] ^= 0x40;
            assert_eq!(bulk_offset(&other), None, "word {word}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..300) {
            let _ = bulk_offset(&bytes);
            let (mut valid, _) = write_call(b"cred", b"handle", b"payload");
            valid.truncate(24.min(cut));
            valid.append(&mut bytes);
            if let Some(at) = bulk_offset(&valid) {
                prop_assert!(at <= valid.len());
            }
        }
    }
}
