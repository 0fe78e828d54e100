//! Procedure 20, PATHCONF: rules for names and links (RFC 1813 section 3.3.20).

use backends::Capabilities;
use rpc_rdma::xdr::Writer;

use super::capability::{Answer, Asked};

/// `PATHCONF3args`.
pub type Args = Asked<PathConf>;

/// The rules.
#[derive(Debug)]
pub enum PathConf {}

impl Answer for PathConf {
    const BYTES: usize = 6 * 4;

    fn encode(capabilities: &Capabilities, writer: &mut Writer) {
        writer.u32(capabilities.links_max);
        writer.u32(capabilities.name_bytes_max);
        // no_trunc, chown_restricted; case_insensitive, case_preserving.
        for flag in [true, true, false, true] {
            writer.bool(flag);
        }
    }
}
