//! What the process may use: limits of open files and locked memory, the file mode mask.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::config::Config;

/// Descriptors of an open file in the cache: by path, for reading, for writing, and two more past the page
/// cache.
const FDS_OF_FILE: u64 = 5;
/// Descriptors of everything else.
const FDS_SPARE: u64 = 256;

/// Fewer files than this are kept open in no case; the rest must do.
const OPEN_FILES_MIN: u64 = 64;

/// Take what is needed, as far as we are let. Returns how many files may be kept open.
pub fn raise(config: &Config) -> usize {
    // Clients send the mode that they want; a mask of ours would take bits from it.
    umask(rustix::fs::Mode::empty());
    raise_one(Resource::Memlock, None);
    let connections = config.limits.connections_max + config.rdma.connections_max;
    let other = connections as u64 + FDS_SPARE;
    let wanted = config.server.open_files_max as u64 * FDS_OF_FILE + other;
    let limit = raise_one(Resource::Nofile, Some(wanted));
    let files = open_files(config.server.open_files_max, limit, other);
    if files < config.server.open_files_max {
        tracing::warn!(
            limit,
            kept_open = files,
            wanted = config.server.open_files_max,
            "few open files are allowed: raise LimitNOFILE (ulimit -n), or lower server.open_files_max"
        );
    }
    files
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
}
