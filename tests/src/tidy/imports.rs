//! Who may use whom. Nobody calls upward, and the protocol engine knows no runtime, no file and no clock.

use super::source::{Source, Violation, find_word, has_word};

/// Crates that the sources in a directory must not name.
const UPWARD: [(&str, &[&str]); 3] = [
    ("buffers/", &["backends", "rpc_rdma", "gateway"]),
    ("rpc-rdma/", &["backends", "gateway"]),
    ("backends/", &["rpc_rdma", "gateway"]),
];

/// Where the engine is: input in, actions out, time is a parameter.
const SANS_IO: [&str; 6] = [
    "rpc-rdma/src/xdr/",
    "rpc-rdma/src/rpc/",
    "rpc-rdma/src/header/",
    "rpc-rdma/src/chunk/",
    "rpc-rdma/src/conn/",
    "rpc-rdma/src/credit.rs",
];

/// What the engine must not touch.
const IO: [&str; 5] = ["std::net", "std::fs", "std::thread", "Instant::now", "SystemTime::now"];

/// Sources that use a crate above theirs.
pub fn upward(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for (_, forbidden) in UPWARD.iter().filter(|(place, _)| source.path.starts_with(place)) {
        for (number, line) in source.code.lines().enumerate() {
            for name in forbidden.iter().filter(|name| uses(line, name)) {
                found.push(source.at(number, &format!("`{name}` stands above this crate")));
            }
        }
    }
    found
}

/// Whether a line takes something from the crate `name`; a module or variable of that name is no use of it.
fn uses(line: &str, name: &str) -> bool {
    let Some(at) = find_word(line, name) else { return false };
    let before = line[..at].trim_end();
    let after = line[at + name.len()..].trim_start();
    let own = before.ends_with("crate::") || before.ends_with("self::");
    let named = before.ends_with("use") || before.ends_with("extern crate");
    !own && (after.starts_with("::") || named)
}

/// Manifests that depend on a crate above theirs.
pub fn manifest(path: &str, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (_, forbidden) in UPWARD.iter().filter(|(place, _)| path.starts_with(place)) {
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            for name in *forbidden {
                let package = format!("aqueduct-{}", name.replace('_', "-"));
                if line.contains(&package) && !line.trim_start().starts_with("name") {
                    found.push(format!(
                        "{path}:{}: `{package}` stands above this crate",
                        number + 1
                    ));
                }
            }
        }
    }
    found
}

/// Engine sources that use a runtime, a socket, a file or a clock.
pub fn sans_io(source: &Source) -> Vec<Violation> {
    if !SANS_IO.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.code_before_tests() {
        if has_word(line, "tokio") || IO.iter().any(|word| line.contains(word)) {
            found.push(source.at(number, "the protocol engine does no I/O and has no clock"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(check: fn(&Source) -> Vec<Violation>, path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn upward_uses_are_found() {
        for text in ["use backends::Identity;", "fn f(x: gateway::Config) {}", "use gateway;"] {
            assert_eq!(count(upward, "rpc-rdma/src/a.rs", text), 1, "{text}");
            assert_eq!(count(upward, "gateway/src/a.rs", text), 0, "{text}");
        }
        assert_eq!(count(upward, "buffers/src/a.rs", "use rpc_rdma::xdr;"), 1);
        assert_eq!(count(upward, "backends/src/a.rs", "use rpc_rdma::xdr;"), 1);
        for text in ["// use backends::X", "let gateway = 1;", "use crate::gateway::X;"] {
            assert_eq!(count(upward, "rpc-rdma/src/a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn upward_dependencies_are_found() {
        let text = "[package]\nname = \"aqueduct-backends\"\n[dependencies]\naqueduct-gateway = 1";
        assert_eq!(manifest("backends/Cargo.toml", text).len(), 1);
        assert_eq!(manifest("gateway/Cargo.toml", text).len(), 0);
        assert_eq!(manifest("buffers/Cargo.toml", "aqueduct-rpc-rdma.workspace = true").len(), 1);
    }

    #[test]
    fn the_engine_has_no_runtime_and_no_clock() {
        for text in ["use tokio::net;", "let t = Instant::now();", "use std::net::TcpStream;"] {
            assert_eq!(count(sans_io, "rpc-rdma/src/conn/a.rs", text), 1, "{text}");
            assert_eq!(count(sans_io, "rpc-rdma/src/credit.rs", text), 1, "{text}");
            assert_eq!(count(sans_io, "rpc-rdma/src/tcp/a.rs", text), 0, "{text}");
        }
    }
}
