//! READ, WRITE and COMMIT.

use std::io::{Seek, SeekFrom, Write};

use backends::{
    ErrorKind, Operation, Outcome,
    attr::Changes,
    local::{IoMode, LocalBackend},
    op::{CreateHow, Stability},
};
use bytes::Bytes;

use crate::lane::{TestLane, Way, pattern, settings, ways};

#[test]
fn what_is_written_is_read() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        let data = pattern(1, 300_000);
        lane.write(file, 0, &data);
        let (read, end) = lane.read(file, 0, 300_000);
        assert!(read == data, "{way:?}");
        assert!(end);
        let by_page = matches!(way.io_mode, IoMode::Buffered);
        assert!(
            lane.by_page == usize::from(by_page) || way.io_mode == IoMode::DontCache,
            "{way:?}"
        );
        let (read, end) = lane.read(file, 1, 299_998);
        assert!(read == data[1..299_999], "{way:?}");
        assert!(!end);
        assert_eq!(lane.commit(file).unwrap(), lane.commit(file).unwrap());
        assert!(std::fs::read(root.path().join("f")).unwrap() == data, "{way:?}");
    }
}

#[test]
fn any_offset_and_length_keeps_every_byte() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        let mut model = Vec::new();
        let mut seed = 7u64;
        for step in 0..120u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            let offset = (seed >> 33) % 70_000;
            let len = 1 + usize::try_from((seed >> 13) % 30_000).unwrap();
            let data = pattern(step, len);
            lane.write(file, offset, &data);
            let offset = usize::try_from(offset).unwrap();
            if model.len() < offset + len {
                model.resize(offset + len, 0);
            }
            model[offset..offset + len].copy_from_slice(&data);
            let at = usize::try_from((seed >> 7) % 80_000).unwrap();
            let (read, end) = lane.read(file, at as u64, 10_000);
            let until = (at + 10_000).min(model.len());
            let wanted = model.get(at..until).unwrap_or_default();
            assert!(read == wanted, "{way:?} step {step}: {at} +{}", read.len());
            assert_eq!(end, at + 10_000 >= model.len(), "{way:?} step {step}");
        }
        assert!(std::fs::read(root.path().join("f")).unwrap() == model, "{way:?}");
    }
}

#[test]
fn memory_out_of_step_with_the_file_keeps_every_byte() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        let data = pattern(3, 50_001);
        let who = lane.who.clone();
        // Heap memory, at an odd address: neither registered nor aligned.
        let bytes = Bytes::from(data.clone()).slice(1..);
        lane.write_as(&who, file, 4096, bytes, Stability::Unstable).unwrap();
        let (read, _) = lane.read(file, 4096, 60_000);
        assert!(read == data[1..], "{way:?}");
        assert!(lane.read(file, 0, 4096).0.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn every_stability_is_taken() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        let who = lane.who.clone();
        for (index, stability) in
            [Stability::Unstable, Stability::DataSync, Stability::FileSync].into_iter().enumerate()
        {
            let data = Bytes::from(pattern(index as u64, 5000));
            let offset = 5000 * index as u64;
            let (count, verifier) =
                lane.write_as(&who, file, offset, data.clone(), stability).unwrap();
            assert_eq!(count, 5000);
            assert_eq!(verifier, lane.commit(file).unwrap());
            assert_eq!(lane.read(file, offset, 5000).0, data);
        }
    }
}

#[test]
fn holes_and_far_offsets() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        let far = (5u64 << 30) + 123;
        lane.write(file, far, b"far away");
        let (read, end) = lane.read(file, far, 100);
        assert_eq!(&read[..], b"far away");
        assert!(end);
        let (hole, end) = lane.read(file, 1 << 20, 8192);
        assert!(hole.len() == 8192 && hole.iter().all(|byte| *byte == 0) && !end);
        let (nothing, end) = lane.read(file, far + 8, 10);
        assert!(nothing.is_empty() && end);
        let (nothing, end) = lane.read(file, u64::MAX, 10);
        assert!(nothing.is_empty() && end);
        let who = lane.who.clone();
        for offset in [i64::MAX as u64, u64::MAX] {
            let refused =
                lane.write_as(&who, file, offset, Bytes::from_static(b"x"), Stability::Unstable);
            assert_eq!(refused.unwrap_err(), ErrorKind::TooLarge);
        }
        let nothing = lane.write_as(&who, file, 3, Bytes::new(), Stability::FileSync).unwrap();
        assert_eq!(nothing.0, 0);
        assert_eq!(lane.attributes(file).size, far + 8);
    }
}

#[test]
fn a_read_of_no_bytes_knows_the_end() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o644);
    assert_eq!(lane.read(file, 0, 100), (Bytes::new(), true));
    lane.write(file, 0, b"abc");
    assert_eq!(lane.read(file, 0, 0), (Bytes::new(), false));
    assert_eq!(lane.read(file, 3, 0), (Bytes::new(), true));
    assert_eq!(lane.read(file, 0, 3), (Bytes::from_static(b"abc"), true));
    assert_eq!(lane.read(file, 0, 2), (Bytes::from_static(b"ab"), false));
}

#[test]
fn directories_and_links_have_no_data() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let directory = lane.make_directory(b"d", 0o755);
    let who = lane.who.clone();
    assert_eq!(lane.read_as(&who, directory, 0, 10).unwrap_err(), ErrorKind::IsDirectory);
    let name = Bytes::from_static(b"l");
    let target = Bytes::from_static(b"/etc/passwd");
    let changes = Changes::default();
    let made = lane.run(Operation::MakeSymlink { directory: lane.root(), name, target, changes });
    let Ok(Outcome::Created { object, .. }) = made.result else { panic!("{made:?}") };
    assert_eq!(lane.read_as(&who, object, 0, 10).unwrap_err(), ErrorKind::Invalid);
    let refused = lane.write_as(&who, object, 0, Bytes::from_static(b"x"), Stability::Unstable);
    assert_eq!(refused.unwrap_err(), ErrorKind::Invalid);
}

#[test]
fn a_failed_sync_changes_the_verifier() {
    for ring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), Way { ring, io_mode: IoMode::Buffered });
        let file = lane.create(b"f", 0o644);
        let written = lane.write(file, 0, b"unstable");
        lane.backend.inject_sync_failure();
        assert_eq!(lane.commit(file).unwrap_err(), ErrorKind::Io);
        let after = lane.commit(file).unwrap();
        assert_ne!(written, after, "clients must learn that data may be lost");
        assert_eq!(lane.write(file, 0, b"again"), after);
        assert_eq!(lane.commit(file).unwrap(), after);
    }
}

#[test]
fn a_restart_changes_the_verifier() {
    let root = tempfile::tempdir().unwrap();
    let first = TestLane::buffered(root.path());
    let second = TestLane::buffered(root.path());
    assert_ne!(first.backend.verifier().sample(), second.backend.verifier().sample());
}

#[test]
fn many_commits_are_answered_together() {
    for ring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), Way { ring, io_mode: IoMode::Buffered });
        let file = lane.create(b"f", 0o644);
        lane.write(file, 0, &pattern(1, 100_000));
        lane.commit(file).unwrap();
        lane.write(file, 0, &pattern(2, 100_000));
        let who = lane.who.clone();
        let before = lane.backend.commit_syncs();
        let commit = Operation::Commit { object: file, offset: u64::MAX, count: u32::MAX };
        let mut tokens = vec![lane.submit(&who, commit)];
        for _ in 0..50 {
            let commit = Operation::Commit { object: file, offset: 7, count: 9 };
            tokens.push(lane.submit(&who, commit));
        }
        // The first sync is under way with one COMMIT; the other fifty share the second.
        for token in tokens {
            lane.wait(token).result.unwrap();
        }
        assert_eq!(lane.backend.commit_syncs() - before, 2);
    }
}

#[test]
fn stable_writes_share_their_syncs() {
    for ring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), Way { ring, io_mode: IoMode::Buffered });
        let file = lane.create(b"f", 0o644);
        lane.write(file, 0, &pattern(1, 64 << 10));
        lane.commit(file).unwrap();
        let who = lane.who.clone();
        let before = lane.backend.commit_syncs();
        let data = pattern(3, 64 * 1000);
        let mut tokens = Vec::new();
        for (index, part) in data.chunks(1000).enumerate() {
            let data = Bytes::copy_from_slice(part);
            let offset = 1000 * index as u64;
            let stability = [Stability::DataSync, Stability::FileSync][index % 2];
            let write = Operation::Write { object: file, offset, data, stability };
            tokens.push((stability, lane.submit(&who, write)));
        }
        for (asked, token) in tokens {
            let Ok(Outcome::Written { count, stability, .. }) = lane.wait(token).result else {
                panic!("every write succeeds")
            };
            assert_eq!((count, stability), (1000, asked));
        }
        let syncs = lane.backend.commit_syncs() - before;
        assert!((1..64).contains(&syncs), "{syncs} syncs for 64 writes");
        assert!(lane.read(file, 0, 64_000).0 == data);
    }
}

#[test]
fn a_stable_write_whose_sync_fails_is_not_acknowledged() {
    for ring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), Way { ring, io_mode: IoMode::Buffered });
        let file = lane.create(b"f", 0o644);
        let before = lane.write(file, 0, b"unstable");
        let who = lane.who.clone();
        lane.backend.inject_sync_failure();
        let data = Bytes::from_static(b"stable");
        let failed = lane.write_as(&who, file, 8, data.clone(), Stability::FileSync);
        assert_eq!(failed.unwrap_err(), ErrorKind::Io);
        assert_ne!(lane.commit(file).unwrap(), before, "the unstable write may be lost too");
        lane.write_as(&who, file, 8, data, Stability::FileSync).unwrap();
    }
}

#[test]
fn many_writes_and_reads_at_once() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        let who = lane.who.clone();
        let data = pattern(9, 100 * 3000);
        let mut tokens = Vec::new();
        for (index, part) in data.chunks(3000).enumerate() {
            let data = Bytes::copy_from_slice(part);
            let offset = 3000 * index as u64;
            let stability = Stability::Unstable;
            let write = Operation::Write { object: file, offset, data, stability };
            tokens.push(lane.submit(&who, write));
        }
        for token in tokens {
            lane.wait(token).result.unwrap();
        }
        let (read, end) = lane.read(file, 0, 300_000);
        assert!(read == data && end, "{way:?}");
    }
}

#[test]
fn bug_a_commit_survives_the_lane_that_syncs_for_it() {
    for ring in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(settings(root.path())).unwrap();
        let mut leader = TestLane::on(backend.clone(), ring);
        let mut follower = TestLane::on(backend, ring);
        let who = leader.who.clone();
        let file = leader.create(b"f", 0o644);
        let before = leader.write(file, 0, b"data");
        let commit = || Operation::Commit { object: file, offset: 0, count: 0 };
        leader.submit(&who, commit());
        let token = follower.submit(&who, commit());
        drop(leader);
        let Ok(Outcome::Committed { verifier }) = follower.wait(token).result else {
            panic!("the COMMIT of the other lane is answered");
        };
        // What came of the first sync is not known.
        assert_ne!(verifier, before);
    }
}

#[test]
fn an_unlinked_file_works_while_it_is_open() {
    let root = tempfile::tempdir().unwrap();
    let mut lane = TestLane::buffered(root.path());
    let file = lane.create(b"f", 0o644);
    lane.write(file, 0, b"still here");
    std::fs::remove_file(root.path().join("f")).unwrap();
    assert_eq!(&lane.read(file, 0, 100).0[..], b"still here");
    lane.write(file, 10, b"!");
    assert_eq!(lane.attributes(file).links, 0);
}

#[test]
fn short_files_shrink_under_readers() {
    for way in ways() {
        let root = tempfile::tempdir().unwrap();
        let mut lane = TestLane::new(root.path(), way);
        let file = lane.create(b"f", 0o644);
        lane.write(file, 0, &pattern(1, 20_000));
        lane.read(file, 0, 20_000);
        let outside = std::fs::OpenOptions::new().write(true).open(root.path().join("f")).unwrap();
        outside.set_len(5_000).unwrap();
        let (read, end) = lane.read(file, 4_000, 16_000);
        assert!(read.len() == 1_000 && end, "{way:?}");
        let mut outside = outside;
        outside.seek(SeekFrom::Start(5_000)).unwrap();
        outside.write_all(b"seen").unwrap();
        assert_eq!(&lane.read(file, 5_000, 100).0[..], b"seen");
    }
}

#[test]
fn direct_mode_works_where_there_is_no_direct_io() {
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else { return };
    for ring in [true, false] {
        let mut lane = TestLane::new(root.path(), Way { ring, io_mode: IoMode::Direct });
        let who = lane.who.clone();
        let how = CreateHow::Unchecked(Changes { mode: Some(0o600), ..Changes::default() });
        let directory = lane.root();
        let file = lane.try_create(&who, directory, b"f", how).unwrap();
        let data = pattern(5, 70_000);
        lane.write(file, 100, &data);
        assert!(lane.read(file, 100, 70_000).0 == data);
        lane.commit(file).unwrap();
    }
}
