//! What the fuzzer of the gateway begins with: real messages, made here so that they stay real when a format
//! changes. Targets that are not named have their seeds in the corpus only.

use rpc_rdma::xdr::Writer;

use super::server::{self, MOUNTING, NARROW, RAW};

const LARGE: [u8; 2] = [0xff, 0xff];
const NFS: u32 = 100_003;
const PORTMAP: u32 = 100_000;

fn encode(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    write(&mut writer);
    writer.finish().flatten()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The handle of an export's root.
fn root(export_id: u32) -> Vec<u8> {
    let export = server::export(export_id, "/any", server::memory());
    server::key().seal(export_id, &export.backend.root()).as_bytes().to_vec()
}

fn handle(w: &mut Writer) {
    w.opaque(&root(1));
}

/// `sattr3` with mode, owner, size and both times.
const CHANGES: &[u32] = &[1, 0o640, 1, 1000, 1, 1000, 1, 0, 4096, 2, 1_000, 5, 1];

/// A piece of arguments.
enum Part {
    /// Handle of the root.
    Root,
    /// A name, a target, or data.
    Text(&'static [u8]),
    Words(&'static [u32]),
}

/// Procedure and arguments, a valid call of each.
fn calls() -> Vec<(u8, Vec<u8>)> {
    use Part::{Root, Text, Words};
    let changes = || Words(CHANGES);
    let calls: [(u8, Vec<Part>); 23] = [
        (0, vec![]),
        (1, vec![Root]),
        // The guard: a time.
        (2, vec![Root, changes(), Words(&[1, 1_000_000, 0])]),
        (3, vec![Root, Text(b"name")]),
        (4, vec![Root, Words(&[0x3f])]),
        (5, vec![Root]),
        (6, vec![Root, Words(&[0, 1, 8192])]),
        (7, vec![Root, Words(&[0, 4096, 7, 0]), Text(b"payload")]),
        (8, vec![Root, Text(b"file"), Words(&[1]), changes()]),
        (8, vec![Root, Text(b"exclusive"), Words(&[2, 0x0123_4567, 0x89ab_cdef])]),
        (9, vec![Root, Text(b"directory"), changes()]),
        (10, vec![Root, Text(b"link"), changes(), Text(b"../target")]),
        (11, vec![Root, Text(b"device"), Words(&[4]), changes(), Words(&[1, 3])]),
        (12, vec![Root, Text(b"file")]),
        (13, vec![Root, Text(b"directory")]),
        (14, vec![Root, Text(b"file"), Root, Text(b"renamed")]),
        (15, vec![Root, Root, Text(b"second")]),
        (16, vec![Root, Words(&[0, 0, 0, 0, 4096])]),
        (17, vec![Root, Words(&[0, 0, 0, 0, 1024, 8192])]),
        (18, vec![Root]),
        (19, vec![Root]),
        (20, vec![Root]),
        (21, vec![Root, Words(&[0, 0, 0])]),
    ];
    let args = |parts: Vec<Part>| {
        encode(|w| {
            for part in parts {
                match part {
                    Root => handle(w),
                    Text(text) => w.opaque(text),
                    Words(words) => words.iter().for_each(|&word| w.u32(word)),
                }
            }
        })
    };
    calls.map(|(procedure, parts)| (procedure, args(parts))).into()
}

fn item(what: u8, body: &[u8]) -> Vec<u8> {
    [&[what][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn message(program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let header = [3, 0, 2, program, version, procedure, 1, 24, 0, 0, 1000, 1000, 1, 77, 0, 0];
    [&words(&header), args].concat()
}

fn conversations() -> Vec<Vec<u8>> {
    let calls = calls();
    let all: Vec<u8> = calls.iter().flat_map(|(procedure, args)| item(*procedure, args)).collect();
    let narrow = calls.iter().map(|(procedure, args)| item(procedure | NARROW, args));
    let path = |text: &[u8]| encode(|w| w.opaque(text));
    let mounts = [
        (1, path(b"/data")),
        (1, path(b"/data/a/b")),
        (2, vec![]),
        (3, path(b"/data")),
        (4, vec![]),
        (5, vec![]),
    ];
    let mounts = mounts.iter();
    let raw = item(RAW, &message(NFS, 3, 1, &encode(handle)));
    let reply = item(RAW, &words(&[1, 1, 0, 0, 0, 0]));
    let version = item(RAW, &message(NFS, 4, 1, &[]));
    vec![
        all,
        narrow.flatten().collect(),
        mounts.clone().flat_map(|(number, args)| item(number | MOUNTING, args)).collect(),
        mounts.flat_map(|(number, args)| item(number | MOUNTING | NARROW, args)).collect(),
        [raw.clone(), raw, reply, version].concat(),
        item(1, &encode(|w| w.opaque(&root(2)))),
    ]
}

fn portmap_messages() -> Vec<Vec<u8>> {
    let question = encode(|w| {
        w.u32(NFS);
        w.u32(3);
        w.opaque(b"rdma");
        w.opaque(b"0.0.0.0.8.1");
        w.opaque(b"root");
    });
    let asked = [
        (2, 0, vec![]),
        (2, 3, words(&[NFS, 3, 6, 0])),
        (2, 4, vec![]),
        (3, 3, question.clone()),
        (4, 9, question),
        (4, 4, vec![]),
        (3, 1, words(&[NFS, 3])),
    ];
    let messages = asked.iter().enumerate().map(|(how, (version, procedure, args))| {
        [&[how as u8][..], &message(PORTMAP, *version, *procedure, args)].concat()
    });
    messages.chain([b"\x0010.0.0.1.8.1".to_vec(), b"::1.8.1".to_vec()]).collect()
}

fn connections() -> Vec<Vec<u8>> {
    // Header of RPC-over-RDMA with these lists, an inline call behind it, padded to a step of 16 bytes.
    let call = |lists: &[u32]| {
        let header = [&[3, 1, 4, 0][..], lists].concat();
        let mut body = words(&header);
        body.extend(message(NFS, 3, 1, &encode(handle)));
        body.resize(body.len().next_multiple_of(16), 0);
        [&[(body.len() >> 4) as u8, 1][..], &body].concat()
    };
    let established = vec![0, 0];
    let served = |lists: &[u32], answer: [u8; 2]| {
        let steps = [64, 0, 128, 0, 64, 0, 128, 0, 64, 0];
        [&established[..], &call(lists), &[128, 0, 64, 0], &answer, &steps].concat()
    };
    let write_list = [0, 1, 1, 7, 4096, 0, 0x1000, 0, 0];
    let reply_chunk = [0, 0, 1, 2, 8, 4096, 0, 0x1000, 9, 4096, 0, 0x9000];
    let read_list = [1, 48, 5, 100, 0, 0x4000, 1, 48, 6, 28, 0, 0x8000, 0, 0, 0];
    vec![
        served(&[0, 0, 0], [97, 8]),
        served(&write_list, [99, 100]),
        served(&reply_chunk, [120, 255]),
        served(&read_list, [97, 9]),
        served(&[0, 0, 0], [96, 1]),
        [established.clone(), call(&[0, 0, 0]).repeat(6), vec![200, 0, 97, 8, 97, 8]].concat(),
        [established.clone(), call(&read_list), vec![128, 0, 192, 0]].concat(),
        [established, call(&[0, 0, 0]), vec![97, 4, 205, 0, 160, 255]].concat(),
    ]
}

fn config_texts() -> Vec<Vec<u8>> {
    let texts = [
        gateway::cli::run::EXAMPLE_CONFIG,
        "[[export]]\npath = \"/m\"\nid = 9\nbackend = \"memory\"\n",
        "[server]\nlanes = 2\ncpus = [0, 1]\nspin = \"50us\"\npayload_memory = \"64MiB\"\n",
        "[tcp]\nlisten = [\"[::]:2049\", \"10.0.0.1\"]\n[rdma]\nenabled = \"yess\"\ncredits = 0\n",
        "[portmap]\nmode = \"serve\"\n[log]\nlevel = \"info,gateway=debug\"\nformat = \"json\"\n",
        "[export]\npath = 3\n",
        "[[export]]\nclients = [\"10.0.0.0/8 ro\", \"host.example\", \"*\"]\nsquash = 'all'\n",
        "server = 3\nlimits = { idle_timeout = '1h' }\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn client_rules() -> Vec<Vec<u8>> {
    let texts = [
        "*",
        "private ro",
        "10.0.0.0/8",
        "10.1.0.0/8 rw",
        "fe80::/10",
        "::ffff:10.0.0.0/104 ro",
        "host.example.net rw",
        "192.168.0.1/33",
        "a..b",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// What a target begins with.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    let plain = || calls().into_iter().filter(|(procedure, _)| *procedure != 0);
    match target {
        "rdma_connection" => connections(),
        "nfs3_arguments" => {
            plain().map(|(procedure, args)| [&[procedure][..], &LARGE, &args].concat()).collect()
        }
        "nfs3_attributes" => vec![
            words(CHANGES),
            words(&[0, 0, 0, 0, 0, 0]),
            words(&[1, 0o7777, 0, 0, 1, u32::MAX, 0, 2, 5, 1_000_000_000, 2, 0, 999_999_999]),
        ],
        "conversation" => conversations(),
        "file_handle" => vec![root(1), root(2)],
        "bulk_offset" => {
            plain().map(|(number, args)| message(NFS, 3, number.into(), &args)).collect()
        }
        "portmap_message" => portmap_messages(),
        "config_text" => config_texts(),
        "client_rule" => client_rules(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused at the first look would teach the fuzzer nothing.
    #[test]
    fn arguments_of_every_procedure_are_accepted() {
        for (procedure, args) in calls().into_iter().filter(|(procedure, _)| *procedure != 0) {
            let rope = rpc_rdma::xdr::Rope::inline(args);
            let reader = rpc_rdma::xdr::Reader::new(&rope);
            let decoded = gateway::nfs3::Request::decode(procedure.into(), reader);
            assert!(matches!(decoded, Ok(Some(_))), "{procedure}: {decoded:?}");
        }
    }
}
