//! Taking a connection, or turning it down.
//!
//! Depths and credits follow what the device and the peer allow; all Receives are posted before the handshake
//! is answered, because the first message may follow at once.

use buffers::{Lease, pool::CLASS_BYTES};

use super::{
    links::{LINKS_MAX, Link},
    side::{COMINGS_AND_GOINGS, RdmaSide},
};
use crate::{
    conn::{CloseReason, Connection, Terms},
    credit::Depths,
    driver::{
        LogRate,
        limits::{Admission, TooMany},
    },
    header::PrivateData,
    service::Transport,
    wire::{ConnectRequest, QpDepths, QpId, WireError, WireLimits},
};

/// Why a request was turned down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error("the lane is being drained")]
    Draining,
    #[error("this lane has too many connections")]
    Lane,
    #[error("{0}")]
    TooMany(#[from] TooMany),
    #[error("the client allows no RDMA Reads")]
    NoReads,
    #[error("the device is too small")]
    Device,
    #[error("there is not enough buffer memory")]
    Memory,
}

/// What a connection was given as it was let in.
struct Admitted {
    depths: Depths,
    receives: Vec<Lease>,
    admission: Admission,
}

impl RdmaSide {
    /// Somebody wants to connect.
    pub(super) fn connect_request(&mut self, device: usize, request: &ConnectRequest) {
        let Some(limits) = self.devices.get(device).and_then(|d| Some(d.as_ref()?.limits())) else {
            return;
        };
        match self.admit(request, limits) {
            Ok(admitted) => self.accept(device, request, limits, admitted),
            Err(refusal) => {
                static RATE: LogRate = LogRate::per_second();
                if let Some(left_out) = RATE.next() {
                    tracing::warn!(peer = %request.peer, left_out, "RDMA connection refused: {refusal}");
                }
                self.reject(device, request.id);
            }
        }
    }

    fn reject(&mut self, device: usize, request: u64) {
        self.stats.rejected += 1;
        if let Some(Some(device)) = self.devices.get_mut(device) {
            device.provider.reject(request, &[]);
        }
    }

    /// Whether there is room for it; if so, with the buffers of its Receives.
    fn admit(&self, request: &ConnectRequest, limits: WireLimits) -> Result<Admitted, Refusal> {
        let settings = &self.settings;
        if self.draining {
            return Err(Refusal::Draining);
        }
        if self.links.len() >= LINKS_MAX {
            return Err(Refusal::Lane);
        }
        let admission = self.limits.admit(Transport::Rdma, request.peer.ip())?;
        if request.reads_outstanding_max == 0 || limits.reads_outstanding_max == 0 {
            return Err(Refusal::NoReads);
        }
        let depths =
            Depths::within(settings.credits, limits.receives_max, limits.send_requests_max)
                .ok_or(Refusal::Device)?;
        let receives = self.receive_buffers(depths.receives).ok_or(Refusal::Memory)?;
        Ok(Admitted { depths, receives, admission })
    }

    /// Buffers for the Receives of a connection. Some of their class must stay free, or no reply could be
    /// sent and every connection would stand still.
    fn receive_buffers(&self, count: usize) -> Option<Vec<Lease>> {
        let bytes = self.settings.inline();
        let class = CLASS_BYTES.iter().position(|&size| size >= bytes)?;
        let stats = self.pool.stats();
        let (free, total) = (*stats.free.get(class)?, *stats.total.get(class)?);
        if free < count + total / 8 {
            return None;
        }
        (0..count).map(|_| self.pool.take(bytes)).collect()
    }

    fn accept(
        &mut self,
        device_index: usize,
        request: &ConnectRequest,
        limits: WireLimits,
        admitted: Admitted,
    ) {
        let Admitted { depths, receives, admission } = admitted;
        let Some(Some(device)) = self.devices.get_mut(device_index) else { return };
        let wanted = QpDepths { send_requests: depths.send_requests, receives: depths.receives };
        let qp = match device.provider.prepare(request.id, wanted) {
            Ok((qp, _)) => qp,
            Err(error) => {
                static RATE: LogRate = LogRate::per_second();
                if let Some(left_out) = RATE.next() {
                    tracing::warn!(peer = %request.peer, left_out, "RDMA connection refused: {error}");
                }
                return self.reject(device_index, request.id);
            }
        };
        let reads = usize::from(request.reads_outstanding_max).min(limits.reads_outstanding_max);
        let reads = reads.min(usize::from(u8::MAX));
        let ours = PrivateData {
            invalidate: true,
            send_bytes: self.settings.inline(),
            receive_bytes: self.settings.inline(),
        };
        let mut posted = 0;
        let outcome = receives
            .into_iter()
            .try_for_each(|lease| {
                device.provider.post_receive(qp, lease)?;
                posted += 1;
                Ok(())
            })
            .and_then(|()| device.provider.accept(qp, &ours.encode(), reads as u8));
        let theirs = PrivateData::find(&request.private_data).unwrap_or_default();
        let terms = Terms {
            credits: depths.credits,
            receives: posted,
            send_requests: depths.send_requests,
            reads_outstanding: reads,
            send_bytes_max: ours.send_bytes.min(theirs.receive_bytes),
            invalidate: theirs.invalidate
                && limits.send_with_invalidate
                && !device.invalidate_refused,
        };
        self.enter((device_index, qp), request, admission, terms, outcome);
    }

    /// Enter a connection. One that could not be accepted goes through the same ordered end as any other.
    fn enter(
        &mut self,
        (device, qp): (usize, QpId),
        request: &ConnectRequest,
        admission: Admission,
        terms: Terms,
        outcome: Result<(), WireError>,
    ) {
        let poisoned = self.poison.of(self.now, request.peer.ip());
        let arena = self.pool.arena().clone();
        let mut conn = Connection::new(self.settings.connection, terms, arena, poisoned, self.now);
        match outcome {
            Ok(()) => {
                self.stats.accepted += 1;
                static RATE: LogRate = LogRate::new(COMINGS_AND_GOINGS);
                if let Some(left_out) = RATE.next() {
                    tracing::info!(peer = %request.peer, ?terms, left_out, "RDMA connection accepted");
                }
            }
            Err(error) => {
                self.stats.rejected += 1;
                static RATE: LogRate = LogRate::per_second();
                if let Some(left_out) = RATE.next() {
                    tracing::warn!(peer = %request.peer, left_out, "RDMA connection failed: {error}");
                }
                conn.close(self.now, CloseReason::Refused);
            }
        }
        let link = Link {
            device,
            qp,
            peer: request.peer,
            conn,
            _admission: admission,
            listed: false,
            awaits: false,
        };
        // There is room: it was checked when the request came in.
        let Some(key) = self.links.insert(link) else { return };
        if let Some(Some(device)) = self.devices.get_mut(device) {
            device.by_qp.insert(qp, key);
        }
        self.list(key);
    }
}
