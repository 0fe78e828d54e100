//! What READDIR and READDIRPLUS share: encoding entries into the room that there is.
//!
//! The cookie verifier is a constant: cookies stay valid for ever, so there is nothing to verify, and one
//! that changed with the directory would restart every long listing of a busy one.

use backends::{Outcome, op::Entry};
use rpc_rdma::{rpc::reply::ACCEPTED_BYTES, xdr::pad_bytes};

use crate::nfs3::{
    Done, Reply, Scope, Status,
    types::{LISTING_BYTES_MAX, POST_OP_ATTR_BYTES, STATUS_BYTES},
};

/// The constant verifier.
const COOKIE_VERIFIER: [u8; 8] = [0; 8];
/// End of the list and the end-of-directory flag.
const TRAILER_BYTES: usize = 8;
/// Results before and behind the entries, without the status.
pub(super) const FRAME_BYTES: usize = POST_OP_ATTR_BYTES + COOKIE_VERIFIER.len() + TRAILER_BYTES;
/// `value_follows`, file id, length of the name, cookie.
const ENTRY_FRAME_BYTES: usize = 4 + 8 + 4 + 8;
/// The shortest entry: a name of one byte.
pub(super) const ENTRY_BYTES_MIN: usize = ENTRY_FRAME_BYTES + 4;
/// Worst case of a listing without entries, or of a failure.
pub(super) const RESULT_BYTES_MIN: usize = STATUS_BYTES + FRAME_BYTES;

/// Bytes for entries, of what the client accepts and what the transport can carry; `None` when not even the
/// shortest entry fits.
pub(super) fn entry_bytes(count: u32, scope: &Scope) -> Option<usize> {
    let wanted = count.min(LISTING_BYTES_MAX) as usize;
    let carried = scope.budget.message_bytes_max.checked_sub(ACCEPTED_BYTES + STATUS_BYTES)?;
    let room = wanted.min(carried).checked_sub(FRAME_BYTES)?;
    (room >= ENTRY_BYTES_MIN).then_some(room)
}

/// How a listing is cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// Bytes for entries.
    pub entry_bytes: usize,
    /// Bytes for file ids, names and cookies alone; a hint, so the first entry is never refused for it.
    pub name_bytes: Option<usize>,
    /// Whether entries carry attributes and handles.
    pub plus: bool,
}

/// Encode the results of a listing.
pub(super) fn results(done: Done, cut: Option<Cut>, reply: &mut Reply<'_>) {
    let start = reply.writer.mark();
    let failure = match (done.result, cut) {
        (Ok(Outcome::Entries { entries, end }), Some(cut)) => {
            reply.status(Status::Ok);
            reply.post_op(done.first.after.as_ref());
            reply.writer.fixed(&COOKIE_VERIFIER);
            let written = encode_entries(&entries, cut, reply);
            if written > 0 || (entries.is_empty() && end) {
                reply.writer.bool(false);
                reply.writer.bool(end && written == entries.len());
                return;
            }
            reply.writer.rewind(start);
            // A page without entries before the end would be asked for again for ever.
            if entries.is_empty() { Status::ServerFault } else { Status::TooSmall }
        }
        (Ok(_), _) => Status::ServerFault,
        (Err(status), _) => status,
    };
    reply.status(failure);
    reply.post_op(done.first.after.as_ref());
}

/// Encode as many entries as there is room for; the one that does not fit is taken back.
fn encode_entries(entries: &[Entry], cut: Cut, reply: &mut Reply<'_>) -> usize {
    let limit = reply.writer.len() + cut.entry_bytes;
    let mut name_bytes_left = cut.name_bytes;
    for (index, entry) in entries.iter().enumerate() {
        let name_bytes = ENTRY_FRAME_BYTES + entry.name.len() + pad_bytes(entry.name.len());
        if let Some(left) = &mut name_bytes_left {
            if index > 0 && name_bytes > *left {
                return index;
            }
            *left = left.saturating_sub(name_bytes);
        }
        let mark = reply.writer.mark();
        encode_entry(entry, cut.plus, reply);
        if reply.writer.len() > limit {
            reply.writer.rewind(mark);
            return index;
        }
    }
    entries.len()
}

fn encode_entry(entry: &Entry, plus: bool, reply: &mut Reply<'_>) {
    reply.writer.bool(true);
    reply.writer.u64(entry.file_id);
    reply.writer.opaque(&entry.name);
    reply.writer.u64(entry.cookie);
    if !plus {
        return;
    }
    match &entry.object {
        Some((object, attributes)) => {
            reply.post_op(Some(attributes));
            reply.post_op_handle(object);
        }
        // It vanished, or cannot be looked at: the name alone is still an answer.
        None => {
            reply.writer.bool(false);
            reply.writer.bool(false);
        }
    }
}
