//! What must hold between the keys of one configuration.

use std::path::Path;

use super::{
    machine::Machine,
    memory::MemorySum,
    problem::{Place, Problems},
    schema::{BackendConfig, Config, ExportConfig, RdmaMode},
    value::format_size,
};

/// Exports with the places where they were written.
pub type Placed = Vec<(Place, ExportConfig)>;

/// No two exports may be one, nor lie within each other unawares.
pub fn exports(problems: &mut Problems, exports: &Placed) {
    for (index, (place, export)) in exports.iter().enumerate() {
        for (other_place, other) in exports.iter().take(index) {
            let settings = (&export.settings, &other.settings);
            if settings.0.path == settings.1.path {
                let problem = format!("{} is exported at {other_place} already", settings.0.path);
                problems.add(place, "export.path", problem, "give one of the two another path");
            } else if settings.0.id == settings.1.id {
                let problem = format!(
                    "the id {} of {} is that of {} ({other_place})",
                    settings.0.id, settings.0.path, settings.1.path
                );
                problems.add(place, "export.id", problem, "set another id on the newer of the two");
            } else if !export.allow_overlap && !other.allow_overlap {
                overlap(problems, (place, export), (other_place, other));
            }
        }
    }
}

fn overlap(
    problems: &mut Problems,
    (place, export): (&Place, &ExportConfig),
    (other_place, other): (&Place, &ExportConfig),
) {
    let (path, other_path) = (&export.settings.path, &other.settings.path);
    let fix = "separate them, or set allow_overlap = true on one of them if that is what you want";
    if nested(Path::new(path), Path::new(other_path)) {
        let problem =
            format!("the paths {path} and {other_path} ({other_place}) lie one in the other");
        problems.add(place, "export.path", problem, fix);
        return;
    }
    if let (BackendConfig::Local(local), BackendConfig::Local(other_local)) =
        (&export.backend, &other.backend)
        && nested(&local.directory, &other_local.directory)
    {
        let problem = format!(
            "{} and {} ({other_place}) lie one in the other, so that clients reach the same files under \
             two sets of rules",
            local.directory.display(),
            other_local.directory.display()
        );
        problems.add(place, "export.directory", problem, fix);
    }
}

fn nested(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// What holds between sections. Nothing is said that would only repeat what is wrong with a section.
pub fn whole(problems: &mut Problems, name: &Place, config: &Config, machine: &Machine) {
    if config.exports.is_empty() && !problems.concern("export") {
        let fix = "add an [[export]], or give --export /NAME=DIRECTORY";
        problems.add(name, "export", "nothing is exported", fix);
    }
    let wire_is_wrong = problems.concern("tcp") || problems.concern("rdma");
    if !wire_is_wrong && config.tcp.listen.is_empty() && config.rdma.mode == RdmaMode::No {
        let fix = "set tcp.listen or rdma.enabled";
        problems.add(name, "tcp.listen", "there is no transport to serve", fix);
    }
    if !wire_is_wrong && config.rdma.mode != RdmaMode::No && config.rdma.listen.is_empty() {
        let fix = "list an address, or set rdma.enabled = \"no\"";
        problems.add(name, "rdma.listen", "RDMA has no address to listen on", fix);
    }
    // The sum takes every number of the file.
    if problems.is_empty() {
        memory(problems, name, &config.memory, config.server.memory_max, machine);
    }
}

/// What is no mistake in the file, but makes `serve` refuse on this machine as it is now. A file may be
/// checked elsewhere, or before the device is there.
pub fn warnings(config: &Config, machine: &Machine) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.rdma.mode == RdmaMode::Yes && machine.rdma_devices.is_empty() {
        warnings.push(
            "rdma.enabled: \"yes\" wants an RDMA device, and this machine has none: `serve` would refuse to start \
             here; set it to \"auto\" to serve TCP until a device comes (`aqueduct doctor` shows the devices)"
                .to_owned(),
        );
    }
    warnings
}

fn memory(
    problems: &mut Problems,
    name: &Place,
    memory: &MemorySum,
    memory_max: u64,
    machine: &Machine,
) {
    if memory.total() <= memory_max {
        return;
    }
    let largest = memory.largest();
    let problem = format!(
        "the limits add up to {}, more than {} (this machine has {}):\n{}",
        format_size(memory.total()),
        format_size(memory_max),
        format_size(machine.memory_bytes),
        memory.table()
    );
    let fix = format!("lower {}, or raise server.memory_max", largest.keys);
    problems.add(name, "server.memory_max", problem, fix);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{from_text, machine::tests::machine};

    #[test]
    fn rdma_that_must_be_and_cannot_is_a_warning() {
        if cfg!(not(feature = "rdma")) {
            return;
        }
        let without = Machine { rdma_devices: Vec::new(), ..machine() };
        for (mode, machine, count) in [
            ("yes", &without, 1),
            ("auto", &without, 0),
            ("no", &without, 0),
            ("yes", &machine(), 0),
        ] {
            let text = format!(
                "[rdma]\nenabled = \"{mode}\"\n[[export]]\npath = \"/m\"\nid = 9\nbackend = \"memory\"\n"
            );
            let config = from_text("a.toml", &text, machine).unwrap();
            let warnings = warnings(&config, machine);
            assert_eq!(warnings.len(), count, "{mode}: {warnings:?}");
            assert!(warnings.iter().all(|text| text.contains("\"auto\"")), "{warnings:?}");
        }
    }
}
