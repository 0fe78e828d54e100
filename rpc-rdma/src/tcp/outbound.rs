//! Replies that wait to be written to a stream.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes};

use crate::{rpc::record::FragmentHeader, xdr::Rope};

/// Slices in one vectored write.
pub const SLICES_MAX: usize = 64;

#[derive(Debug)]
enum Part {
    Mark([u8; 4], u8),
    Bytes(Bytes),
    /// End of a reply in a buffer: by how much that is larger than what it carries, and what it counts.
    End {
        slack: usize,
        bound: usize,
    },
}

impl Part {
    fn rest(&self) -> &[u8] {
        match self {
            Self::Mark(mark, done) => &mark[usize::from(*done)..],
            Self::Bytes(bytes) => bytes,
            Self::End { .. } => &[],
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Mark(_, done) => *done += count as u8,
            Self::Bytes(bytes) => bytes.advance(count),
            Self::End { .. } => {}
        }
    }
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
            self.parts.extend(reply.parts().into_iter().map(Part::Bytes));
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

    /// The front of the queue, for a vectored write.
    pub fn slices<'a>(&'a self, into: &mut Vec<IoSlice<'a>>) {
        let filled = self.parts.iter().filter(|part| !matches!(part, Part::End { .. }));
        into.extend(filled.take(SLICES_MAX).map(|part| IoSlice::new(part.rest())));
    }

    /// So many bytes were written.
    pub fn written(&mut self, mut count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        while let Some(part) = self.parts.front_mut() {
            let here = part.rest().len();
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
            pieces: vec![Piece { at: 4, data: Bytes::from_static(b"payload") }],
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
                let mut slices = Vec::new();
                out.slices(&mut slices);
                let all: Vec<u8> = slices.iter().flat_map(|s| s.iter().copied()).collect();
                let count = step.min(all.len());
                stream.extend_from_slice(&all[..count]);
                out.written(count);
                let in_second = stream.len() < expected.len() * 2 / 3;
                assert!(!in_second || out.bound() == 107, "bound as a whole to the last byte");
            }
            assert_eq!(stream, expected);
            assert_eq!((out.bytes(), out.bound()), (0, 0));
        }
    }
}
