//! How much a reply may be (RFC 8166 section 3.4.6 and 4.4): told to the program before it executes.

use super::settings::{CALL_BYTES_MAX, Terms};
use crate::{chunk::ChunkLists, service::ReplyBudget};

/// Words in front of the chunk lists.
const FIXED_BYTES: usize = 16;

/// The budget of a call that offered these chunks. A chunk counts only as far as its segments fit into the
/// send queue together with the Send. Each result that may be placed directly has one Write chunk, in order,
/// and none of the programs has more than one such result: so it is the first chunk that counts.
pub(super) fn reply_budget(offered: &ChunkLists, terms: &Terms) -> ReplyBudget {
    let mut requests = terms.send_requests.saturating_sub(1);
    let direct = offered.write.first().map_or(0, |chunk| chunk.capacity_within(requests));
    for chunk in &offered.write {
        let used = chunk.segments.iter().filter(|s| s.length > 0).count();
        requests = requests.saturating_sub(used);
    }
    let header = FIXED_BYTES + offered.encoded_bytes();
    let inline = terms.send_bytes_max.saturating_sub(header);
    let long = offered.reply.as_ref().map_or(0, |chunk| chunk.capacity_within(requests));
    let long = usize::try_from(long).unwrap_or(usize::MAX).min(CALL_BYTES_MAX);
    let direct = usize::try_from(direct).unwrap_or(usize::MAX).min(CALL_BYTES_MAX);
    ReplyBudget {
        message_bytes_max: inline.max(long),
        direct_bytes_max: (direct > 0).then_some(direct),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Segment, WriteChunk};

    fn terms(send_requests: usize) -> Terms {
        Terms {
            credits: 8,
            receives: 16,
            send_requests,
            reads_outstanding: 1,
            send_bytes_max: 4096,
            invalidate: false,
        }
    }

    fn chunk(lengths: &[u32]) -> WriteChunk {
        let segment = |&length: &u32| Segment { handle: 1, length, offset: 0 };
        WriteChunk { segments: lengths.iter().map(segment).collect() }
    }

    #[test]
    fn inline_only() {
        let budget = reply_budget(&ChunkLists::default(), &terms(64));
        assert_eq!(budget, ReplyBudget { message_bytes_max: 4068, direct_bytes_max: None });
    }

    #[test]
    fn write_chunk() {
        let offered = ChunkLists { write: vec![chunk(&[8192, 1808])], ..ChunkLists::default() };
        let budget = reply_budget(&offered, &terms(64));
        assert_eq!(budget.direct_bytes_max, Some(10000));
        assert_eq!(budget.message_bytes_max, 4096 - 68);
        // Only one RDMA Write fits beside the Send: a short read, not a failure.
        assert_eq!(reply_budget(&offered, &terms(2)).direct_bytes_max, Some(8192));
        // One result, one chunk: the others stay unused.
        let more =
            ChunkLists { write: vec![chunk(&[100]), chunk(&[8192])], ..ChunkLists::default() };
        assert_eq!(reply_budget(&more, &terms(64)).direct_bytes_max, Some(100));
        let inline =
            ChunkLists { write: vec![chunk(&[]), chunk(&[8192])], ..ChunkLists::default() };
        assert_eq!(reply_budget(&inline, &terms(64)).direct_bytes_max, None);
        let empty = ChunkLists { write: vec![chunk(&[])], ..ChunkLists::default() };
        assert_eq!(reply_budget(&empty, &terms(64)).direct_bytes_max, None);
    }

    #[test]
    fn reply_chunk() {
        let offered = ChunkLists { reply: Some(chunk(&[100, 65536])), ..ChunkLists::default() };
        assert_eq!(reply_budget(&offered, &terms(64)).message_bytes_max, 65636);
        let small = ChunkLists { reply: Some(chunk(&[100])), ..ChunkLists::default() };
        assert_eq!(reply_budget(&small, &terms(64)).message_bytes_max, 4096 - 28 - 4 - 16);
        let huge = ChunkLists { reply: Some(chunk(&[u32::MAX; 3])), ..ChunkLists::default() };
        assert_eq!(reply_budget(&huge, &terms(64)).message_bytes_max, CALL_BYTES_MAX);
    }
}
