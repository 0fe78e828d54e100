//! The devices that there are, and one that is open: context, protection domain, and the arena registered with
//! it. Every lane shares it; when the last of them lets go, everything is released in the order that the device
//! demands.
//!
//! The list comes through the crate `ibverbs`. What is open is ours, through `ibverbs-sys`: that crate's context
//! shows neither its descriptor nor its events, wants an active port, and panics when a device is lost.

#![allow(unsafe_code)]

use std::{ffi::CStr, io, os::fd::RawFd, ptr::NonNull, sync::Arc};

use buffers::Arena;
use ibverbs_sys as sys;

use crate::wire::WireLimits;

/// `IBV_ACCESS_RELAXED_ORDERING`: data is trusted only after its completion, so order on the bus is free.
const ACCESS_RELAXED_ORDERING: u32 = 1 << 20;
const ACCESS_LOCAL_WRITE: u32 = 1;
const ACCESS_REMOTE_WRITE: u32 = 1 << 1;
const ACCESS_REMOTE_READ: u32 = 1 << 2;

/// `IBV_DEVICE_MEM_MGT_EXTENSIONS`: without it there is no Send with Invalidate.
const CAP_MEMORY_MANAGEMENT: u32 = 1 << 21;

/// What names a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceName {
    /// Name, as `rdma link` shows it.
    pub name: String,
    /// Index of the kernel; a device that went and came back has another one.
    pub index: Option<u32>,
    /// As the kernel gives it, in network order.
    pub guid: u64,
}

impl DeviceName {
    fn of(device: &ibverbs::Device<'_>) -> Self {
        Self {
            name: device
                .name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            index: device.index().ok().and_then(|index| u32::try_from(index).ok()),
            // An error is how a device without one is reported.
            guid: device.guid().map_or(0, u64::from),
        }
    }
}

/// The devices that the kernel has now and the system's libibverbs has a driver for. None is not an error.
///
/// # Errors
/// When the system cannot tell.
pub fn list() -> io::Result<Vec<DeviceName>> {
    match ibverbs::devices() {
        Ok(list) => Ok(list.iter().map(|device| DeviceName::of(&device)).collect()),
        // What the library says on a machine whose kernel has no RDMA: that is no device, not a fault.
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Attributes that matter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attributes {
    pub qp_requests_max: usize,
    pub completions_max: usize,
    pub reads_outstanding_max: usize,
    pub send_with_invalidate: bool,
    pub iwarp: bool,
    pub completion_vectors: usize,
}

#[derive(Debug)]
struct Context(NonNull<sys::ibv_context>);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by `Device::open`; everything made of it was dropped before.
        unsafe { sys::ibv_close_device(self.0.as_ptr()) };
    }
}

#[derive(Debug)]
struct ProtectionDomain(NonNull<sys::ibv_pd>);

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: allocated by `Device::open`; regions and queue pairs were dropped before.
        unsafe { sys::ibv_dealloc_pd(self.0.as_ptr()) };
    }
}

/// Memory that the device knows.
#[derive(Debug)]
struct Region(NonNull<sys::ibv_mr>);

impl Region {
    fn lkey(&self) -> u32 {
        // SAFETY: the region lives as long as `self`.
        unsafe { self.0.as_ref().lkey }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered by `Device::register` and deregistered once.
        unsafe { sys::ibv_dereg_mr(self.0.as_ptr()) };
    }
}

// SAFETY: libibverbs objects may be used from any thread; a region is immutable once registered.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Memory that peers may reach, registered with a device that it keeps open.
#[derive(Debug)]
pub(super) struct RegionHandle {
    region: Region,
    _device: Arc<Device>,
}

impl RegionHandle {
    /// Register memory that peers may read or, when `writable`, write.
    ///
    /// # Safety
    /// The memory must stay allocated while the handle lives, and nobody may rely on its contents not
    /// changing.
    pub(super) unsafe fn new(
        device: Arc<Device>,
        start: *mut u8,
        bytes: usize,
        writable: bool,
    ) -> Result<Self, DeviceError> {
        let remote = if writable { ACCESS_REMOTE_WRITE } else { ACCESS_REMOTE_READ };
        // SAFETY: the caller's promise.
        let region = unsafe { device.register(start, bytes, ACCESS_LOCAL_WRITE | remote)? };
        Ok(Self { region, _device: device })
    }

    /// Key for peers.
    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the region lives as long as `self`.
        unsafe { self.region.0.as_ref().rkey }
    }
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It went away since it was listed.
    #[error("the device is gone")]
    Gone,
    /// The system refused.
    #[error("{operation}: {source}")]
    System {
        /// Which call.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The buffer memory could not be pinned.
    #[error(
        "cannot register {bytes} bytes of buffer memory: {source}; the limit of locked memory is {limit} \
         (set LimitMEMLOCK=infinity in the service, or `ulimit -l unlimited`)"
    )]
    Register {
        /// How much, in bytes.
        bytes: usize,
        /// What the system said.
        source: io::Error,
        /// The limit, for people.
        limit: String,
    },
}

/// An open device. Fields are released from top to bottom.
#[derive(Debug)]
pub(super) struct Device {
    regions: Vec<Region>,
    pd: ProtectionDomain,
    context: Context,
    arena: Arc<Arena>,
    pub(super) id: DeviceName,
    /// Name of its user interface (`uverbs0`).
    pub(super) uverbs: String,
    pub(super) attributes: Attributes,
}

// SAFETY: libibverbs contexts, protection domains and regions may be used from any thread at the same time.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn last(operation: &'static str) -> DeviceError {
    DeviceError::System { operation, source: io::Error::last_os_error() }
}

impl Device {
    /// Open the device `id` and register the arena with it.
    pub(super) fn open(id: DeviceName, arena: Arc<Arena>) -> Result<Self, DeviceError> {
        let Opened { context, uverbs, iwarp } = open(&id)?;
        let attributes = query(&context, iwarp)?;
        set_non_blocking(context.async_fd())
            .map_err(|source| DeviceError::System { operation: "asynchronous events", source })?;
        // SAFETY: the context is open.
        let pd = NonNull::new(unsafe { sys::ibv_alloc_pd(context.0.as_ptr()) });
        let pd = ProtectionDomain(pd.ok_or_else(|| last("protection domain"))?);
        let mut this = Self { regions: Vec::new(), pd, context, arena, id, uverbs, attributes };
        let chunks: Vec<_> = this.arena.chunks().collect();
        for (start, bytes) in chunks {
            // SAFETY: the chunk belongs to the arena, which `this` keeps mapped longer than its regions.
            let region = unsafe { this.register(start, bytes, ACCESS_LOCAL_WRITE)? };
            this.regions.push(region);
        }
        Ok(this)
    }

    /// # Safety
    /// The memory must stay mapped, and be of a kind that a device may write to, while the region lives.
    unsafe fn register(
        &self,
        start: *mut u8,
        bytes: usize,
        access: u32,
    ) -> Result<Region, DeviceError> {
        let pd = self.pd.0.as_ptr();
        // SAFETY: the caller vouches for the memory; the protection domain is open.
        let raw = unsafe {
            let relaxed = access | ACCESS_RELAXED_ORDERING;
            let region = sys::ibv_reg_mr_iova2(pd, start.cast(), bytes, start as u64, relaxed);
            if region.is_null() {
                sys::ibv_reg_mr(pd, start.cast(), bytes, access as libc::c_int)
            } else {
                region
            }
        };
        NonNull::new(raw).map(Region).ok_or_else(|| DeviceError::Register {
            bytes,
            source: io::Error::last_os_error(),
            limit: super::diagnose::locked_memory_limit(),
        })
    }

    /// Local key of a chunk of the arena.
    pub(super) fn lkey(&self, chunk: u16) -> Option<u32> {
        self.regions.get(usize::from(chunk)).map(Region::lkey)
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(super) fn context(&self) -> *mut sys::ibv_context {
        self.context.0.as_ptr()
    }

    pub(super) fn pd(&self) -> *mut sys::ibv_pd {
        self.pd.0.as_ptr()
    }

    pub(super) fn async_fd(&self) -> RawFd {
        self.context.async_fd()
    }

    pub(super) fn limits(&self) -> WireLimits {
        let half = self.attributes.completions_max / 2;
        let requests = self.attributes.qp_requests_max.min(half);
        WireLimits {
            send_requests_max: requests,
            receives_max: requests,
            reads_outstanding_max: self.attributes.reads_outstanding_max,
            send_with_invalidate: self.attributes.send_with_invalidate,
        }
    }

    /// The next asynchronous event, if there is one, acknowledged.
    pub(super) fn async_event(&self) -> Option<AsyncEvent> {
        // SAFETY: a structure of integers and a union of pointers, for which all zeros is a value.
        let mut event: sys::ibv_async_event = unsafe { std::mem::zeroed() };
        // SAFETY: the context is open and its descriptor does not block.
        if unsafe { sys::ibv_get_async_event(self.context(), &raw mut event) } != 0 {
            return None;
        }
        // SAFETY: for these types the element is a queue pair of ours. It cannot be freed before the event
        // is acknowledged: `ibv_destroy_qp` waits for that.
        let qp = || unsafe { (*event.element.qp).qp_context as u64 };
        let seen = match event.event_type {
            sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR
            | sys::IBV_EVENT_PATH_MIG_ERR => AsyncEvent::QueuePairFailed(qp()),
            sys::IBV_EVENT_COMM_EST => AsyncEvent::CommunicationEstablished(qp()),
            // A completion queue that has overflowed or failed takes the lane's view of the device with it.
            sys::IBV_EVENT_DEVICE_FATAL | sys::IBV_EVENT_CQ_ERR => AsyncEvent::DeviceFatal,
            other => AsyncEvent::Benign(other),
        };
        // SAFETY: the event came from `ibv_get_async_event` and is acknowledged once.
        unsafe { sys::ibv_ack_async_event(&raw mut event) };
        Some(seen)
    }
}

/// An asynchronous event; queue pairs by the number that was given to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AsyncEvent {
    QueuePairFailed(u64),
    CommunicationEstablished(u64),
    DeviceFatal,
    Benign(u32),
}

impl Context {
    fn async_fd(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { self.0.as_ref().async_fd }
    }
}

struct Opened {
    context: Context,
    uverbs: String,
    iwarp: bool,
}

/// Find the device in the library's list, and open it.
fn open(id: &DeviceName) -> Result<Opened, DeviceError> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for the number.
    let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(last("list the devices"));
    }
    // SAFETY: the library returned an array of `count` pointers, which lives until it is freed below.
    let devices = unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) };
    let is_it =
        |device: &&*mut sys::ibv_device| DeviceName::of(&ibverbs::Device::from(*device)) == *id;
    let opened = match devices.iter().find(is_it) {
        None => Err(DeviceError::Gone),
        // SAFETY: the device is of the list, which is there; its name is an array that a zero ends.
        Some(&device) => unsafe {
            let raw = NonNull::new(sys::ibv_open_device(device));
            raw.ok_or_else(|| last("open the device")).map(|raw| Opened {
                context: Context(raw),
                uverbs: CStr::from_ptr((*device).dev_name.as_ptr()).to_string_lossy().into_owned(),
                iwarp: (*device).transport_type == sys::IBV_TRANSPORT_IWARP,
            })
        },
    };
    // SAFETY: the list came from the library and is freed once; a device that was opened stays.
    unsafe { sys::ibv_free_device_list(list) };
    opened
}

fn query(context: &Context, iwarp: bool) -> Result<Attributes, DeviceError> {
    // SAFETY: a structure of integers, for which all zeros is a value.
    let mut raw: sys::ibv_device_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the context is open and `raw` is a place for the answer.
    let error = unsafe { sys::ibv_query_device(context.0.as_ptr(), &raw mut raw) };
    if error != 0 {
        let source = io::Error::from_raw_os_error(error);
        return Err(DeviceError::System { operation: "query the device", source });
    }
    let positive = |value: libc::c_int| usize::try_from(value).unwrap_or(0);
    // SAFETY: the context is open.
    let vectors = unsafe { context.0.as_ref().num_comp_vectors };
    Ok(Attributes {
        qp_requests_max: positive(raw.max_qp_wr),
        completions_max: positive(raw.max_cqe),
        reads_outstanding_max: positive(raw.max_qp_init_rd_atom),
        send_with_invalidate: raw.device_cap_flags & CAP_MEMORY_MANAGEMENT != 0,
        iwarp,
        completion_vectors: positive(vectors).max(1),
    })
}

pub(super) fn set_non_blocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: plain calls on a descriptor that the caller owns.
    let done = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}
