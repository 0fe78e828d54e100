//! Where unsafe code may stand.

use super::{
    ledger::UNSAFE_ALLOWED,
    source::{Source, Violation, has_word},
};

/// Directories and files whose business it is.
const FENCES: [&str; 5] = [
    "buffers/src/",
    "rpc-rdma/src/verbs/",
    "backends/src/uring/",
    "backends/src/local/sys.rs",
    "backends/src/blocking/creds.rs",
];

/// Unsafe code outside the fences.
pub fn unsafety(source: &Source) -> Vec<Violation> {
    let fenced = FENCES.iter().any(|place| source.path.starts_with(place));
    if fenced || UNSAFE_ALLOWED.iter().any(|(path, _)| *path == source.path) {
        return Vec::new();
    }
    let lines = source.code.lines().enumerate();
    let unsafe_lines = lines.filter(|(_, line)| has_word(line, "unsafe"));
    unsafe_lines.map(|(number, _)| source.at(number, "unsafe code outside the fences")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_found_outside_only() {
        let text = "//! unsafe\nfn f() { unsafe { g() } }\n#![allow(unsafe_code)]\n";
        let count = |path| unsafety(&Source::new(path, text)).len();
        assert_eq!(count("gateway/src/main.rs"), 1);
        assert_eq!(count("backends/src/local/file.rs"), 1);
        assert_eq!(count("backends/src/local/sys.rs"), 0);
        assert_eq!(count("buffers/src/arena.rs"), 0);
    }
}
