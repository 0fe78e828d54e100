//! What the connection manager's thread and the lanes tell each other: a queue and an event descriptor in each
//! direction.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};

use super::{cm::CmId, cm_sys::KernelQpAttr};
use crate::wire::{ConnectRequest, QpId};

/// A queue that wakes whoever polls its descriptor.
#[derive(Debug)]
pub(super) struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    ready: AtomicBool,
    closed: AtomicBool,
    event: Arc<OwnedFd>,
}

impl<T> Mailbox<T> {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self {
            queue: Mutex::new(VecDeque::new()),
            ready: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            event: Arc::new(event),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// The descriptor, for a lane that sleeps on it.
    pub(super) fn shared_fd(&self) -> Arc<OwnedFd> {
        self.event.clone()
    }

    /// Nobody reads any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        drop(std::mem::take(&mut *self.lock()));
    }

    /// Put something; gives it back when nobody reads any more.
    pub(super) fn put(&self, item: T) -> Result<(), T> {
        {
            let mut queue = self.lock();
            if self.closed.load(Ordering::Acquire) {
                return Err(item);
            }
            queue.push_back(item);
            self.ready.store(true, Ordering::Release);
        }
        // The counter of an event descriptor cannot overflow here; a failure would only delay the wake-up.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        Ok(())
    }

    /// Take everything. Costs no system call when there is nothing.
    pub(super) fn take(&self) -> VecDeque<T> {
        if !self.ready.load(Ordering::Acquire) {
            return VecDeque::new();
        }
        // Empty the counter first: what is put after that wakes again.
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        let mut queue = self.lock();
        self.ready.store(false, Ordering::Release);
        std::mem::take(&mut *queue)
    }
}

/// To a lane.
#[derive(Debug)]
pub(super) enum Note {
    Request(Box<IncomingRequest>),
    Established(QpId),
    Disconnected(QpId),
    Failed(QpId),
    DeviceGone,
}

/// A connection request with everything that the lane needs to answer it.
#[derive(Debug)]
pub(super) struct IncomingRequest {
    pub request: ConnectRequest,
    pub connection: ConnectionHandle,
    pub init: KernelQpAttr,
    pub rtr: KernelQpAttr,
    pub rts: KernelQpAttr,
}

/// To the connection manager's thread.
#[derive(Debug)]
pub(super) enum Order {
    Accept { id: CmId, qp_num: u32, private_data: Bytes, reads_outstanding: u8 },
    Reject { id: CmId, private_data: Bytes },
    Disconnect { id: CmId },
    Release { id: CmId },
    Stop,
}

/// An identifier of the connection manager in the hand of a lane; dropping it has it destroyed.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    pub id: CmId,
    orders: Arc<Mailbox<Order>>,
}

impl ConnectionHandle {
    pub(super) fn new(id: CmId, orders: Arc<Mailbox<Order>>) -> Self {
        Self { id, orders }
    }

    fn order(&self, order: Order) {
        // When the thread has ended, the kernel has destroyed everything with its file.
        let _ = self.orders.put(order);
    }

    pub(super) fn accept(&self, qp_num: u32, private_data: &[u8], reads_outstanding: u8) {
        let private_data = Bytes::copy_from_slice(private_data);
        self.order(Order::Accept { id: self.id, qp_num, private_data, reads_outstanding });
    }

    pub(super) fn reject(&self, private_data: &[u8]) {
        self.order(Order::Reject {
            id: self.id,
            private_data: Bytes::copy_from_slice(private_data),
        });
    }

    pub(super) fn disconnect(&self) {
        self.order(Order::Disconnect { id: self.id });
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.order(Order::Release { id: self.id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_in_order_and_refuses_when_closed() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.put(1).unwrap();
        mailbox.put(2).unwrap();
        assert_eq!(mailbox.take(), [1, 2]);
        assert!(mailbox.take().is_empty());
        mailbox.close();
        assert_eq!(mailbox.put(3), Err(3));
    }

    #[test]
    fn a_dropped_handle_is_released() {
        let orders = Mailbox::new().unwrap();
        drop(ConnectionHandle::new(CmId(5), orders.clone()));
        assert!(matches!(orders.take().pop_front(), Some(Order::Release { id: CmId(5) })));
    }
}
