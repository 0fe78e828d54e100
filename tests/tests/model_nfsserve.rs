//! A file system of the `nfsserve` crate, through the adapter, against the memory model; and what the
//! adapter has to make up for.

use std::sync::Arc;

use aqueduct_tests::{
    demo::{DemoFileSystem, PANIC_NAME},
    lane::Lane,
    model::{
        pair::Pair,
        steps::{self, Action, How, Step},
    },
};
use backends::{
    Completion, ErrorKind, Identity, ObjectHandle, Operation, Outcome,
    attr::Changes,
    memory::{MemoryBackend, MemorySettings},
    nfsserve::{Limits, NfsServeBackend},
    op::{CreateHow, Stability},
};
use buffers::copies::{self, Why};
use bytes::Bytes;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};

/// Files of the demo are vectors, so they must not become large.
const SIZE_MAX: u64 = 1 << 21;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

fn demo(runtime: &Runtime, limits: Limits) -> Lane {
    let backend = NfsServeBackend::new(DemoFileSystem::default(), runtime.handle().clone(), limits);
    Lane::attach(backend)
}

/// Whether the interface can express the step at all, with files of a bearable size.
fn possible(step: &Step) -> bool {
    match &step.action {
        Action::Link { .. } | Action::MakeNode { .. } => false,
        Action::Create { how: How::Exclusive, .. } => false,
        Action::Create { size, .. } => size.is_none_or(|size| size < SIZE_MAX),
        Action::SetAttributes { changes, .. } => changes.size.is_none_or(|size| size < SIZE_MAX),
        Action::Write { offset, .. } => *offset < SIZE_MAX,
        _ => true,
    }
}

fn create(lane: &Lane, name: &'static [u8], how: CreateHow) -> Operation {
    Operation::Create { directory: lane.root(), name: Bytes::from_static(name), how }
}

fn guarded(mode: u32) -> CreateHow {
    CreateHow::Guarded(Changes { mode: Some(mode), ..Changes::default() })
}

fn user(uid: u32) -> Arc<Identity> {
    Arc::new(Identity::new(uid, uid))
}

fn kind(completion: &Completion) -> Option<ErrorKind> {
    completion.result.as_ref().err().map(|error| error.kind)
}

fn created(completion: Completion) -> ObjectHandle {
    match completion.result {
        Ok(Outcome::Created { object, .. }) => object,
        other => panic!("{other:?}"),
    }
}

/// This many runs; what fails is printed, not kept in the source tree.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn agrees_with_the_model(mut steps in steps::run()) {
        steps.retain(possible);
        let runtime = runtime();
        let model = Lane::attach(MemoryBackend::new(MemorySettings::default()));
        let mut pair = Pair::new(model, demo(&runtime, Limits::default()));
        prop_assert_eq!(pair.run(&steps), Ok(()));
    }
}

#[test]
fn handles_survive_a_restart() {
    let runtime = runtime();
    let mut handles = Vec::new();
    for _ in 0..2 {
        let mut lane = demo(&runtime, Limits::default());
        let make = create(&lane, b"file", guarded(0o644));
        handles.push((lane.root(), created(lane.call(&user(0), make))));
    }
    assert_eq!(handles[0], handles[1]);
}

#[test]
fn the_caller_is_checked_although_the_file_system_does_not() {
    let runtime = runtime();
    let mut lane = demo(&runtime, Limits::default());
    let make = create(&lane, b"private", guarded(0o600));
    let object = created(lane.call(&user(10), make));
    let into = lane.buffer(1);
    let read = Operation::Read { object, offset: 0, count: 1, into, pages: None };
    assert_eq!(kind(&lane.call(&user(11), read)), Some(ErrorKind::Access));
    let write = |data| Operation::Write {
        object,
        offset: 0,
        data: Bytes::from_static(data),
        stability: Stability::Unstable,
    };
    assert_eq!(kind(&lane.call(&user(11), write(b"x"))), Some(ErrorKind::Access));
    let written = lane.call(&user(10), write(b"x"));
    let Ok(Outcome::Written { stability, .. }) = written.result else { panic!("{written:?}") };
    assert_eq!(stability, Stability::FileSync);
}

#[test]
fn what_the_interface_lacks_is_not_supported() {
    let runtime = runtime();
    let mut lane = demo(&runtime, Limits::default());
    let exclusive = create(&lane, b"a", CreateHow::Exclusive([1; 8]));
    assert_eq!(kind(&lane.call(&user(0), exclusive)), Some(ErrorKind::NotSupported));
    let make = create(&lane, b"a", guarded(0o600));
    let object = created(lane.call(&user(0), make));
    let name = Bytes::from_static(b"b");
    let link = Operation::Link { object, directory: lane.root(), name };
    assert_eq!(kind(&lane.call(&user(0), link)), Some(ErrorKind::NotSupported));
}

#[test]
fn a_panic_in_the_file_system_is_an_error_of_one_operation() {
    let runtime = runtime();
    let mut lane = demo(&runtime, Limits::default());
    let make = create(&lane, PANIC_NAME, guarded(0o600));
    assert_eq!(kind(&lane.call(&user(0), make)), Some(ErrorKind::ServerFault));
    let make = create(&lane, b"fine", guarded(0o600));
    assert_eq!(kind(&lane.call(&user(0), make)), None);
}

#[test]
fn operations_beyond_the_queue_come_later() {
    let runtime = runtime();
    let limits = Limits { running_max: 2, waiting_max: 3, ..Limits::default() };
    let mut lane = demo(&runtime, limits);
    let object = lane.root();
    for _ in 0..20 {
        lane.submit(&user(0), Operation::GetAttributes { object });
    }
    let all = lane.drain();
    let later = all.iter().filter(|completion| kind(completion) == Some(ErrorKind::Later));
    assert_eq!((all.len(), later.count()), (20, 15));
}

#[test]
fn a_runtime_that_is_gone_answers_instead_of_hanging() {
    let runtime = runtime();
    let mut lane = demo(&runtime, Limits::default());
    drop(runtime);
    let object = lane.root();
    let completion = lane.call(&user(0), Operation::GetAttributes { object });
    assert_eq!(kind(&completion), Some(ErrorKind::ServerFault));
}

#[test]
fn of_two_guarded_creates_one_wins() {
    let runtime = runtime();
    let mut lane = demo(&runtime, Limits::default());
    for _ in 0..20 {
        let make = create(&lane, b"one", guarded(0o600));
        lane.submit(&user(0), make);
    }
    let won = lane.drain().iter().filter(|completion| kind(completion).is_none()).count();
    assert_eq!(won, 1);
}

#[test]
fn copied_payload_is_counted() {
    let runtime = runtime();
    let mut lane = demo(&runtime, Limits::default());
    let make = create(&lane, b"file", guarded(0o600));
    let object = created(lane.call(&user(0), make));
    let before = copies::copied(Why::Backend);
    let data = Bytes::from(vec![5; 10_000]);
    let write = Operation::Write { object, offset: 0, data, stability: Stability::Unstable };
    assert_eq!(kind(&lane.call(&user(0), write)), None);
    assert!(copies::copied(Why::Backend) >= before + 10_000);
}
