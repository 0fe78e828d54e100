//! The queue pair: the verbs themselves, as thin calls. Who owns the buffers is the matter of
//! [`super::slots`]; what may be posted when, of [`super::lane`].

#![allow(unsafe_code)]

use std::{ffi::c_void, fmt, io, ptr::NonNull, sync::Arc};

use ibverbs_sys as sys;

use super::{
    batch::{Batch, Refusal, Taken},
    cm_sys::KernelQpAttr,
    completions::CompletionQueue,
    device::Device,
};

/// Send requests that may wait for the end of the turn; with more than that the device is called earlier.
const SENDS_WAITING_MAX: usize = 128;
/// The same for Receives: those of one round of completions.
const RECEIVES_WAITING_MAX: usize = 64;

/// Codes in `qp_attr_mask` that are set by hand.
const MASK_MIN_RNR_TIMER: u32 = 1 << 15;
const MASK_MAX_RD_ATOMIC: u32 = 1 << 13;
const MASK_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
const MASK_ACCESS_FLAGS: u32 = 1 << 3;

/// Delay that we ask of a peer for whose Send there was no Receive: code 12, 0.64 ms. (Code 0, which the
/// connection manager leaves there, means 655 ms.)
const MIN_RNR_TIMER: u8 = 12;

/// Peers may read and write memory that was registered for it (client side).
pub(super) const REMOTE_ACCESS: u32 = 0b110;

/// One work request of a send queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendRequest {
    pub wr_id: u64,
    pub opcode: Opcode,
    pub address: u64,
    pub len: u32,
    pub lkey: u32,
    pub remote_address: u64,
    pub rkey: u32,
    pub signaled: bool,
    pub inline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Write,
    Read,
    Send,
    /// The key is in `rkey`.
    SendWithInvalidate,
}

/// A reliable queue pair. Its owner destroys it before the completion queue and the buffers.
pub(super) struct QueuePair {
    raw: NonNull<sys::ibv_qp>,
    device: Arc<Device>,
    sends: usize,
    receives: usize,
    inline_bytes: usize,
    sends_waiting: Batch<sys::ibv_send_wr>,
    receives_waiting: Batch<sys::ibv_recv_wr>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number()).finish_non_exhaustive()
    }
}

// SAFETY: used by one thread at a time through `&mut`, and libibverbs objects are not bound to a thread.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// A queue pair with at least the depths given; `number` comes back in asynchronous events. What it
    /// sends completes on the first queue, what it receives on the second.
    pub(super) fn new(
        device: Arc<Device>,
        (send_cq, receive_cq): (&CompletionQueue, &CompletionQueue),
        number: u64,
        sends: usize,
        receives: usize,
        inline_bytes: usize,
    ) -> io::Result<Self> {
        let create = |inline: usize| {
            let depth = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let mut attr = sys::ibv_qp_init_attr {
                qp_context: number as *mut c_void,
                send_cq: send_cq.as_ptr(),
                recv_cq: receive_cq.as_ptr(),
                srq: std::ptr::null_mut(),
                cap: sys::ibv_qp_cap {
                    max_send_wr: depth(sends),
                    max_recv_wr: depth(receives),
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: depth(inline),
                },
                qp_type: sys::ibv_qp_type::IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: protection domain and completion queue are of this device and live.
            let raw = unsafe { sys::ibv_create_qp(device.pd(), &raw mut attr) };
            NonNull::new(raw).map(|raw| (raw, attr.cap)).ok_or_else(io::Error::last_os_error)
        };
        // Inline data is a wish: a device that has none still serves.
        let (raw, cap) = match create(inline_bytes) {
            Err(_) if inline_bytes > 0 => create(0)?,
            other => other?,
        };
        Ok(Self {
            raw,
            device,
            sends: cap.max_send_wr as usize,
            receives: cap.max_recv_wr as usize,
            inline_bytes: cap.max_inline_data as usize,
            sends_waiting: Batch::new(SENDS_WAITING_MAX.min(cap.max_send_wr as usize)),
            receives_waiting: Batch::new(RECEIVES_WAITING_MAX.min(cap.max_recv_wr as usize)),
        })
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives.
        unsafe { self.raw.as_ref().qp_num }
    }

    /// Depths that it has: sends, receives.
    pub(super) fn depths(&self) -> (usize, usize) {
        (self.sends, self.receives)
    }

    pub(super) fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    fn modify(&mut self, attr: &mut sys::ibv_qp_attr, mask: u32) -> io::Result<()> {
        // SAFETY: the queue pair lives; the library reads the fields that the mask names.
        check(unsafe { sys::ibv_modify_qp(self.raw.as_ptr(), attr, mask as libc::c_int) })
    }

    /// Go to INIT; from then on Receives may be posted. `access` is what peers may do.
    pub(super) fn initialise(&mut self, from: &KernelQpAttr, access: u32) -> io::Result<()> {
        let (mut attr, mask) = attributes(from);
        if mask & MASK_ACCESS_FLAGS != 0 && !self.device.attributes.iwarp {
            attr.qp_access_flags = access;
        }
        self.modify(&mut attr, mask)
    }

    /// Go to RTR: messages may arrive. `serves` is the number of RDMA Reads of the peer that we serve at a
    /// time.
    pub(super) fn ready_to_receive(&mut self, from: &KernelQpAttr, serves: u8) -> io::Result<()> {
        let (mut attr, mask) = attributes(from);
        if mask & MASK_MAX_DEST_RD_ATOMIC != 0 {
            attr.max_dest_rd_atomic = serves;
        }
        if mask & MASK_MIN_RNR_TIMER != 0 {
            attr.min_rnr_timer = MIN_RNR_TIMER;
        }
        self.modify(&mut attr, mask)
    }

    /// Go to RTS: messages may be sent. `reads` is the number of RDMA Reads that we keep under way.
    pub(super) fn ready_to_send(&mut self, from: &KernelQpAttr, reads: u8) -> io::Result<()> {
        let (mut attr, mask) = attributes(from);
        if mask & MASK_MAX_RD_ATOMIC != 0 {
            attr.max_rd_atomic = reads;
        }
        if mask == 0 {
            // iWARP: the connection manager of the kernel makes this step itself.
            return Ok(());
        }
        self.modify(&mut attr, mask)
    }

    /// Go to the error state: everything posted is flushed.
    pub(super) fn fail(&mut self) -> io::Result<()> {
        let (mut attr, _) = attributes(&KernelQpAttr::default());
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_ERR;
        self.modify(&mut attr, 1)
    }

    /// Whether so many more sends and Receives may wait. If not, post first.
    pub(super) fn has_room(&self, sends: usize, receives: usize) -> bool {
        self.sends_waiting.fits(sends) && self.receives_waiting.fits(receives)
    }

    /// Let a Receive wait for [`Self::post_receives`].
    pub(super) fn queue_receive(&mut self, wr_id: u64, address: u64, len: u32, lkey: u32) {
        let place = sys::ibv_sge { addr: address, length: len, lkey };
        self.receives_waiting.push_receive(wr_id, place);
    }

    /// Let a chain wait for [`Self::post_sends`].
    pub(super) fn queue_chain(&mut self, chain: &[SendRequest]) {
        chain.iter().for_each(|request| self.sends_waiting.push_send(request));
    }

    /// Post all Receives that wait, in one call. What the device has nothing of still waits after an error.
    ///
    /// # Safety
    /// The memory must stay writable, and nobody else may use it, until the requests have completed or the
    /// queue pair is destroyed.
    pub(super) unsafe fn post_receives(&mut self) -> Result<(), Refusal> {
        if self.receives_waiting.is_empty() {
            return Ok(());
        }
        let qp = self.raw.as_ptr();
        // SAFETY: the context is open; the table was filled by the library.
        let post = unsafe { (*self.device.context()).ops.post_recv }.ok_or_else(no_such_call)?;
        // SAFETY: the queue pair lives; the list lives through the call and the provider copies it before it
        // returns; the caller vouches for the memory.
        self.receives_waiting.post(|first, bad| unsafe { post(qp, first, bad) })
    }

    /// Post all sends that wait, in one call. What the device has nothing of still waits after an error.
    /// Clears `invalidate` when it turns out that the device has no Send with Invalidate.
    ///
    /// # Safety
    /// The memory must stay valid until the requests have completed or the queue pair is destroyed; that of
    /// Reads may not be used by anybody else until then.
    pub(super) unsafe fn post_sends(&mut self, invalidate: &mut bool) -> Result<(), Refusal> {
        if self.sends_waiting.is_empty() {
            return Ok(());
        }
        let qp = self.raw.as_ptr();
        // SAFETY: the context is open; the table was filled by the library.
        let post = unsafe { (*self.device.context()).ops.post_send }.ok_or_else(no_such_call)?;
        // SAFETY: as for Receives.
        self.sends_waiting.post_sends(invalidate, |first, bad| unsafe { post(qp, first, bad) })
    }

    /// Take back all that waits: the device was not given it. Returns the numbers of the requests.
    pub(super) fn discard(&mut self) -> Vec<u64> {
        let mut numbers = self.receives_waiting.discard();
        numbers.extend(self.sends_waiting.discard());
        numbers
    }

    /// Destroy it: the device does not touch posted memory any more. On failure the memory must stay.
    pub(super) fn destroy(self) -> io::Result<()> {
        // SAFETY: created by `new` and consumed here, so destroyed once.
        let error = unsafe { sys::ibv_destroy_qp(self.raw.as_ptr()) };
        match error {
            // The kernel has destroyed it together with the device.
            libc::EIO | libc::ENODEV => Ok(()),
            other => check(other),
        }
    }
}

pub(super) fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(errno(error)) }
}

fn no_such_call() -> Refusal {
    Refusal { taken: Taken::Chains, error: io::Error::from_raw_os_error(libc::EOPNOTSUPP) }
}

pub(super) fn errno(error: libc::c_int) -> io::Error {
    // Some providers return -1 and set errno, most return the error itself, a few its negative.
    match error {
        -1 => io::Error::last_os_error(),
        other => io::Error::from_raw_os_error(other.saturating_abs()),
    }
}

/// In the library's form, and which of them count.
fn attributes(from: &KernelQpAttr) -> (sys::ibv_qp_attr, u32) {
    // SAFETY: a structure of integers and a union of integers, for which all zeros is a value.
    let mut attr: sys::ibv_qp_attr = unsafe { std::mem::zeroed() };
    attr.qp_state = from.qp_state;
    attr.cur_qp_state = from.cur_qp_state;
    attr.path_mtu = from.path_mtu;
    attr.path_mig_state = from.path_mig_state;
    attr.qkey = from.qkey;
    attr.rq_psn = from.rq_psn;
    attr.sq_psn = from.sq_psn;
    attr.dest_qp_num = from.dest_qp_num;
    attr.qp_access_flags = from.qp_access_flags;
    copy_address(&mut attr.ah_attr, &from.ah);
    copy_address(&mut attr.alt_ah_attr, &from.alt_ah);
    attr.pkey_index = from.pkey_index;
    attr.alt_pkey_index = from.alt_pkey_index;
    attr.en_sqd_async_notify = from.en_sqd_async_notify;
    attr.sq_draining = from.sq_draining;
    attr.max_rd_atomic = from.max_rd_atomic;
    attr.max_dest_rd_atomic = from.max_dest_rd_atomic;
    attr.min_rnr_timer = from.min_rnr_timer;
    attr.port_num = from.port_num;
    attr.timeout = from.timeout;
    attr.retry_cnt = from.retry_cnt;
    attr.rnr_retry = from.rnr_retry;
    attr.alt_port_num = from.alt_port_num;
    attr.alt_timeout = from.alt_timeout;
    // Bits 21 and up (source and destination MAC, VLAN) are the kernel's own business: it finds them again
    // from the addresses.
    (attr, from.mask & ((1 << 21) - 1))
}

fn copy_address(to: &mut sys::ibv_ah_attr, from: &super::cm_sys::KernelAh) {
    to.grh.dgid.raw = from.dgid;
    to.grh.flow_label = from.flow_label;
    to.grh.sgid_index = from.sgid_index;
    to.grh.hop_limit = from.hop_limit;
    to.grh.traffic_class = from.traffic_class;
    to.dlid = from.dlid;
    to.sl = from.sl;
    to.src_path_bits = from.src_path_bits;
    to.static_rate = from.static_rate;
    to.is_global = from.is_global;
    to.port_num = from.port_num;
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use ibverbs_sys as sys;

    use super::*;

    #[test]
    fn layouts_are_those_of_the_public_headers() {
        assert_eq!(size_of::<sys::ibv_sge>(), 16);
        assert_eq!(size_of::<sys::ibv_recv_wr>(), 32);
        assert_eq!(size_of::<sys::ibv_send_wr>(), 128);
        assert_eq!(offset_of!(sys::ibv_send_wr, __bindgen_anon_1), 36);
        assert_eq!(offset_of!(sys::ibv_send_wr, wr), 40);
        assert_eq!(size_of::<sys::ibv_wc>(), 48);
        assert_eq!(offset_of!(sys::ibv_wc, wc_flags), 36);
        assert_eq!(size_of::<sys::ibv_context>(), 328);
        assert_eq!(offset_of!(sys::ibv_context, async_fd), 268);
        assert_eq!(offset_of!(sys::ibv_context, num_comp_vectors), 272);
        let ops = offset_of!(sys::ibv_context, ops);
        assert_eq!(ops, 8);
        assert_eq!(ops + offset_of!(sys::ibv_context_ops, poll_cq), 96);
        assert_eq!(ops + offset_of!(sys::ibv_context_ops, req_notify_cq), 104);
        assert_eq!(ops + offset_of!(sys::ibv_context_ops, post_send), 208);
        assert_eq!(ops + offset_of!(sys::ibv_context_ops, post_recv), 216);
        assert_eq!(offset_of!(sys::ibv_mr, lkey), 36);
        assert_eq!(offset_of!(sys::ibv_mr, rkey), 40);
        assert_eq!(offset_of!(sys::ibv_qp, qp_num), 52);
        assert_eq!(offset_of!(sys::ibv_comp_channel, fd), 8);
        assert_eq!(size_of::<sys::ibv_qp_init_attr>(), 64);
        assert_eq!(size_of::<sys::ibv_qp_attr>(), 144);
        assert_eq!(size_of::<sys::ibv_device_attr>(), 232);
        assert_eq!(offset_of!(sys::ibv_device_attr, max_qp_wr), 112);
        assert_eq!(offset_of!(sys::ibv_device_attr, device_cap_flags), 116);
        assert_eq!(offset_of!(sys::ibv_device_attr, max_qp_init_rd_atom), 156);
    }

    #[test]
    fn numbers_are_those_of_the_headers() {
        use sys::{ibv_qp_attr_mask as mask, ibv_wr_opcode as opcode};
        assert_eq!(mask::IBV_QP_MIN_RNR_TIMER.0, MASK_MIN_RNR_TIMER);
        assert_eq!(mask::IBV_QP_MAX_QP_RD_ATOMIC.0, MASK_MAX_RD_ATOMIC);
        assert_eq!(mask::IBV_QP_MAX_DEST_RD_ATOMIC.0, MASK_MAX_DEST_RD_ATOMIC);
        assert_eq!(mask::IBV_QP_ACCESS_FLAGS.0, MASK_ACCESS_FLAGS);
        assert_eq!(mask::IBV_QP_STATE.0, 1);
        assert_eq!(opcode::IBV_WR_SEND_WITH_INV, 9);
        assert_eq!(sys::ibv_send_flags::IBV_SEND_INLINE.0, 8);
    }

    #[test]
    fn errors_in_all_three_conventions() {
        assert_eq!(errno(libc::EINVAL).raw_os_error(), Some(libc::EINVAL));
        assert_eq!(errno(-libc::ENOMEM).raw_os_error(), Some(libc::ENOMEM));
        assert!(check(0).is_ok());
    }
}
