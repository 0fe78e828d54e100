//! Calls of the MOUNT program on a lane.

use std::{fmt::Display, net::IpAddr};

use backends::ObjectHandle;
use rpc_rdma::{
    rpc::{AcceptError, reply},
    xdr::Rope,
};

use super::{
    LaneService,
    calls::{InFlight, Job},
    service::Origin,
};
use crate::{
    config::problem::shown,
    exports::ExportAccess,
    mount::{self, MountStatus, Walk},
};

impl LaneService {
    /// Begin a MOUNT call.
    pub(super) fn begin_mount(
        &mut self,
        origin: Origin<'_>,
        procedure: mount::Procedure,
    ) -> Option<Rope> {
        self.shared.metrics.mount_calls.add();
        let client = origin.peer.address.ip().to_canonical();
        let room = origin.budget.message_bytes_max;
        let mut writer = reply::success(origin.xid());
        match procedure {
            mount::Procedure::Mount => return self.begin_walk(origin),
            mount::Procedure::Dump => {
                mount::listing::dump(&self.shared.mounts.list(), room, &mut writer);
            }
            mount::Procedure::Unmount => {
                match mount::procedure::decode_path(&mut origin.call.args()) {
                    Ok(path) => self.shared.mounts.remove(client, &path),
                    Err(_) => return Some(self.garbage(origin.xid())),
                }
            }
            mount::Procedure::UnmountAll => self.shared.mounts.remove_all(client),
            mount::Procedure::Export => {
                mount::listing::exports(self.exports.table(), origin.peer, room, &mut writer);
            }
        }
        Some(writer.finish())
    }

    fn begin_walk(&mut self, origin: Origin<'_>) -> Option<Rope> {
        let mut args = origin.call.args();
        let path = match mount::procedure::decode_path(&mut args) {
            Ok(path) if args.finish().is_ok() => path,
            _ => return Some(self.garbage(origin.xid())),
        };
        let client = origin.peer.address.ip().to_canonical();
        let refuse = |status: MountStatus| {
            let mut writer = reply::success(origin.xid());
            writer.u32(status.code());
            Some(writer.finish())
        };
        // As with NFS, nothing happens whose result could not be told.
        if origin.budget.message_bytes_max < reply::ACCEPTED_BYTES + Walk::RESULT_BYTES_MAX {
            return refuse(MountStatus::ServerFault);
        }
        let target = match self.exports.table().resolve_mount(&path) {
            Ok(target) => target,
            Err(denied) => {
                self.say_refused(client, &path, &denied);
                return refuse(denied.into());
            }
        };
        if target.export.access(origin.peer) == ExportAccess::Denied {
            self.say_refused(client, &path, &"it is not among the export's clients");
            return refuse(MountStatus::Acces);
        }
        let Ok(attachment) = self.attachments.of(&target.export, &self.resources) else {
            return refuse(MountStatus::ServerFault);
        };
        let identity = target.export.identity(&origin.call.header.credential);
        let mut walk = Walk::new(target.export, identity, client, path, target.components);
        let operation = walk.operation();
        let token = self.calls.insert(InFlight {
            ticket: origin.ticket,
            xid: origin.xid(),
            procedure: origin.call.header.procedure,
            job: Job::Mount(walk),
            attachment,
            cached: None,
        });
        self.drive(token, operation)
    }

    /// A client sees hardly more than "access denied"; who runs the gateway must be able to see why.
    fn say_refused(&self, client: IpAddr, path: &[u8], reason: &dyn Display) {
        if let Some(left_out) = self.refused_mounts.next() {
            let path = shown(&String::from_utf8_lossy(path));
            tracing::warn!(left_out, "mount of {path} refused to {client}: {reason}");
        }
    }

    /// The reply of a walk that has ended; a success is remembered for DUMP.
    pub(super) fn mounted(
        &self,
        xid: u32,
        walk: &Walk,
        result: Result<ObjectHandle, MountStatus>,
    ) -> Rope {
        if result.is_ok() {
            self.shared.mounts.add(walk.client(), walk.path());
        }
        let mut writer = reply::success(xid);
        walk.results(result, &self.shared.handle_key, &mut writer);
        writer.finish()
    }

    fn garbage(&self, xid: u32) -> Rope {
        self.shared.metrics.garbage.add();
        reply::error(xid, AcceptError::GarbageArguments)
    }
}
