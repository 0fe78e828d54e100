//! What the process may use: limits of open files and locked memory, the file mode mask.

use buffers::pages::PIPE_FDS;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::config::{Config, memory::PIPES_MAX};

/// Descriptors of an open file in the cache: by path, for reading, for writing, and two more past the page
/// cache.
const FDS_OF_FILE: u64 = 5;
/// Descriptors of a lane: the pipes in which pages of files go to sockets, and beside these its ring, events,
/// listeners and devices.
const FDS_OF_LANE: u64 = (PIPES_MAX * PIPE_FDS) as u64 + 32;
/// Descriptors of everything else.
const FDS_SPARE: u64 = 256;

/// Fewer files than this are kept open in no case; the rest must do.
const OPEN_FILES_MIN: u64 = 64;
/// So many are enough for most: a file that is not among them is opened again, which is no fault.
const OPEN_FILES_ENOUGH: usize = 1024;

/// Take what is needed, as far as we are let. Returns how many files may be kept open.
pub fn raise(config: &Config) -> usize {
    // Clients send the mode that they want; a mask of ours would take bits from it.
    umask(rustix::fs::Mode::empty());
    raise_one(Resource::Memlock, None);
    let connections = config.limits.connections_max + config.rdma.connections_max;
    let other = other_descriptors(connections, config.server.lanes);
    let wanted = config.server.open_files_max as u64 * FDS_OF_FILE + other;
    let limit = raise_one(Resource::Nofile, Some(wanted));
    let files = open_files(config.server.open_files_max, limit, other);
    if let Some(advice) = advice(config.server.open_files_max, files, wanted) {
        tracing::warn!("{advice}");
    } else {
        tracing::debug!(limit, kept_open = files, "open files");
    }
    files
}

/// What to say about the number of files that can be kept open, where that is so low that it costs speed.
fn advice(configured: usize, files: usize, descriptors: u64) -> Option<String> {
    (files < configured.min(OPEN_FILES_ENOUGH)).then(|| {
        format!(
            "only {files} files can be kept open between calls, not {configured}, since the process may have few \
             open files: set LimitNOFILE={descriptors} in the unit, or `ulimit -Hn {descriptors}` before the start, \
             or server.open_files_max = {files} if so few are enough"
        )
    })
}

/// Descriptors of all that is no file of a client.
fn other_descriptors(connections: usize, lanes: usize) -> u64 {
    connections as u64 + lanes as u64 * FDS_OF_LANE + FDS_SPARE
}

/// How many files can be kept open under a limit of descriptors, of which `other` are for other things.
fn open_files(wanted: usize, limit: Option<u64>, other: u64) -> usize {
    let Some(limit) = limit else { return wanted };
    let possible = (limit.saturating_sub(other) / FDS_OF_FILE).max(OPEN_FILES_MIN);
    wanted.min(usize::try_from(possible).unwrap_or(usize::MAX))
}

/// Raise a limit: the hard one too where we may. Returns what holds then; `None` is no limit.
fn raise_one(resource: Resource, wanted: Option<u64>) -> Option<u64> {
    let now = getrlimit(resource);
    let enough = |limit: Option<u64>| match (limit, wanted) {
        (None, _) => true,
        (Some(limit), Some(wanted)) => limit >= wanted,
        (Some(_), None) => false,
    };
    if enough(now.current) {
        return now.current;
    }
    let maximum = if enough(now.maximum) { now.maximum } else { wanted };
    let tries = [Rlimit { current: wanted, maximum }, Rlimit { current: now.maximum, ..now }];
    let _ = tries.into_iter().any(|limit| setrlimit(resource, limit).is_ok());
    getrlimit(resource).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_fit_under_the_limit() {
        assert_eq!(open_files(65_536, None, 1000), 65_536);
        assert_eq!(open_files(100, Some(1_000_000), 1000), 100);
        assert_eq!(open_files(65_536, Some(31_000), 1000), 6000);
        assert_eq!(open_files(65_536, Some(1024), 1536), 64);
    }

    #[test]
    fn a_usual_limit_is_no_warning_and_a_low_one_names_its_fix() {
        // `ulimit -Hn` of 20 000 keeps thousands of files open.
        let files = open_files(65_536, Some(20_000), 1536);
        assert_eq!(advice(65_536, files, 329_216), None);
        assert_eq!(advice(100, 100, 2036), None);
        let text = advice(65_536, 64, 329_216).unwrap();
        assert!(text.contains("LimitNOFILE=329216"), "{text}");
        assert!(text.contains("server.open_files_max = 64"), "{text}");
    }

    #[test]
    fn bug_the_pipes_of_the_lanes_were_not_counted() {
        let of_a_lane = other_descriptors(100, 3) - other_descriptors(100, 2);
        assert!(of_a_lane >= (PIPES_MAX * PIPE_FDS) as u64);
    }
}
