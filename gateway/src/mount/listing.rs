//! DUMP and EXPORT: lists for people (RFC 1813 sections 5.2.2 and 5.2.5).
//!
//! They are cut where the reply would become larger than the client has room for.

use rpc_rdma::{service::Peer, xdr::Writer};

use super::table::Mounted;
use crate::exports::{ExportAccess, ExportTable};

/// Longest name of a group, in bytes (MNTNAMLEN).
const GROUP_BYTES_MAX: usize = 255;
/// Most groups that are listed of one export.
const GROUPS_MAX: usize = 256;

/// Encode the results of DUMP.
pub fn dump(mounts: &[Mounted], message_bytes_max: usize, writer: &mut Writer) {
    for mounted in mounts {
        let mark = writer.mark();
        writer.bool(true);
        writer.opaque(mounted.client.to_string().as_bytes());
        writer.opaque(&mounted.path);
        if writer.len() + 4 > message_bytes_max {
            writer.rewind(mark);
            break;
        }
    }
    writer.bool(false);
}

/// Encode the results of EXPORT: the exports that `peer` may use, each with its client rules.
pub fn exports(table: &ExportTable, peer: &Peer, message_bytes_max: usize, writer: &mut Writer) {
    for export in table.iter().filter(|export| export.access(peer) != ExportAccess::Denied) {
        let mark = writer.mark();
        writer.bool(true);
        writer.opaque(export.path.as_bytes());
        for rule in export.clients.listed().into_iter().take(GROUPS_MAX) {
            let name = rule.pattern.to_string();
            writer.bool(true);
            writer.opaque(name.as_bytes().get(..GROUP_BYTES_MAX).unwrap_or(name.as_bytes()));
        }
        writer.bool(false);
        if writer.len() + 4 > message_bytes_max {
            writer.rewind(mark);
            break;
        }
    }
    writer.bool(false);
}
