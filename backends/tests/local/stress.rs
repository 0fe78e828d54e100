//! Many threads, each with a lane of its own, over one backend.

use backends::{
    Operation,
    attr::Changes,
    local::{IoMode, LocalBackend, LocalSettings},
    op::{CreateHow, Stability},
};
use bytes::Bytes;

use crate::lane::{TestLane, pattern, settings};

fn hammer(io_mode: IoMode, open_files_max: usize) {
    let root = tempfile::tempdir().unwrap();
    let settings = LocalSettings { io_mode, open_files_max, ..settings(root.path()) };
    let backend = LocalBackend::open(settings).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let backend = backend.clone();
            scope.spawn(move || work(&mut TestLane::on(backend, thread % 2 == 0), thread));
        }
    });
    let shared = std::fs::read(root.path().join("shared")).unwrap();
    for thread in 0..8usize {
        let part = &shared[thread * 10_000..(thread + 1) * 10_000];
        assert!(part == pattern(thread as u64, 10_000), "part {thread} of the shared file");
    }
}

fn work(lane: &mut TestLane, thread: u64) {
    let (who, top) = (lane.who.clone(), lane.root());
    let open = CreateHow::Unchecked(Changes { mode: Some(0o644), ..Changes::default() });
    let shared = lane.try_create(&who, top, b"shared", open).unwrap();
    for round in 0..40u64 {
        let name = format!("t{thread}-{round}");
        let file = lane.try_create(&who, top, name.as_bytes(), open).unwrap();
        let data = pattern(thread * 1000 + round, 9_000);
        lane.write(file, round * 17, &data);
        assert!(lane.read(file, round * 17, 9_000).0 == data);
        // Parts of one file that touch each other's pages.
        lane.write(shared, thread * 10_000, &pattern(thread, 10_000));
        let read = lane.read_growing(shared, thread * 10_000, 10_000);
        assert!(read == pattern(thread, 10_000), "thread {thread} round {round}");
        lane.commit(shared).unwrap();
        if round % 2 == 0 {
            let name = Bytes::from(name);
            lane.run(Operation::Remove { directory: top, name }).result.unwrap();
        } else {
            let part = Bytes::from_static(b"sync");
            lane.write_as(&who, file, 0, part, Stability::FileSync).unwrap();
        }
        let listed = lane.page(top, 0, true, 2_000).unwrap();
        assert!(!listed.0.is_empty());
    }
}

#[test]
fn eight_threads_buffered() {
    hammer(IoMode::Buffered, 64);
}

#[test]
fn eight_threads_direct() {
    hammer(IoMode::Direct, 1024);
}
