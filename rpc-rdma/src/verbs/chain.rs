//! From a piece of work to the chain of work requests that the device gets. Everything local is checked here:
//! it lies in registered memory and within its buffer.

use std::sync::Arc;

use buffers::Lease;
use bytes::Bytes;

use super::{
    device::Device,
    queue::{Opcode, SendRequest},
};
use crate::wire::{RdmaRead, RdmaWrite, RemoteMemory, WireError};

/// Where something lies, in the device's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub address: u64,
    pub len: u32,
    pub lkey: u32,
}

/// Where `bytes` lie.
fn place_of(device: &Device, bytes: &[u8]) -> Result<Place, WireError> {
    let location = device.arena().locate(bytes).ok_or(WireError::NotRegistered)?;
    let lkey = device.lkey(location.chunk).ok_or(WireError::NotRegistered)?;
    let len = u32::try_from(bytes.len()).map_err(|_| WireError::NotRegistered)?;
    Ok(Place { address: bytes.as_ptr() as u64, len, lkey })
}

/// Where a lease lies.
pub(super) fn place_of_lease(device: &Device, lease: &Lease) -> Result<Place, WireError> {
    if !Arc::ptr_eq(lease.pool().arena(), device.arena()) {
        return Err(WireError::NotRegistered);
    }
    place_of(device, lease)
}

/// The part of a buffer that one Read fills.
fn part(sink: Place, read: &RdmaRead) -> Result<Place, WireError> {
    let end = read.sink_offset.checked_add(read.len).ok_or(WireError::NotRegistered)?;
    let len = u32::try_from(read.len).map_err(|_| WireError::NotRegistered)?;
    if len == 0 || end > sink.len as usize {
        return Err(WireError::NotRegistered);
    }
    Ok(Place { address: sink.address + read.sink_offset as u64, len, lkey: sink.lkey })
}

fn request(opcode: Opcode, local: Place, remote: RemoteMemory) -> SendRequest {
    SendRequest {
        wr_id: 0,
        opcode,
        address: local.address,
        len: local.len,
        lkey: local.lkey,
        remote_address: remote.address,
        rkey: remote.rkey,
        signaled: false,
        inline: false,
    }
}

/// Writes, then the Send. Messages of at most `inline_bytes` travel in the work request itself.
pub(super) fn reply(
    device: &Device,
    chain: &mut Vec<SendRequest>,
    inline_bytes: usize,
    writes: &[RdmaWrite],
    send: &Bytes,
    invalidate: Option<u32>,
) -> Result<(), WireError> {
    chain.clear();
    for write in writes {
        chain.push(request(Opcode::Write, place_of(device, &write.local)?, write.remote));
    }
    let opcode = if invalidate.is_some() { Opcode::SendWithInvalidate } else { Opcode::Send };
    let key = RemoteMemory { rkey: invalidate.unwrap_or(0), address: 0 };
    let message = request(opcode, place_of(device, send)?, key);
    let inline = send.len() <= inline_bytes;
    chain.push(SendRequest { signaled: true, inline, ..message });
    Ok(())
}

/// Reads, the last of which reports.
pub(super) fn fetch(
    device: &Device,
    chain: &mut Vec<SendRequest>,
    sink: &Lease,
    reads: &[RdmaRead],
) -> Result<(), WireError> {
    chain.clear();
    let whole = place_of_lease(device, sink)?;
    for read in reads {
        chain.push(request(Opcode::Read, part(whole, read)?, read.remote));
    }
    // Without a request nothing would ever complete.
    let last = chain.last_mut().ok_or(WireError::NotRegistered)?;
    last.signaled = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_stays_inside_its_sink() {
        let sink = Place { address: 0x1000, len: 100, lkey: 7 };
        let read = |sink_offset, len| RdmaRead {
            sink_offset,
            len,
            remote: RemoteMemory { rkey: 1, address: 0 },
        };
        let inside = part(sink, &read(60, 40)).unwrap();
        assert_eq!(inside, Place { address: 0x1000 + 60, len: 40, lkey: 7 });
        assert!(part(sink, &read(61, 40)).is_err());
        assert!(part(sink, &read(usize::MAX, 2)).is_err());
        assert!(part(sink, &read(0, 0)).is_err());
    }
}
