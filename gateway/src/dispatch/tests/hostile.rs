//! Any bytes as arguments: no panic, exactly one reply.

use bytes::Bytes;
use proptest::prelude::*;
use rpc_rdma::{
    rpc::reply::ACCEPTED_BYTES,
    service::ReplyBudget,
    xdr::{Piece, Rope},
};

use super::driver::{MOUNT, NFS, Server};

/// Arguments that are often nearly right: handles, words and strings in any order.
fn items(root: Bytes) -> impl Strategy<Value = Vec<u8>> {
    let opaque = |bytes: Vec<u8>| {
        let mut out = (bytes.len() as u32).to_be_bytes().to_vec();
        out.extend_from_slice(&bytes);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    };
    let root = opaque(root.to_vec());
    let item = prop_oneof![
        3 => Just(root),
        2 => (0_u32..4).prop_map(|word| word.to_be_bytes().to_vec()),
        2 => any::<u32>().prop_map(|word| word.to_be_bytes().to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..12).prop_map(opaque),
        1 => proptest::collection::vec(any::<u8>(), 0..300),
    ];
    (proptest::collection::vec(item, 0..12)).prop_map(|items| items.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_arguments_of_any_procedure(
        calls in proptest::collection::vec(
            (0_u32..24, items(Server::new().root(1)), 0_usize..2000, any::<bool>()), 1..8),
        bulk in proptest::option::of((0_usize..600, proptest::collection::vec(any::<u8>(), 0..40))),
    ) {
        let mut server = Server::new();
        for (procedure, args, room, nfs) in calls {
            server.budget = ReplyBudget {
                message_bytes_max: room,
                direct_bytes_max: (room % 2 == 0).then_some(room),
            };
            let program = if nfs { NFS } else { MOUNT };
            let head = server.message(program, 3, procedure, |_| {}).head;
            let args_at = head.len();
            let head = [&head[..], &args].concat();
            let pieces = bulk.iter().map(|(at, data)| Piece {
                at: (args_at + at).min(head.len()),
                data: data.clone().into(),
            });
            let message = Rope { pieces: pieces.collect(), head: head.into() };
            let reply = server.exchange(message.clone());
            prop_assert_eq!(&reply.head[..4], &message.head[..4]);
            prop_assert!(reply.head.len() >= ACCEPTED_BYTES);
            // What was carried out fits; what did not fit is a failure without attributes.
            prop_assert!(reply.head.len() <= room.max(48), "{} of {}", reply.head.len(), room);
            prop_assert_eq!(server.lane.in_flight(), 0);
            let status: [u8; 4] = reply.head[20..24].try_into().unwrap();
            prop_assert!([0, 3, 4].contains(&u32::from_be_bytes(status)));
            if nfs && u32::from_be_bytes(status) == 0 && procedure > 0 {
                let code: [u8; 4] = reply.head[24..28].try_into().unwrap();
                let legal = [0, 1, 2, 5, 6, 13, 17, 18, 19, 20, 21, 22, 27, 28, 30, 31, 63, 66, 69, 70, 71];
                let code = u32::from_be_bytes(code);
                prop_assert!(legal.contains(&code) || (10001..=10008).contains(&code));
            }
        }
        prop_assert_eq!(server.shared.metrics.panics.get(), 0);
    }
}
