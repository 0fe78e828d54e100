//! The client's registered memory: chunks made of regions, and regions kept for the next call.

use std::collections::BTreeMap;

use crate::{
    chunk::Segment,
    endpoint::{Access, Endpoint, Region},
    wire::WireError,
};

/// Smallest region, in bytes.
const REGION_BYTES_MIN: usize = 4 << 10;

/// Memory for one chunk of a call: one region for each segment, as the Linux client does it.
#[derive(Debug)]
pub(super) struct Chunk<R> {
    parts: Vec<Part<R>>,
    access: Access,
}

#[derive(Debug)]
struct Part<R> {
    region: R,
    /// Bytes that the segment offers.
    len: usize,
}

impl<R: Region> Chunk<R> {
    /// The segments as they go into a header.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.parts.iter().map(|part| Segment {
            handle: part.region.rkey(),
            length: part.len as u32,
            offset: part.region.address(),
        })
    }

    /// Whether one of the segments has this key.
    pub(super) fn has_key(&self, rkey: u32) -> bool {
        self.parts.iter().any(|part| part.region.rkey() == rkey)
    }

    /// Fill the chunk with `bytes`, from its start.
    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        for part in &mut self.parts {
            let (now, rest) = bytes.split_at(part.len.min(bytes.len()));
            part.region.write(0, now);
            bytes = rest;
        }
    }

    /// Check what the server says it wrote, and take the bytes.
    pub(super) fn read(&self, echoed: &[Segment]) -> Result<Vec<u8>, &'static str> {
        if echoed.len() != self.parts.len() {
            return Err("a returned chunk has another number of segments");
        }
        let mut total = 0;
        let mut ended = false;
        for (offered, echoed) in self.segments().zip(echoed) {
            if offered.handle != echoed.handle || offered.offset != echoed.offset {
                return Err("a returned segment has another handle or offset");
            }
            if echoed.length > offered.length {
                return Err("a returned segment is longer than what was offered");
            }
            if ended && echoed.length > 0 {
                return Err("a segment was written although an earlier one is not full");
            }
            ended = echoed.length < offered.length;
            total += echoed.length as usize;
        }
        let mut bytes = vec![0; total];
        let mut at = 0;
        for (part, echoed) in self.parts.iter().zip(echoed) {
            let end = at + echoed.length as usize;
            part.region.read(0, &mut bytes[at..end]);
            at = end;
        }
        Ok(bytes)
    }
}

/// Regions that wait for their next use, by access and size.
#[derive(Debug)]
pub(super) struct Memory<R> {
    free: BTreeMap<(bool, usize), Vec<R>>,
    /// Give a region a new key for every use, as the Linux client does.
    new_keys: bool,
}

impl<R: Region> Memory<R> {
    pub(super) fn new(new_keys: bool) -> Self {
        Self { free: BTreeMap::new(), new_keys }
    }

    /// Memory of `len` bytes in segments of at most `segment_bytes_max`, with a 4-byte segment behind it if
    /// `pad` says so.
    pub(super) fn take<E: Endpoint<Region = R>>(
        &mut self,
        endpoint: &mut E,
        access: Access,
        len: usize,
        segment_bytes_max: usize,
        pad: bool,
    ) -> Result<Chunk<R>, WireError> {
        let mut chunk = Chunk { parts: Vec::new(), access };
        let mut left = len;
        while left > 0 {
            let len = left.min(segment_bytes_max.max(1));
            chunk.parts.push(Part { region: self.region(endpoint, access, len)?, len });
            left -= len;
        }
        if pad {
            chunk.parts.push(Part { region: self.region(endpoint, access, 4)?, len: 4 });
        }
        Ok(chunk)
    }

    fn region<E: Endpoint<Region = R>>(
        &mut self,
        endpoint: &mut E,
        access: Access,
        len: usize,
    ) -> Result<R, WireError> {
        let bytes = len.next_power_of_two().max(REGION_BYTES_MIN);
        match self.free.get_mut(&slot(access, bytes)).and_then(Vec::pop) {
            Some(region) => Ok(region),
            None => endpoint.register(bytes, access),
        }
    }

    /// Keep the regions of a finished call. `invalidated` is the key that the server has taken away.
    pub(super) fn put<E: Endpoint<Region = R>>(
        &mut self,
        endpoint: &mut E,
        chunk: Chunk<R>,
        invalidated: Option<u32>,
    ) -> Result<(), WireError> {
        for Part { mut region, .. } in chunk.parts {
            if self.new_keys || Some(region.rkey()) == invalidated {
                endpoint.refresh(&mut region)?;
            }
            self.free.entry(slot(chunk.access, region.len())).or_default().push(region);
        }
        Ok(())
    }
}

fn slot(access: Access, bytes: usize) -> (bool, usize) {
    (access == Access::RemoteWrite, bytes)
}
