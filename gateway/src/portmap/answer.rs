//! What we say as rpcbind: a call's bytes become a reply's bytes.
//!
//! Versions 2, 3 and 4 (RFC 1833) with the procedures that clients use. Nobody else can register here: SET
//! and UNSET answer false. Lists are given over TCP only, where nobody can make us send them to a third party.

use std::net::IpAddr;

use rpc_rdma::{
    rpc::{
        AcceptError, Call, Rejected,
        call::{self},
        reply,
    },
    xdr::{Reader, Rope, WireError, Writer},
};

use super::{
    mapping::{Mapping, Netid, PROGRAM, Registrations},
    universal::{self, UNIVERSAL_BYTES_MAX},
};

const NETID_BYTES_MAX: u32 = 32;
const OWNER_BYTES_MAX: u32 = 128;

/// How a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Via {
    /// Over which transport.
    pub netid: Netid,
    /// To which of our addresses, where known.
    pub local: Option<IpAddr>,
}

impl Via {
    fn is_stream(self) -> bool {
        matches!(self.netid, Netid::Tcp | Netid::Tcp6)
    }
}

/// Answer one message; `None` when it is no call.
pub fn answer(message: Vec<u8>, via: Via, registrations: &Registrations) -> Option<Rope> {
    let call = match call::decode(Rope::inline(message)) {
        Ok(call) => call,
        Err(Rejected::Answer(rope)) => return Some(rope),
        Err(Rejected::Drop(_)) => return None,
    };
    let xid = call.header.xid;
    let mut writer = reply::success(xid);
    Some(match carry_out(&call, via, registrations, &mut writer) {
        Ok(()) => writer.finish(),
        Err(error) => reply::error(xid, error),
    })
}

fn carry_out(
    call: &Call,
    via: Via,
    registrations: &Registrations,
    writer: &mut Writer,
) -> Result<(), AcceptError> {
    let header = &call.header;
    if header.program != PROGRAM {
        return Err(AcceptError::ProgramUnavailable);
    }
    let mut args = call.args();
    match (header.version, header.procedure) {
        (2..=4, 0) => {}
        // SET, UNSET: not for others.
        (2..=4, 1 | 2) => writer.bool(false),
        (2, 3) => writer.u32(port(&mut args, registrations)?),
        (2, 4) if via.is_stream() => dump_version_2(registrations, writer),
        (3 | 4, 3) => address(&mut args, via, registrations, false, writer)?,
        (4, 9) => address(&mut args, via, registrations, true, writer)?,
        (3 | 4, 4) if via.is_stream() => dump(registrations, writer),
        (2..=4, _) => return Err(AcceptError::ProcedureUnavailable),
        _ => return Err(AcceptError::ProgramMismatch { low: 2, high: 4 }),
    }
    Ok(())
}

fn garbage(_: WireError) -> AcceptError {
    AcceptError::GarbageArguments
}

/// Version 2, GETPORT: 0 when there is none.
fn port(args: &mut Reader<'_>, registrations: &Registrations) -> Result<u32, AcceptError> {
    let program = args.u32("program").map_err(garbage)?;
    let version = args.u32("version").map_err(garbage)?;
    let protocol = args.u32("protocol").map_err(garbage)?;
    let netid = [Netid::Tcp, Netid::Udp].into_iter().find(|id| id.protocol() == Some(protocol));
    let mapping = netid.and_then(|netid| registrations.find_any(program, version, netid));
    Ok(mapping.map_or(0, |mapping| u32::from(mapping.address.port())))
}

/// GETADDR and GETVERSADDR: empty when there is none.
fn address(
    args: &mut Reader<'_>,
    via: Via,
    registrations: &Registrations,
    exact: bool,
    writer: &mut Writer,
) -> Result<(), AcceptError> {
    let program = args.u32("program").map_err(garbage)?;
    let version = args.u32("version").map_err(garbage)?;
    let netid = args.opaque(NETID_BYTES_MAX, "netid").map_err(garbage)?;
    let hint = args.opaque(UNIVERSAL_BYTES_MAX, "address").map_err(garbage)?;
    args.opaque(OWNER_BYTES_MAX, "owner").map_err(garbage)?;
    // The transport that is asked for, not the one that the question came by: an RDMA client asks over TCP.
    let netid = if netid.is_empty() { Some(via.netid) } else { Netid::of(netid) };
    let mapping = netid.and_then(|netid| match exact {
        true => registrations.find(program, version, netid),
        false => registrations.find_any(program, version, netid),
    });
    let local = via.local.or_else(|| universal::parse(hint).map(|address| address.ip()));
    let text = mapping.map_or_else(String::new, |mapping| {
        let mut address = mapping.address;
        if let Some(ip) = local
            && address.ip().is_unspecified()
            && ip.is_ipv4() == address.is_ipv4()
        {
            address.set_ip(ip);
        }
        universal::format(address)
    });
    writer.opaque(text.as_bytes());
    Ok(())
}

fn dump_version_2(registrations: &Registrations, writer: &mut Writer) {
    for mapping in registrations.iter() {
        let Some(protocol) = mapping.netid.protocol() else { continue };
        writer.bool(true);
        writer.u32(mapping.program);
        writer.u32(mapping.version);
        writer.u32(protocol);
        writer.u32(u32::from(mapping.address.port()));
    }
    writer.bool(false);
}

fn dump(registrations: &Registrations, writer: &mut Writer) {
    for mapping in registrations.iter() {
        writer.bool(true);
        encode(mapping, writer);
    }
    writer.bool(false);
}

/// Encode `rpcb`.
pub(super) fn encode(mapping: &Mapping, writer: &mut Writer) {
    writer.u32(mapping.program);
    writer.u32(mapping.version);
    writer.opaque(mapping.netid.name().as_bytes());
    writer.opaque(universal::format(mapping.address).as_bytes());
    writer.opaque(b"superuser");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn registrations() -> Registrations {
        let tcp = ["0.0.0.0:2049".parse().unwrap()];
        let rdma = ["0.0.0.0:20049".parse().unwrap()];
        Registrations::new(&tcp, &rdma).with_portmapper("0.0.0.0:111".parse().unwrap())
    }

    fn via(netid: Netid) -> Via {
        Via { netid, local: Some("192.0.2.1".parse().unwrap()) }
    }

    fn ask(netid: Netid, head: [u32; 2], args: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        for word in [5, 0, 2, PROGRAM, head[0], head[1], 0, 0, 0, 0] {
            writer.u32(word);
        }
        args(&mut writer);
        let rope = answer(writer.finish().flatten(), via(netid), &registrations()).unwrap();
        assert_eq!(rope.head[..4], [0, 0, 0, 5]);
        rope.flatten()[20..].to_vec()
    }

    #[test]
    fn getport() {
        let port = |program: u32, version: u32, protocol: u32| {
            let reply = ask(Netid::Udp, [2, 3], |w| {
                [program, version, protocol, 0].iter().for_each(|&word| w.u32(word));
            });
            assert_eq!(reply[..4], [0; 4]);
            u32::from_be_bytes(reply[4..8].try_into().unwrap())
        };
        assert_eq!(port(100_003, 3, 6), 2049);
        assert_eq!(port(100_005, 3, 6), 2049);
        assert_eq!(port(100_003, 3, 17), 0);
        assert_eq!(port(100_021, 4, 6), 0);
        assert_eq!(port(100_000, 2, 17), 111);
    }

    /// RDMA clients asking rpcbind get a TCP address.
    #[test]
    fn getaddr_by_the_netid_asked_for() {
        let address = |procedure: u32, version: u32, netid: &[u8]| {
            let reply = ask(Netid::Tcp, [4, procedure], |w| {
                w.u32(100_003);
                w.u32(version);
                w.opaque(netid);
                w.opaque(b"192.0.2.1.0.111");
                w.opaque(b"");
            });
            let rope = Rope::inline(reply);
            let mut reader = Reader::new(&rope);
            assert_eq!(reader.u32("status"), Ok(0));
            String::from_utf8(reader.opaque(64, "address").unwrap().to_vec()).unwrap()
        };
        assert_eq!(address(3, 3, b"tcp"), "192.0.2.1.8.1");
        assert_eq!(address(3, 3, b"rdma"), "192.0.2.1.78.81");
        assert_eq!(address(3, 3, b""), "192.0.2.1.8.1");
        assert_eq!(address(3, 4, b"tcp"), "192.0.2.1.8.1", "another version will do");
        assert_eq!(address(9, 4, b"tcp"), "", "exactly this version");
        assert_eq!(address(3, 3, b"udp"), "");
        assert_eq!(address(3, 3, b"sctp"), "");
    }

    #[test]
    fn dump_over_tcp_only_and_no_registrations_by_others() {
        let listed = ask(Netid::Tcp, [2, 4], |_| {});
        // NFS v3, MOUNT v3 and v1 over TCP; rpcbind in three versions over TCP and UDP.
        assert_eq!(listed.len(), 4 + 9 * 20 + 4);
        assert!(ask(Netid::Tcp, [4, 4], |_| {}).len() > 200);
        assert_eq!(ask(Netid::Udp, [2, 4], |_| {}), [0, 0, 0, 3]);
        assert_eq!(ask(Netid::Tcp, [4, 1], |_| {}), [0; 8]);
        assert_eq!(ask(Netid::Tcp, [5, 0], |_| {}), [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 4]);
        assert_eq!(ask(Netid::Tcp, [2, 3], |_| {}), [0, 0, 0, 4]);
    }

    proptest! {
        #[test]
        fn never_panics(
            args in proptest::collection::vec(any::<u8>(), 0..80),
            version in 0_u32..6,
            procedure in 0_u32..14,
        ) {
            let _ = answer(args.clone(), via(Netid::Udp), &registrations());
            let mut message: Vec<u8> = [5, 0, 2, PROGRAM, version, procedure, 0, 0, 0, 0]
                .iter()
                .flat_map(|word: &u32| word.to_be_bytes())
                .collect();
            message.extend(args);
            prop_assert!(answer(message, via(Netid::Tcp), &registrations()).is_some());
        }
    }
}
