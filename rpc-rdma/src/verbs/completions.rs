//! The completion queue as a thin call, and the account of what it may have to hold.
//!
//! A queue holds everything that its queue pairs could ever complete (after an error every request does), so
//! it cannot overflow: a connection for which there is no room is refused.

#![allow(unsafe_code)]

use std::{
    ffi::c_void,
    io,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
    ptr::NonNull,
    sync::Arc,
};

use ibverbs_sys as sys;

use super::{
    device::{Device, set_non_blocking},
    queue::check,
};
use crate::wire::WireFault;

/// Completions taken from the device at a time.
const BATCH: usize = 32;

#[derive(Debug)]
struct Channel(NonNull<sys::ibv_comp_channel>);

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created by `CompletionQueue::new`; its queue was destroyed before.
        unsafe { sys::ibv_destroy_comp_channel(self.0.as_ptr()) };
    }
}

/// A completion as the device reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub wr_id: u64,
    pub result: Result<usize, WireFault>,
}

/// A completion queue with its channel. Fields are released from top to bottom, after `drop`.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    raw: NonNull<sys::ibv_cq>,
    channel: Channel,
    /// A duplicate of the channel's descriptor.
    shared: Arc<OwnedFd>,
    device: Arc<Device>,
    /// A report was asked for and has not been taken.
    armed: bool,
    /// Entries that are spoken for.
    reserved: usize,
    /// Entries that queue pairs which are gone may still have in the queue.
    lingering: usize,
}

// SAFETY: used by one thread at a time through `&mut`, and libibverbs objects are not bound to a thread.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn as_ptr(&self) -> *mut sys::ibv_cq {
        self.raw.as_ptr()
    }

    /// A queue of at least `entries`, whose interrupts go to completion vector `vector`.
    pub(super) fn new(device: Arc<Device>, entries: usize, vector: usize) -> io::Result<Self> {
        // SAFETY: the context is open.
        let channel = unsafe { sys::ibv_create_comp_channel(device.context()) };
        let channel = Channel(NonNull::new(channel).ok_or_else(io::Error::last_os_error)?);
        // SAFETY: the channel was just created.
        let fd = unsafe { channel.0.as_ref().fd };
        set_non_blocking(fd)?;
        // SAFETY: the channel, which owns the descriptor, outlives the borrow.
        let shared = Arc::new(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
        let entries = libc::c_int::try_from(entries).unwrap_or(libc::c_int::MAX);
        let vector = (vector % device.attributes.completion_vectors) as libc::c_int;
        // SAFETY: context and channel are open; the vector is one that the device has.
        let raw = unsafe {
            sys::ibv_create_cq(
                device.context(),
                entries,
                std::ptr::null_mut(),
                channel.0.as_ptr(),
                vector,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, channel, shared, device, armed: false, reserved: 0, lingering: 0 })
    }

    /// Entries that it holds.
    fn entries(&self) -> usize {
        // SAFETY: the queue lives.
        usize::try_from(unsafe { self.raw.as_ref().cqe }).unwrap_or(0)
    }

    /// Make it hold at least `entries`.
    fn resize(&mut self, entries: usize) -> io::Result<()> {
        let entries = libc::c_int::try_from(entries)
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: the queue lives.
        check(unsafe { sys::ibv_resize_cq(self.raw.as_ptr(), entries) })
    }

    /// Becomes readable at the next completion after [`Self::arm`].
    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel lives.
        unsafe { self.channel.0.as_ref().fd }
    }

    /// The same, in a form that others may keep past the end of the channel.
    pub(super) fn shared_fd(&self) -> Arc<OwnedFd> {
        self.shared.clone()
    }

    /// Append up to `max` completions; how many there were. Less than `max` means that it was empty.
    pub(super) fn poll(&mut self, out: &mut Vec<Completion>, max: usize) -> usize {
        // SAFETY: structures of integers, for which all zeros is a value.
        let mut raw: [sys::ibv_wc; BATCH] = unsafe { std::mem::zeroed() };
        let mut taken = 0;
        // SAFETY: the context is open; the table was filled by the library.
        let Some(poll_cq) = (unsafe { (*self.device.context()).ops.poll_cq }) else { return 0 };
        while taken < max {
            let want = (max - taken).min(BATCH);
            // SAFETY: the queue lives and `raw` has room for `want`.
            let got = unsafe { poll_cq(self.raw.as_ptr(), want as libc::c_int, raw.as_mut_ptr()) };
            let got = usize::try_from(got).unwrap_or(0).min(want);
            out.extend(raw.iter().take(got).map(|wc| Completion {
                wr_id: wc.wr_id(),
                result: match wc.error() {
                    None => Ok(wc.len()),
                    Some((status, _)) => Err(fault(status)),
                },
            }));
            taken += got;
            if got < want {
                self.lingering = 0;
                break;
            }
        }
        taken
    }

    /// See to it that the next completion is reported on the channel. Costs little when the last request
    /// for that still stands.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        if self.armed && !self.take_event() {
            return Ok(());
        }
        // SAFETY: the context is open; the table was filled by the library.
        let notify = unsafe { (*self.device.context()).ops.req_notify_cq };
        let notify = notify.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        // SAFETY: the queue lives.
        check(unsafe { notify(self.raw.as_ptr(), 0) })?;
        self.armed = true;
        Ok(())
    }

    /// Take a report off the channel. Each is acknowledged at once: the queue cannot be destroyed before.
    fn take_event(&mut self) -> bool {
        let mut cq = std::ptr::null_mut();
        let mut context: *mut c_void = std::ptr::null_mut();
        // SAFETY: the channel is open and does not block.
        let got = unsafe {
            sys::ibv_get_cq_event(self.channel.0.as_ptr(), &raw mut cq, &raw mut context)
        };
        if got == 0 {
            // SAFETY: the channel serves this queue only, so the event was of it.
            unsafe { sys::ibv_ack_cq_events(self.raw.as_ptr(), 1) };
        }
        got == 0
    }

    /// Make room for `entries` more completions.
    ///
    /// # Errors
    /// When the device has no queue that large.
    pub(super) fn reserve(&mut self, entries: usize) -> io::Result<()> {
        let needed = self.reserved + self.lingering + entries;
        if needed > self.entries() {
            let max = self.device.attributes.completions_max;
            if needed > max {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.resize(needed.next_power_of_two().min(max))?;
        }
        self.reserved += entries;
        Ok(())
    }

    /// Give room back. `lingering`: so many completions may still lie in the queue.
    pub(super) fn release(&mut self, entries: usize, lingering: bool) {
        self.reserved = self.reserved.saturating_sub(entries);
        if lingering {
            self.lingering += entries;
        }
    }

    /// The queue pair is gone before its time: its completions may still lie here, beside those of its room.
    pub(super) fn linger(&mut self, entries: usize) {
        self.lingering += entries;
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs on it were destroyed before (they hold no reference, their owner sees to it),
        // and what was taken off the channel is acknowledged.
        unsafe { sys::ibv_destroy_cq(self.raw.as_ptr()) };
    }
}

fn fault(status: sys::ibv_wc_status::Type) -> WireFault {
    use sys::ibv_wc_status as code;
    match status {
        code::IBV_WC_WR_FLUSH_ERR => WireFault::Flushed,
        code::IBV_WC_REM_ACCESS_ERR => WireFault::RemoteAccess,
        code::IBV_WC_REM_INV_REQ_ERR | code::IBV_WC_REM_OP_ERR | code::IBV_WC_REM_ABORT_ERR => {
            WireFault::RemoteOperation
        }
        code::IBV_WC_RETRY_EXC_ERR | code::IBV_WC_RESP_TIMEOUT_ERR => WireFault::RetryExceeded,
        code::IBV_WC_RNR_RETRY_EXC_ERR => WireFault::ReceiverNotReady,
        code::IBV_WC_LOC_LEN_ERR => WireFault::LocalLength,
        code::IBV_WC_FATAL_ERR => WireFault::DeviceGone,
        _ => WireFault::Local,
    }
}
