//! A file system of the `nfsserve` crate, exported by the whole gateway over both transports: from a client's
//! bytes to the file system and back.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aqueduct_tests::demo::{DemoFileSystem, PANIC_NAME};
use backends::nfsserve::{Limits, NfsServeBackend};
use bench::{
    nfs3::{FileHandle, Nfs3Client, Nfs3Error, SetAttributes, Stable},
    soft::{Server, Transport},
    target::Connection,
};
use gateway::exports::{ClientRules, Export, ExportSettings, ExportTable, Exports, Rights, Squash};
use rpc_rdma::rpc::{AuthSys, Credential};
use tokio::runtime::{Builder, Runtime};

const EXPORT: &str = "/demo";

type Client = Nfs3Client<Connection>;

fn exports(runtime: &Runtime) -> Arc<Exports> {
    let file_system = DemoFileSystem::default();
    let backend = NfsServeBackend::new(file_system, runtime.handle().clone(), Limits::default());
    let settings = ExportSettings {
        id: 1,
        path: EXPORT.to_owned(),
        origin: "the demo".to_owned(),
        read_only: false,
        squash: Squash::None,
        anonymous_uid: 65534,
        anonymous_gid: 65534,
        clients: ClientRules::everyone(Rights::ReadWrite),
        require_reserved_port: false,
    };
    let export = Arc::new(Export::new(settings, backend));
    Exports::new(ExportTable::new(vec![export]).expect("one export"))
}

fn credential() -> Credential {
    AuthSys::new(0, 0, &[]).map_or(Credential::None, Credential::Sys)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn names(client: &mut Client, directory: &FileHandle) -> Vec<Vec<u8>> {
    let (mut cookie, mut verifier, mut names) = (0, [0; 8], Vec::new());
    loop {
        let listing = client.readdirplus(directory, cookie, verifier, 4096).unwrap();
        verifier = listing.verifier;
        for entry in listing.entries {
            cookie = entry.cookie;
            names.push(entry.name);
        }
        if listing.eof {
            names.sort();
            return names;
        }
    }
}

/// The status that the server refused with.
fn status<T: std::fmt::Debug>(answer: Result<T, Nfs3Error>) -> String {
    match answer {
        Err(Nfs3Error::Failure(failure)) => failure.to_string(),
        other => panic!("{other:?}"),
    }
}

fn data_of_every_size(client: &mut Client, directory: &FileHandle) {
    for len in [0, 1, 4095, 4097, 70_000, 1 << 20] {
        let file = client.create(directory, format!("{len}").as_bytes()).unwrap();
        let data = pattern(len);
        let written = client.write(&file, 0, Stable::FileSync, data.clone()).unwrap();
        assert_eq!((written.count as usize, written.committed), (len, 2), "FILE_SYNC");
        assert_eq!(client.getattr(&file).unwrap().size, len as u64);
        let read = client.read(&file, 0, 1 << 20).unwrap();
        assert!(read.eof && read.data[..] == data[..], "{len}");
        let rest = client.read(&file, len as u64 / 2, 1 << 20).unwrap();
        assert!(rest.data[..] == data[len / 2..], "{len}");
        client.commit(&file).unwrap();
    }
    assert!(names(client, directory).contains(&b"70000".to_vec()));
}

fn names_and_attributes(client: &mut Client, root: &FileHandle) {
    let directory = client.mkdir(root, b"many").unwrap();
    let mut expected = vec![b".".to_vec(), b"..".to_vec()];
    for number in 0..200 {
        let name = format!("file-{number:03}").into_bytes();
        client.create(&directory, &name).unwrap();
        expected.push(name);
    }
    assert_eq!(names(client, &directory), expected);
    let (file, _) = client.lookup(&directory, b"file-007").unwrap();
    let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    client.setattr(&file, &mode).unwrap();
    assert_eq!(client.getattr(&file).unwrap().mode & 0o777, 0o600);
    client.remove(&directory, b"file-007").unwrap();
    let gone = client.lookup(&directory, b"file-007").map(|_| ());
    assert_eq!(status(gone), status(client.remove(root, b"never there")));
}

#[test]
fn an_nfsserve_file_system_is_served_over_both_transports() {
    for transport in [Transport::Tcp, Transport::Soft] {
        let runtime = Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let server = Server::over(transport, 2, Duration::ZERO, exports(&runtime)).unwrap();
        let root = server.target.root(EXPORT, None, &credential()).unwrap();
        let connect = || {
            let connection = server.target.connect(4).unwrap();
            Nfs3Client::new(connection, credential())
        };
        let (mut first, mut second) = (connect(), connect());
        first.null().unwrap();
        let directory = first.mkdir(&root, b"data").unwrap();
        data_of_every_size(&mut first, &directory);
        names_and_attributes(&mut second, &root);
        // What one connection wrote, another (perhaps of another lane) reads.
        let (file, _) = second.lookup(&directory, b"4097").unwrap();
        assert!(second.read(&file, 0, 8192).unwrap().data[..] == pattern(4097)[..]);
        // A bug in the file system fails its call, soon, and nothing else.
        let start = Instant::now();
        status(first.create(&root, PANIC_NAME));
        assert!(start.elapsed() < Duration::from_secs(20));
        first.create(&root, b"after").unwrap();
        drop((first, second));
        server.stop().unwrap();
    }
}
