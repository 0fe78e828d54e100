//! Files of a local file system against the memory model, as the superuser (other users' rights can be
//! taken only then), with and without an io_uring.

use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

use aqueduct_tests::{lane::Lane, model::pair::Pair, model::steps};
use backends::{
    local::{IoMode, LocalBackend, LocalSettings},
    memory::{MemoryBackend, MemorySettings},
    uring::{LaneRing, RingSettings},
};
use buffers::Pool;
use proptest::prelude::*;
use tempfile::TempDir;

fn memory() -> Arc<MemoryBackend> {
    MemoryBackend::new(MemorySettings { bytes_max: 1 << 45, ..MemorySettings::default() })
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|about| {
        use std::os::unix::fs::MetadataExt;
        about.uid() == 0
    });
    if !root {
        eprintln!("not the superuser: other users cannot be played, nothing is compared");
    }
    root
}

/// A lane over a new directory. `None`: there is no io_uring here.
fn local(with_ring: bool, io_mode: IoMode) -> Option<(TempDir, Lane)> {
    // As the gateway does at its start: clients have applied their own umask.
    rustix::process::umask(rustix::fs::Mode::empty());
    let directory = TempDir::new().expect("a directory for the test");
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), open).expect("its mode can be set");
    let mut settings = LocalSettings::new(directory.path());
    settings.metadata_sync = false;
    settings.io_mode = io_mode;
    let backend = LocalBackend::open(settings).expect("the directory can be served");
    let pool = Pool::standalone(16 << 20);
    let ring = if with_ring {
        match LaneRing::open(&RingSettings::default(), pool.arena()) {
            Ok(ring) => Some(ring),
            Err(error) => {
                eprintln!("no io_uring: {error}");
                return None;
            }
        }
    } else {
        None
    };
    Some((directory, Lane::attach_with(backend, pool, ring)))
}

fn compare(steps: &[steps::Step], with_ring: bool, io_mode: IoMode) -> Result<(), String> {
    if !is_root() {
        return Ok(());
    }
    let Some((_directory, lane)) = local(with_ring, io_mode) else { return Ok(()) };
    Pair::new(Lane::attach(memory()), lane).run(steps)
}

/// This many runs; what fails is printed, not kept in the source tree.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn agrees_without_a_ring(steps in steps::run()) {
        prop_assert_eq!(compare(&steps, false, IoMode::Buffered), Ok(()));
    }

    #[test]
    fn agrees_with_a_ring(steps in steps::run()) {
        prop_assert_eq!(compare(&steps, true, IoMode::Buffered), Ok(()));
    }

    #[test]
    fn agrees_with_direct_io(steps in steps::run()) {
        prop_assert_eq!(compare(&steps, true, IoMode::Direct), Ok(()));
    }
}
