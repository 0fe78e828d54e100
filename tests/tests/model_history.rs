//! Bugs that other servers have had, as far as a backend alone can have them. Each runs on the memory model.

use std::sync::Arc;

use aqueduct_tests::{lane::Lane, model::listing};
use backends::{
    Completion, ErrorKind, Identity, ObjectHandle, Operation, Outcome,
    attr::{Around, Changes},
    memory::{MemoryBackend, MemorySettings},
    op::{CreateHow, ReadDirectory, Stability, WriteVerifier},
};
use bytes::Bytes;

fn memory() -> (Arc<MemoryBackend>, Lane) {
    let memory = MemoryBackend::new(MemorySettings::default());
    let lane = Lane::attach(memory.clone());
    (memory, lane)
}

fn user(uid: u32) -> Arc<Identity> {
    Arc::new(Identity::new(uid, uid))
}

fn kind(completion: &Completion) -> Option<ErrorKind> {
    completion.result.as_ref().err().map(|error| error.kind)
}

fn create(lane: &mut Lane, uid: u32, name: &str, how: CreateHow) -> Completion {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let directory = lane.root();
    lane.call(&user(uid), Operation::Create { directory, name, how })
}

fn with_mode(mode: u32) -> Changes {
    Changes { mode: Some(mode), ..Changes::default() }
}

fn file(lane: &mut Lane, uid: u32, name: &str, mode: u32) -> ObjectHandle {
    match create(lane, uid, name, CreateHow::Guarded(with_mode(mode))).result {
        Ok(Outcome::Created { object, .. }) => object,
        other => panic!("{other:?}"),
    }
}

fn write(
    lane: &mut Lane,
    uid: u32,
    object: ObjectHandle,
    data: &'static [u8],
    stability: Stability,
) -> Completion {
    let data = Bytes::from_static(data);
    lane.call(&user(uid), Operation::Write { object, offset: 0, data, stability })
}

fn verifier(completion: &Completion) -> WriteVerifier {
    match completion.result {
        Ok(Outcome::Written { verifier, .. } | Outcome::Committed { verifier }) => verifier,
        _ => panic!("{completion:?}"),
    }
}

fn remove(lane: &mut Lane, name: &str) -> Completion {
    let name = Bytes::copy_from_slice(name.as_bytes());
    let directory = lane.root();
    lane.call(&user(0), Operation::Remove { directory, name })
}

fn mode(lane: &mut Lane, object: ObjectHandle) -> u32 {
    let found = lane.call(&user(0), Operation::GetAttributes { object });
    found.first.after.expect("attributes are known").mode
}

#[test]
fn an_exclusive_verifier_with_high_bits_is_kept() {
    let (_memory, mut lane) = memory();
    let how = CreateHow::Exclusive([0xff, 0xfe, 0xfd, 0xfc, 0x80, 0, 0xff, 0xff]);
    assert_eq!(kind(&create(&mut lane, 1, "a", how)), None);
    assert_eq!(kind(&create(&mut lane, 1, "a", how)), None);
    let other = CreateHow::Exclusive([0xff, 0xfe, 0xfd, 0xfc, 0x80, 0, 0xff, 0xfe]);
    let failed = create(&mut lane, 1, "a", other);
    assert_eq!(kind(&failed), Some(ErrorKind::Exists));
    assert!(failed.first.after.is_some(), "a failure tells of the directory too");
}

#[test]
fn an_unchecked_create_of_an_existing_file_sets_only_its_size() {
    let (_memory, mut lane) = memory();
    let object = file(&mut lane, 1, "a", 0o640);
    write(&mut lane, 1, object, b"data", Stability::FileSync);
    let changes = Changes { size: Some(0), uid: Some(7), ..with_mode(0o777) };
    let again = create(&mut lane, 1, "a", CreateHow::Unchecked(changes));
    let Ok(Outcome::Created { object: found, attributes: Some(attr) }) = again.result else {
        panic!("{again:?}");
    };
    assert_eq!((found, attr.mode, attr.uid, attr.size), (object, 0o640, 1, 0));
}

#[test]
fn the_owner_goes_on_writing_after_a_chmod_to_nothing() {
    let (_memory, mut lane) = memory();
    let object = file(&mut lane, 1, "a", 0o444);
    assert_eq!(kind(&write(&mut lane, 1, object, b"x", Stability::Unstable)), None);
    let refused = write(&mut lane, 2, object, b"x", Stability::Unstable);
    assert_eq!(kind(&refused), Some(ErrorKind::Access));
}

#[test]
fn set_id_bits_do_not_survive_a_strangers_write() {
    let (_memory, mut lane) = memory();
    let object = file(&mut lane, 1, "a", 0o6777);
    write(&mut lane, 2, object, b"x", Stability::Unstable);
    assert_eq!(mode(&mut lane, object), 0o777);
}

#[test]
fn lost_data_changes_the_verifier_and_committed_data_is_not_lost() {
    let (memory, mut lane) = memory();
    let object = file(&mut lane, 1, "a", 0o644);
    let stable = write(&mut lane, 1, object, b"kept", Stability::Unstable);
    let commit = Operation::Commit { object, offset: u64::MAX, count: u32::MAX };
    let committed = lane.call(&user(1), commit);
    assert_eq!(verifier(&stable), verifier(&committed));
    let lost = write(&mut lane, 1, object, b"lost!", Stability::Unstable);
    memory.crash();
    let after = lane.call(&user(1), Operation::Commit { object, offset: 0, count: 0 });
    assert_ne!(verifier(&lost), verifier(&after), "the client must learn to write again");
    let into = lane.buffer(100);
    let read =
        lane.call(&user(1), Operation::Read { object, offset: 0, count: 100, into, pages: None });
    let Ok(Outcome::Data { data, end_of_file }) = read.result else { panic!("{read:?}") };
    assert_eq!((&data.bytes().unwrap()[..], end_of_file), (&b"kept"[..], true));
}

#[test]
fn attributes_before_and_after_a_change_differ() {
    let (_memory, mut lane) = memory();
    let object = file(&mut lane, 1, "a", 0o644);
    let written = write(&mut lane, 1, object, b"x", Stability::Unstable);
    let Around { before: Some(before), after: Some(after) } = written.first else {
        panic!("{written:?}");
    };
    assert_eq!((before.size, after.size), (0, 1));
    assert!(before.changed < after.changed && before.modified < after.modified);
}

#[test]
fn two_writes_in_one_tick_have_two_change_times() {
    let (_memory, mut lane) = memory();
    let object = file(&mut lane, 1, "a", 0o644);
    let mut changed = || {
        let written = write(&mut lane, 1, object, b"x", Stability::Unstable);
        written.first.after.expect("attributes are known").changed
    };
    assert!(changed() < changed());
}

#[test]
fn a_number_that_is_used_again_does_not_open_another_users_file() {
    let (_memory, mut lane) = memory();
    let old = file(&mut lane, 1, "a", 0o644);
    let number = |lane: &mut Lane, object| {
        lane.call(&user(0), Operation::GetAttributes { object }).first.after.map(|a| a.file_id)
    };
    let old_number = number(&mut lane, old);
    assert_eq!(kind(&remove(&mut lane, "a")), None);
    let new = file(&mut lane, 2, "b", 0o600);
    assert_eq!(number(&mut lane, new), old_number, "the number is used again");
    let stale = lane.call(&user(1), Operation::GetAttributes { object: old });
    assert_eq!(kind(&stale), Some(ErrorKind::Stale));
}

#[test]
fn a_listing_neither_repeats_nor_misses_what_stays_while_others_go() {
    let (_memory, mut lane) = memory();
    for number in 0..100 {
        file(&mut lane, 1, &format!("f{number}"), 0o644);
    }
    let directory = lane.root();
    let (mut cookie, mut seen, mut next) = (0, Vec::new(), 0);
    loop {
        let args =
            ReadDirectory { directory, cookie, plus: false, name_bytes_max: 4096, entries_max: 7 };
        let page = lane.call(&user(1), Operation::ReadDirectory(args));
        let Ok(Outcome::Entries { entries, end }) = page.result else { panic!("{page:?}") };
        for entry in entries {
            cookie = entry.cookie;
            seen.push(entry.name);
        }
        if end {
            break;
        }
        // As `rm -r` does: what was just listed goes, and something else comes.
        remove(&mut lane, &format!("f{next}"));
        file(&mut lane, 1, &format!("g{next}"), 0o644);
        next += 1;
    }
    let stayed: Vec<_> = (next..100).map(|number| Bytes::from(format!("f{number}"))).collect();
    assert!(stayed.iter().all(|name| seen.iter().filter(|seen| *seen == name).count() == 1));
}

#[test]
fn a_page_too_small_for_one_entry_is_an_error_and_not_an_endless_loop() {
    let (_memory, mut lane) = memory();
    let directory = lane.root();
    for (name_bytes_max, entries_max) in [(0, 10), (24, 10), (4096, 0)] {
        let args = ReadDirectory { directory, cookie: 0, plus: true, name_bytes_max, entries_max };
        let page = lane.call(&user(1), Operation::ReadDirectory(args));
        assert_eq!(kind(&page), Some(ErrorKind::TooSmall));
    }
    let args =
        ReadDirectory { directory, cookie: 999, plus: true, name_bytes_max: 99, entries_max: 9 };
    let page = lane.call(&user(1), Operation::ReadDirectory(args));
    assert_eq!(kind(&page), Some(ErrorKind::BadCookie));
}

#[test]
fn a_full_file_system_says_so_and_recovers() {
    let settings = MemorySettings { bytes_max: 8192, entries_max: 3, ..MemorySettings::default() };
    let mut lane = Lane::attach(MemoryBackend::new(settings));
    let object = file(&mut lane, 1, "a", 0o644);
    static THREE_PAGES: [u8; 12_000] = [1; 12_000];
    let full = write(&mut lane, 1, object, &THREE_PAGES, Stability::Unstable);
    assert_eq!(kind(&full), Some(ErrorKind::NoSpace));
    // Twice unstable: the second would have to keep the first, so it is made stable instead.
    let two_pages = &THREE_PAGES[..8192];
    assert_eq!(kind(&write(&mut lane, 1, object, two_pages, Stability::FileSync)), None);
    let again = write(&mut lane, 1, object, two_pages, Stability::Unstable);
    let Ok(Outcome::Written { stability, .. }) = again.result else { panic!("{again:?}") };
    assert_eq!(stability, Stability::FileSync);
    for name in ["b", "c"] {
        file(&mut lane, 1, name, 0o644);
    }
    let fourth = create(&mut lane, 1, "d", CreateHow::Guarded(with_mode(0o600)));
    assert_eq!(kind(&fourth), Some(ErrorKind::NoSpace));
    remove(&mut lane, "a");
    let object = file(&mut lane, 1, "d", 0o600);
    assert_eq!(kind(&write(&mut lane, 1, object, two_pages, Stability::FileSync)), None);
    let root = lane.root();
    let names = listing::directory(&mut lane, &user(0), root, false, 10).unwrap();
    assert_eq!(names.len(), 3);
}

#[test]
fn parent_of_the_root_is_the_root() {
    let (_memory, mut lane) = memory();
    let directory = lane.root();
    let name = Bytes::from_static(b"..");
    let found = lane.call(&user(1), Operation::Lookup { directory, name });
    let Ok(Outcome::Found { object, .. }) = found.result else { panic!("{found:?}") };
    assert_eq!(object, directory);
}
