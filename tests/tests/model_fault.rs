//! Whatever goes wrong, every request gets exactly one completion, and what is answered is true.

use std::{collections::HashSet, sync::Arc, time::Duration, time::Instant};

use aqueduct_tests::lane::Lane;
use backends::{
    Backend, ErrorKind, Identity, ObjectHandle, Operation, Outcome,
    attr::Changes,
    fault::{FaultBackend, FaultPlan},
    memory::{MemoryBackend, MemorySettings},
    op::{CreateHow, Stability},
};
use bytes::Bytes;
use proptest::prelude::*;

fn faulty(seed: u64, rules: &[&str]) -> (Arc<MemoryBackend>, Lane) {
    let memory = MemoryBackend::new(MemorySettings::default());
    let rules = rules.iter().map(|rule| rule.parse().expect("a valid rule")).collect();
    let lane = Lane::attach(FaultBackend::wrap(memory.clone(), FaultPlan { seed, rules }));
    (memory, lane)
}

fn root() -> Arc<Identity> {
    Arc::new(Identity::root())
}

fn create(directory: ObjectHandle, name: &'static [u8]) -> Operation {
    let how = CreateHow::Guarded(Changes::default());
    Operation::Create { directory, name: Bytes::from_static(name), how }
}

fn file(lane: &mut Lane) -> ObjectHandle {
    let operation = create(lane.root(), b"file");
    match lane.call(&root(), operation).result {
        Ok(Outcome::Created { object, .. }) => object,
        other => panic!("{other:?}"),
    }
}

fn write(object: ObjectHandle, data: &'static [u8]) -> Operation {
    let data = Bytes::from_static(data);
    Operation::Write { object, offset: 0, data, stability: Stability::Unstable }
}

fn kind(lane: &mut Lane, operation: Operation) -> Option<ErrorKind> {
    lane.call(&root(), operation).result.err().map(|error| error.kind)
}

proptest! {
    #[test]
    fn every_request_gets_one_completion(seed in any::<u64>(), count in 1_usize..200) {
        let rules = [
            "any 1/5 fail-before io", "any 1/5 fail-after later", "any 1/3 reorder",
            "any 1/10 hold 5", "any 1/10 delay 100us", "any 1/4 short",
        ];
        let (_memory, mut lane) = faulty(seed, &rules);
        let mut asked = HashSet::new();
        let mut answered = Vec::new();
        for number in 0..count {
            let object = lane.root();
            let operation = match number % 4 {
                0 => Operation::GetAttributes { object },
                1 => create(object, b"a"),
                2 => write(object, b"directories cannot be written"),
                _ => Operation::Remove { directory: object, name: Bytes::from_static(b"a") },
            };
            asked.insert(lane.submit(&root(), operation));
            if number % 7 == 0 {
                answered.extend(lane.turn());
            }
        }
        answered.extend(lane.drain());
        // The lane itself fails on a completion that comes twice or was never asked for.
        prop_assert_eq!(answered.len(), count);
        let answered: HashSet<_> = answered.iter().map(|completion| completion.token).collect();
        prop_assert_eq!(answered, asked);
    }
}

#[test]
fn an_error_before_changes_nothing_and_one_after_hides_what_was_done() {
    let rules = ["create #1 fail-before no-space", "create #2 fail-after io"];
    let (_memory, mut lane) = faulty(1, &rules);
    let directory = lane.root();
    let lookup = || Operation::Lookup { directory, name: Bytes::from_static(b"a") };
    assert_eq!(kind(&mut lane, create(directory, b"a")), Some(ErrorKind::NoSpace));
    assert_eq!(kind(&mut lane, lookup()), Some(ErrorKind::NotFound));
    assert_eq!(kind(&mut lane, create(directory, b"a")), Some(ErrorKind::Io));
    assert_eq!(kind(&mut lane, lookup()), None);
}

#[test]
fn a_short_write_says_how_much_and_a_short_read_does_not_claim_the_end() {
    let (_memory, mut lane) = faulty(7, &["write #1 short", "read 1/1 short"]);
    let object = file(&mut lane);
    let data = b"twenty bytes of data";
    let Ok(Outcome::Written { count, .. }) = lane.call(&root(), write(object, data)).result else {
        panic!("a short write succeeds");
    };
    assert!(count > 0 && (count as usize) < data.len());
    let size = lane.call(&root(), Operation::GetAttributes { object }).first.after.unwrap().size;
    assert_eq!(size, u64::from(count));

    assert_eq!(kind(&mut lane, write(object, data)), None);
    let into = lane.buffer(20);
    let read = Operation::Read { object, offset: 0, count: 20, into, pages: None };
    let Ok(Outcome::Data { data: got, end_of_file }) = lane.call(&root(), read).result else {
        panic!("a short read succeeds");
    };
    assert!(!got.is_empty() && got.len() < data.len() && data.starts_with(got.bytes().unwrap()));
    assert!(!end_of_file);
}

#[test]
fn completions_overtake_each_other() {
    let (_memory, mut lane) = faulty(3, &["any 1/1 reorder"]);
    let object = lane.root();
    let asked: Vec<_> =
        (0..50).map(|_| lane.submit(&root(), Operation::GetAttributes { object })).collect();
    let answered: Vec<_> = lane.drain().iter().map(|completion| completion.token).collect();
    assert_ne!(asked, answered);
}

#[test]
fn a_delay_lasts_and_wakes_the_lane() {
    let (_memory, mut lane) = faulty(3, &["getattr #1 delay 30ms"]);
    let object = lane.root();
    let start = Instant::now();
    assert_eq!(kind(&mut lane, Operation::GetAttributes { object }), None);
    assert!(start.elapsed() >= Duration::from_millis(30));
}

#[test]
fn the_wrapper_is_the_backend_that_it_wraps() {
    let memory = MemoryBackend::new(MemorySettings::default());
    let wrapped = FaultBackend::wrap(memory.clone(), FaultPlan::default());
    assert_eq!(wrapped.root(), memory.root());
    assert_eq!(wrapped.capabilities(), memory.capabilities());
    assert_eq!(wrapped.injected(), 0);
}
