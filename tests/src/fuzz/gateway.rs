//! What a client can say to the gateway: arguments, whole conversations, handles, and what is in a
//! configuration file.

use std::sync::{Arc, OnceLock};

use backends::{Identity, Operation, Request as BackendRequest};
use buffers::pool::SLACK_BYTES;
use bytes::Bytes;
use gateway::{
    config::{self, Machine},
    dispatch::bulk,
    exports::{HandleKey, clients::Network},
    nfs3::{self, Done, Plan, Reply, Scope},
    portmap::{Netid, Registrations, answer, universal},
};
use rpc_rdma::{
    rpc::reply::ACCEPTED_BYTES,
    service::ReplyBudget,
    xdr::{Reader, Rope, Writer},
};

use super::server::{self, Server};

/// The first byte is the procedure, the next two the room for the reply.
pub(super) fn nfs3_arguments(data: &[u8]) {
    let Some((&[procedure, high, low], args)) = data.split_first_chunk() else { return };
    let args = Rope::inline(Bytes::copy_from_slice(args));
    let Ok(Some(mut request)) = nfs3::Request::decode(procedure.into(), Reader::new(&args)) else {
        return;
    };
    let room = usize::from(u16::from_be_bytes([high, low]));
    let bytes_max = request.result_bytes_max();
    // Dispatch refuses such a call before anything happens.
    if room < ACCEPTED_BYTES + bytes_max {
        return;
    }
    let memory = server::memory();
    let export = server::export(1, "/data", memory.clone());
    let scope = Scope {
        object: export.backend.root(),
        second: Some(export.backend.root()),
        export,
        identity: Arc::new(Identity::new(1000, 1000)),
        read_only: false,
        budget: ReplyBudget { message_bytes_max: room, direct_bytes_max: None },
    };
    let operation = match request.plan(&scope) {
        Ok(Plan::Ask(operation)) => Ok(operation),
        Ok(Plan::Read { offset, count }) => {
            let into = server::pool().take(count as usize + SLACK_BYTES);
            let into = into.expect("a READ is never larger than the largest buffer");
            Ok(Operation::Read { object: scope.object, offset, count, into, pages: None })
        }
        Err(status) => Err(status),
    };
    let identity = scope.identity.clone();
    let done = match operation {
        Ok(operation) => memory.execute(BackendRequest { token: 1, identity, operation }).into(),
        Err(status) => Done::failed(status),
    };
    let failed = done.result.is_err();
    let mut writer = Writer::default();
    let mut reply = Reply { writer: &mut writer, scope: &scope, key: &server::key() };
    request.results(done, &mut reply);
    let results = writer.finish();
    assert!(!failed || results.head.len() <= bytes_max, "a failure is larger than was said");
    assert!(ACCEPTED_BYTES + results.len() <= room, "{} bytes for {room}", results.len());
}

/// Encoding what was decoded, and the checks between.
pub(super) fn nfs3_attributes(data: &[u8]) {
    let message = Rope::inline(Bytes::copy_from_slice(data));
    let mut reader = Reader::new(&message);
    while let Ok(changes) = nfs3::attr::RawChanges::decode(&mut reader) {
        let Ok(checked) = changes.check(1 << 40) else { continue };
        assert!(checked.size.is_none_or(|size| size <= 1 << 40));
        assert!(checked.mode.is_none_or(|mode| mode <= 0o7777));
        for time in [checked.accessed, checked.modified] {
            if let backends::attr::SetTime::To(time) = time {
                let mut writer = Writer::default();
                nfs3::attr::encode_time(&mut writer, time);
                let words = writer.finish();
                let again = nfs3::attr::RawTime::decode(&mut Reader::new(&words)).unwrap().check();
                assert_eq!(again, Ok(time));
            }
        }
    }
}

/// A conversation with a gateway of one lane.
pub(super) fn conversation(data: &[u8]) {
    Server::default().converse(data);
}

/// What is accepted is what would be sealed.
pub(super) fn file_handle(data: &[u8]) {
    let key: HandleKey = server::key();
    if let Ok((export, object)) = key.open(data) {
        assert_eq!(key.seal(export, &object).as_bytes(), data);
    }
}

/// The offset is within what was looked at, and more bytes do not change it.
pub(super) fn bulk_offset(data: &[u8]) {
    let found = bulk::bulk_offset(data);
    let Some(at) = found else { return };
    assert!(at <= data.len());
    assert_eq!(bulk::bulk_offset(&data[..at]), found);
    let longer = [data, &[0xff; 64]].concat();
    assert_eq!(bulk::bulk_offset(&longer), found);
}

/// The first byte says how the message came.
pub(super) fn portmap_message(data: &[u8]) {
    static KNOWN: OnceLock<Registrations> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let address = |text: &str| [text.parse().expect("an address")];
        Registrations::new(&address("[::]:2049"), &address("[::]:20049"))
            .with_portmapper(address("0.0.0.0:111")[0])
    });
    let Some((&how, message)) = data.split_first() else { return };
    let netids = [Netid::Tcp, Netid::Tcp6, Netid::Udp, Netid::Udp6];
    let netid = netids[usize::from(how) % netids.len()];
    let local = (how & 4 != 0).then(|| [10, 0, 0, how].into());
    let reply = answer::answer(message.to_vec(), answer::Via { netid, local }, known);
    if let Some(reply) = reply {
        let reply = reply.flatten();
        assert_eq!(reply[..4], message[..4], "the xid comes back");
        assert!(reply.len() < 4096);
        if matches!(netid, Netid::Udp | Netid::Udp6) {
            assert!(reply.len() <= message.len() + 64, "no amplifier");
        }
    }
    if let Some(address) = universal::parse(message) {
        assert_eq!(universal::parse(universal::format(address).as_bytes()), Some(address));
    }
}

fn machine() -> Machine {
    Machine {
        cpus: (0..8).collect(),
        memory_bytes: 16 << 30,
        rdma_devices: vec!["mlx5_0".to_owned()],
        state_dir: None,
    }
}

/// Every text is a configuration or a list of what is wrong with it and how to mend it.
pub(super) fn config_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match config::from_text("fuzz.toml", text, &machine()) {
        Ok(config) => assert!(!config.exports.is_empty()),
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in &problems.0 {
                assert!(!problem.problem.is_empty() && !problem.fix.is_empty(), "{problem}");
                assert!(!problem.to_string().contains('\u{1b}'), "a terminal would obey it");
            }
        }
    }
}

/// Networks come back as they were written; rules are accepted or explained.
pub(super) fn client_rule(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(network) = text.parse::<Network>() {
        assert_eq!(network.to_string().parse::<Network>(), Ok(network));
    }
    if text.contains(['\'', '\n', '\r']) {
        return;
    }
    let export = format!("[[export]]\npath='/m'\nbackend='memory'\nclients=['{text}']\n");
    match config::from_text("fuzz.toml", &export, &machine()) {
        Ok(config) => assert!(config.exports[0].settings.clients.iter().len() > 0),
        Err(problems) => assert!(!problems.is_empty()),
    }
}
