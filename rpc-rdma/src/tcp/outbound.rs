//! Replies that wait to be written to a stream.

use std::{collections::VecDeque, io::IoSlice, sync::Arc};

use buffers::{Pages, Payload};
use bytes::{Buf, Bytes};

use crate::{rpc::record::FragmentHeader, xdr::Rope};

/// Slices in one vectored write.
pub const SLICES_MAX: usize = 64;

#[derive(Debug)]
enum Part {
    Mark([u8; 4], u8),
    Bytes(Bytes),
    Pages(Arc<Pages>),
    /// End of a reply in a buffer: by how much that is larger than what it carries, and what it counts.
    End {
        slack: usize,
        bound: usize,
    },
}

impl Part {
    fn slice(&self) -> &[u8] {
        match self {
            Self::Mark(mark, done) => &mark[usize::from(*done)..],
            Self::Bytes(bytes) => bytes,
            Self::Pages(_) | Self::End { .. } => &[],
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Mark(_, done) => *done += count as u8,
            Self::Bytes(bytes) => bytes.advance(count),
            Self::Pages(_) | Self::End { .. } => {}
        }
    }
}

impl From<Payload> for Part {
    fn from(payload: Payload) -> Self {
        match payload {
            Payload::Bytes(bytes) => Self::Bytes(bytes),
            Payload::Pages(pages) => Self::Pages(pages),
        }
    }
}

/// What is to be sent next.
#[derive(Debug)]
pub enum Front<'a> {
    /// Bytes, with whether more follows at once that cannot go with them.
    Slices(Vec<IoSlice<'a>>, bool),
    /// Pages of the page cache, with whether something follows at once.
    Pages(&'a Pages, bool),
}

/// A queue of replies in wire order, payload by reference.
#[derive(Debug, Default)]
pub struct Outbound {
    parts: VecDeque<Part>,
    bytes: usize,
    bound: usize,
}

impl Outbound {
    /// Append a reply with its record mark. `bound`: the buffer memory that it keeps from others until it is
    /// written, which can be far more than it carries (a long read of a short file).
    pub fn push(&mut self, reply: &Rope, bound: usize) {
        let len = reply.len();
        let slack = bound.saturating_sub(len);
        self.bytes += len + 4 + slack;
        self.parts.push_back(Part::Mark(FragmentHeader::single(len), 0));
        if reply.pieces.is_empty() {
            self.parts.push_back(Part::Bytes(reply.head.clone()));
        } else {
            self.parts.extend(reply.parts().into_iter().map(Part::from));
        }
        if bound > 0 {
            self.bound += bound;
            self.parts.push_back(Part::End { slack, bound });
        }
    }

    /// Bytes that wait, and memory that is bound to them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that is bound: a buffer as a whole until the last byte of its reply is written.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// What to send next. `None`: nothing waits.
    pub fn front(&self) -> Option<Front<'_>> {
        let mut parts = self.parts.iter().filter(|part| !matches!(part, Part::End { .. }));
        let mut slices = Vec::with_capacity(self.parts.len().min(SLICES_MAX));
        for part in parts.by_ref() {
            match part {
                Part::Pages(pages) if slices.is_empty() => {
                    return Some(Front::Pages(pages, parts.next().is_some()));
                }
                Part::Pages(_) => return Some(Front::Slices(slices, true)),
                _ if slices.len() == SLICES_MAX => break,
                _ => slices.push(IoSlice::new(part.slice())),
            }
        }
        (!slices.is_empty()).then_some(Front::Slices(slices, false))
    }

    /// So many bytes of [`Self::front`] were sent.
    pub fn sent(&mut self, mut count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        while let Some(part) = self.parts.front_mut() {
            let here = match part {
                // They know themselves what has gone.
                Part::Pages(pages) if !pages.is_empty() => return,
                Part::Pages(_) => count,
                _ => part.slice().len(),
            };
            if count < here {
                part.advance(count);
                return;
            }
            count -= here;
            if let Some(Part::End { slack, bound }) = self.parts.pop_front() {
                self.bytes = self.bytes.saturating_sub(slack);
                self.bound = self.bound.saturating_sub(bound);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Piece;

    #[test]
    fn any_write_sizes_give_the_same_stream() {
        let reply = Rope {
            head: Bytes::from_static(b"headTAIL"),
            pieces: vec![Piece { at: 4, data: Bytes::from_static(b"payload").into() }],
        };
        let mut expected = FragmentHeader::single(16).to_vec();
        expected.extend_from_slice(b"headpayload\0TAIL");
        let expected = expected.repeat(3);
        for step in 1..expected.len() {
            let mut out = Outbound::default();
            // The second is bound to a buffer larger than itself.
            [0, 100, 7].into_iter().for_each(|bound| out.push(&reply, bound));
            assert_eq!(out.bytes(), expected.len() + 100 - 16);
            assert_eq!(out.bound(), 107);
            let mut stream = Vec::new();
            while !out.is_empty() {
                let Some(Front::Slices(slices, false)) = out.front() else { panic!("{out:?}") };
                let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                let count = step.min(all.len());
                stream.extend_from_slice(&all[..count]);
                out.sent(count);
                let in_second = stream.len() < expected.len() * 2 / 3;
                assert!(!in_second || out.bound() == 107, "bound as a whole to the last byte");
            }
            assert_eq!(stream, expected);
            assert_eq!((out.bytes(), out.bound()), (0, 0));
        }
    }
}
