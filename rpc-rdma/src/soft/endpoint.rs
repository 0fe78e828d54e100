//! The client's side.

use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Fabric,
    device::refused,
    memory::{self, Memory},
    queue::{Client, ClientPhase},
    wake,
};
use crate::{
    endpoint::{Access, Endpoint, EndpointEvent, Region},
    wire::WireError,
};

/// Registered memory of a soft client.
#[derive(Debug)]
pub struct SoftRegion {
    memory: Memory,
    access: Access,
    address: u64,
    len: usize,
    rkey: u32,
}

impl Region for SoftRegion {
    fn rkey(&self) -> u32 {
        self.rkey
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        memory::lock(&self.memory)[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&memory::lock(&self.memory)[at..at + bytes.len()]);
    }
}

/// A client's end of a connection over the fabric. Dropping it hangs up.
#[derive(Debug)]
pub struct SoftEndpoint {
    fabric: Arc<Fabric>,
    client: u64,
    wake_fd: Arc<OwnedFd>,
}

impl SoftEndpoint {
    pub(super) fn new(fabric: Arc<Fabric>, client: u64, wake_fd: Arc<OwnedFd>) -> Self {
        Self { fabric, client, wake_fd }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Client) -> T) -> Result<T, WireError> {
        self.fabric.lock().clients.get_mut(&self.client).map(act).ok_or(WireError::Unknown)
    }

    /// Receives that are posted now.
    pub fn receives_posted(&self) -> usize {
        self.with(|client| client.receives).unwrap_or(0)
    }
}

impl Endpoint for SoftEndpoint {
    type Region = SoftRegion;

    fn remote_invalidation(&self) -> bool {
        true
    }

    fn register(&mut self, len: usize, access: Access) -> Result<SoftRegion, WireError> {
        if len == 0 {
            return Err(refused("ibv_reg_mr", libc::EINVAL));
        }
        let memory = Memory::new(Mutex::new(vec![0; len]));
        self.with(|client| {
            let address = client.next_address;
            // A page lies between two regions, so that an overrun hits nothing.
            client.next_address += (len as u64).next_multiple_of(4096) + 4096;
            let rkey = client.keys.register(memory.clone(), address, access);
            SoftRegion { memory, access, address, len, rkey }
        })
    }

    fn refresh(&mut self, region: &mut SoftRegion) -> Result<(), WireError> {
        self.with(|client| {
            client.keys.invalidate(region.rkey);
            let memory = region.memory.clone();
            region.rkey = client.keys.register(memory, region.address, region.access);
        })
    }

    fn deregister(&mut self, region: SoftRegion) {
        let _ = self.with(|client| client.keys.invalidate(region.rkey));
    }

    fn post_receive(&mut self) -> Result<(), WireError> {
        let mut device = self.fabric.lock();
        let client = device.clients.get_mut(&self.client).ok_or(WireError::Unknown)?;
        if client.receives >= client.options.receives_max {
            return Err(WireError::QueueFull);
        }
        client.receives += 1;
        // A Send of the server may have been waiting for this.
        if let Some(qp) = client.queue_pair {
            device.progress_queue_pair(qp);
        }
        Ok(())
    }

    fn send(&mut self, message: &[u8]) -> Result<(), WireError> {
        if message.is_empty() {
            return Err(refused("ibv_post_send", libc::EINVAL));
        }
        let mut device = self.fabric.lock();
        let client = device.clients.get_mut(&self.client).ok_or(WireError::Unknown)?;
        if client.phase != ClientPhase::Connected {
            return Err(refused("ibv_post_send", libc::ENOTCONN));
        }
        if client.outgoing.len() >= client.options.sends_max {
            return Err(WireError::QueueFull);
        }
        if !client.outgoing.is_empty() {
            client.outgoing.push_back(Bytes::copy_from_slice(message));
        } else if !device.deliver_to_server(self.client, message)
            && let Some(client) = device.clients.get_mut(&self.client)
            && client.phase == ClientPhase::Connected
        {
            client.outgoing.push_back(Bytes::copy_from_slice(message));
        }
        Ok(())
    }

    fn poll(&mut self, out: &mut Vec<EndpointEvent>) {
        let _ = self.with(|client| out.extend(client.events.drain(..)));
    }

    fn arm(&mut self) {
        let _ = self.with(|client| client.wake.arm());
    }

    fn wake_fds(&self) -> Vec<RawFd> {
        vec![self.wake_fd.as_raw_fd()]
    }

    fn wait(&mut self, timeout: Duration) {
        let quiet = self.with(|client| {
            client.wake.arm();
            client.events.is_empty()
        });
        if quiet.unwrap_or(false) {
            wake::sleep_on(&self.wake_fd, timeout);
        }
    }

    fn disconnect(&mut self) {
        let mut device = self.fabric.lock();
        let Some(client) = device.clients.get_mut(&self.client) else { return };
        client.end(EndpointEvent::Disconnected);
        if let Some(qp) = client.queue_pair {
            device.tell_disconnected(qp);
            device.progress_queue_pair(qp);
        }
    }
}

impl Drop for SoftEndpoint {
    fn drop(&mut self) {
        self.disconnect();
        self.fabric.lock().clients.remove(&self.client);
    }
}
