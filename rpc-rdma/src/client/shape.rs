//! Which chunks a call and its reply travel by.
//!
//! The rules are those of the Linux client (RFC 8166 section 3.3.2 leaves the choice to the requester): what
//! fits goes inline, bulk data that does not fit goes by a Read or Write chunk, anything else that does not
//! fit goes whole, by a Position-Zero Read chunk or a Reply chunk. Tests can ask for any other shape.

use super::rpc_client::ReplyOptions;
use crate::xdr::{Rope, pad_bytes};

/// How the call message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// All of it in the Send.
    Inline,
    /// Every piece of bulk data in a Read chunk, the rest in the Send.
    ReadChunk,
    /// All of it in a Position-Zero Read chunk.
    PositionZero,
}

/// What is offered for the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyForm {
    /// Nothing: it must fit into a Send.
    Inline,
    /// A Write chunk for the bulk data.
    WriteChunk,
    /// A Reply chunk for all of it.
    ReplyChunk,
}

/// Settings that decide the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Longest segment, in bytes. Linux: 128 KiB on soft RoCE, 120 KiB on mlx5.
    pub segment_bytes_max: usize,
    /// Segments that the device's largest request takes; Linux reserves header room for so many.
    pub header_segments: usize,
    /// Add a 4-byte segment to a Write chunk whose length is not a multiple of 4, as Linux does.
    pub pad_segment: bool,
    /// Send the XDR padding of a Read chunk too, in its last segment (allowed, but Linux does not).
    pub read_padding: bool,
    /// Give every call this form, whether or not it makes sense.
    pub call: Option<CallForm>,
    /// Give every reply this form, whether or not it makes sense.
    pub reply: Option<ReplyForm>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            segment_bytes_max: 128 << 10,
            header_segments: 11,
            pad_segment: true,
            read_padding: false,
            call: None,
            reply: None,
        }
    }
}

impl Shape {
    /// Longest call that goes inline when a Send may be `inline_bytes`.
    pub fn call_inline_max(&self, inline_bytes: usize) -> usize {
        inline_bytes.saturating_sub(28 + 24 * self.header_segments + 24)
    }

    /// Longest reply that needs no chunk when a Send may be `inline_bytes`.
    pub fn reply_inline_max(&self, inline_bytes: usize) -> usize {
        inline_bytes.saturating_sub(28 + 16 * self.header_segments + 8)
    }

    /// The form of a call.
    pub fn call_form(&self, message: &Rope, inline_bytes: usize) -> CallForm {
        self.call.unwrap_or_else(|| {
            if message.len() <= self.call_inline_max(inline_bytes) {
                CallForm::Inline
            } else if message.pieces.is_empty() {
                CallForm::PositionZero
            } else {
                CallForm::ReadChunk
            }
        })
    }

    /// The form of a reply.
    pub fn reply_form(&self, reply: &ReplyOptions, inline_bytes: usize) -> ReplyForm {
        self.reply.unwrap_or_else(|| {
            let limit = self.reply_inline_max(inline_bytes);
            if reply_bytes(reply) <= limit {
                ReplyForm::Inline
            } else if reply.bulk_bytes_max.is_some() && reply.reply_bytes_max < limit {
                ReplyForm::WriteChunk
            } else {
                ReplyForm::ReplyChunk
            }
        })
    }
}

/// Longest message that a reply can become, bulk data and padding included.
pub fn reply_bytes(reply: &ReplyOptions) -> usize {
    let bulk = reply.bulk_bytes_max.unwrap_or(0);
    reply.reply_bytes_max + bulk + pad_bytes(bulk)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::xdr::Piece;

    #[test]
    fn thresholds_of_the_linux_client() {
        let shape = Shape::default();
        assert_eq!(shape.call_inline_max(4096), 3780);
        assert_eq!(shape.reply_inline_max(4096), 3884);
        let siw = Shape { header_segments: 4, ..shape };
        assert_eq!((siw.call_inline_max(4096), siw.reply_inline_max(4096)), (3948, 3996));
    }

    #[test]
    fn forms_of_calls() {
        let shape = Shape::default();
        let call = |head, bulk| {
            let data = Bytes::from(vec![0; bulk]);
            let pieces =
                if bulk > 0 { vec![Piece { at: head, data: data.into() }] } else { Vec::new() };
            shape.call_form(&Rope { head: Bytes::from(vec![0; head]), pieces }, 4096)
        };
        assert_eq!(call(108, 3672), CallForm::Inline);
        assert_eq!(call(108, 3673), CallForm::ReadChunk);
        assert_eq!(call(3780, 0), CallForm::Inline);
        assert_eq!(call(3784, 0), CallForm::PositionZero);
    }

    #[test]
    fn forms_of_replies() {
        let shape = Shape::default();
        let form = |reply| shape.reply_form(&reply, 4096);
        assert_eq!(form(ReplyOptions::bulk(128, 3756)), ReplyForm::Inline);
        assert_eq!(form(ReplyOptions::bulk(128, 3757)), ReplyForm::WriteChunk);
        assert_eq!(form(ReplyOptions::message(3884)), ReplyForm::Inline);
        assert_eq!(form(ReplyOptions::message(3885)), ReplyForm::ReplyChunk);
        let forced = Shape { reply: Some(ReplyForm::ReplyChunk), ..shape };
        assert_eq!(forced.reply_form(&ReplyOptions::message(8), 4096), ReplyForm::ReplyChunk);
    }
}
