//! What the process may use: limits of open files and locked memory, the file mode mask.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

use crate::config::Config;

/// Descriptors of an open file in the cache: by path, for reading, for writing.
const FDS_OF_FILE: u64 = 3;
/// Descriptors of everything else.
const FDS_SPARE: u64 = 256;

/// Take what is needed, as far as we are let.
pub fn raise(config: &Config) {
    // Clients send the mode that they want; a mask of ours would take bits from it.
    umask(rustix::fs::Mode::empty());
    let connections = config.limits.connections_max + config.rdma.connections_max;
    let files = config.server.open_files_max as u64 * FDS_OF_FILE;
    let wanted = files + connections as u64 + FDS_SPARE;
    let got = raise_one(Resource::Nofile, Some(wanted));
    if got.is_some_and(|got| got < wanted) {
        tracing::warn!(
            limit = got,
            wanted,
            "few open files are allowed: raise LimitNOFILE (ulimit -n), or lower server.open_files_max"
        );
    }
    raise_one(Resource::Memlock, None);
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
