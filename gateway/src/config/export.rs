//! One `[[export]]`: its keys, bounds and defaults.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    de::of,
    problem::{Place, Problems},
    schema::{BackendConfig, ExportConfig, IoMode, LocalConfig},
    section::{Section, shown},
    tree::{Node, Value},
    value::{AbsolutePath, Wrong, list, number, size},
};
use crate::exports::{
    ClientRule, ClientRules, ExportSettings, Pattern, Rights, Squash,
    clients::{Network, NetworkError},
    export::derived_id,
    table::MOUNT_PATH_BYTES_MAX,
};

/// Ids that stand for nobody on the systems of this world (`nobody` and `nogroup`).
const ANONYMOUS: u32 = 65_534;
/// Longest host name (RFC 1035 section 2.3.4), in bytes.
const HOST_NAME_BYTES_MAX: usize = 253;
/// What `private` in a list of clients stands for: this machine, RFC 1918, RFC 4193, link-local.
const PRIVATE_NETWORKS: [&str; 8] = [
    "127.0.0.0/8",
    "::1",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Local,
    Memory,
}

/// Keys that only one kind of backend has.
const LOCAL_KEYS: [&str; 4] = ["directory", "io", "sync", "local_writers"];
const MEMORY_KEYS: [&str; 1] = ["memory"];

/// Read one export. `None` when it lacks what nothing can be said without.
pub fn export(problems: &mut Problems, mut section: Section<'_>) -> Option<ExportConfig> {
    let path = required(problems, &mut section, "path", "\"/data\"", export_path);
    let id = section.get(problems, "id", number(1..=u32::MAX));
    let kind = section.get(problems, "backend", of).unwrap_or(Kind::Local);
    let read_only = section.get(problems, "read_only", of::<bool>);
    let clients = section.get(problems, "clients", client_rules);
    let squash = section.get(problems, "squash", of::<Squash>);
    // 4294967295 is "no id" to the kernel.
    let anonymous_uid = section.get(problems, "anonymous_uid", number(0..=u32::MAX - 1));
    let anonymous_gid = section.get(problems, "anonymous_gid", number(0..=u32::MAX - 1));
    let reserved_port = section.get(problems, "reserved_port", of::<bool>);
    let allow_overlap = section.get(problems, "allow_overlap", of::<bool>);
    misplaced_keys(problems, &section, kind);
    let local = local(problems, &mut section, kind);
    let memory = section.get(problems, "memory", size(1 << 20..=1 << 40));
    section.finish(problems);
    let backend = match kind {
        Kind::Local => local.map(BackendConfig::Local),
        Kind::Memory => Some(BackendConfig::Memory { bytes_max: memory.unwrap_or(1 << 28) }),
    };
    let (path, backend) = (path?, backend?);
    let origin = match &backend {
        BackendConfig::Local(local) => format!("local {}", local.directory.display()),
        BackendConfig::Memory { .. } => format!("memory {path}"),
    };
    let everyone_private = || ClientRules::new(private(Rights::ReadWrite));
    let settings = ExportSettings {
        id: id.unwrap_or_else(|| derived_id(&path)),
        path,
        origin,
        read_only: read_only.unwrap_or(false),
        squash: squash.unwrap_or_default(),
        anonymous_uid: anonymous_uid.unwrap_or(ANONYMOUS),
        anonymous_gid: anonymous_gid.unwrap_or(ANONYMOUS),
        clients: clients.unwrap_or_else(everyone_private),
        require_reserved_port: reserved_port.unwrap_or(false),
    };
    Some(ExportConfig { settings, backend, allow_overlap: allow_overlap.unwrap_or(false) })
}

fn required<T>(
    problems: &mut Problems,
    section: &mut Section<'_>,
    key: &'static str,
    example: &str,
    read: impl FnOnce(&Node) -> Result<T, Wrong>,
) -> Option<T> {
    if !section.has(key) {
        let (place, name) = (section.place_of(key), section.key(key));
        problems.add(&place, name, "this key is missing", format!("add {key} = {example}"));
    }
    section.get(problems, key, read)
}

fn misplaced_keys(problems: &mut Problems, section: &Section<'_>, kind: Kind) {
    let (keys, needed): (&[&str], _) = match kind {
        Kind::Local => (&MEMORY_KEYS, "memory"),
        Kind::Memory => (&LOCAL_KEYS, "local"),
    };
    for key in keys.iter().filter(|key| section.has(key)) {
        let problem = format!("this key is only for backend = \"{needed}\"");
        problems.add(&section.place_of(key), section.key(key), problem, "remove it");
    }
}

fn local(problems: &mut Problems, section: &mut Section<'_>, kind: Kind) -> Option<LocalConfig> {
    let directory = match kind {
        Kind::Local => required(problems, section, "directory", "\"/srv/data\"", directory),
        // Only known, so that it is not called unknown besides being out of place.
        Kind::Memory => section.get(problems, "directory", |_| Ok(PathBuf::new())),
    };
    let io = section.get(problems, "io", of::<IoMode>);
    let sync = section.get(problems, "sync", of::<bool>);
    let local_writers = section.get(problems, "local_writers", of::<bool>);
    Some(LocalConfig {
        directory: directory?,
        io: io.unwrap_or(IoMode::Buffered),
        metadata_sync: sync.unwrap_or(true),
        local_writers: local_writers.unwrap_or(false),
    })
}

/// The name under which clients mount it, normalized.
fn export_path(node: &Node) -> Result<String, Wrong> {
    let written: String = of(node)?;
    let problem = |what: &str| format!("`{}` {what}", shown(&written));
    if !written.starts_with('/') {
        let fix = format!("write \"/{}\"", shown(&written));
        return Err(Wrong::new(problem("does not begin with a slash"), fix));
    }
    if written.len() > MOUNT_PATH_BYTES_MAX {
        let fix = format!("give at most {MOUNT_PATH_BYTES_MAX} bytes");
        return Err(Wrong::new(problem("is too long"), fix));
    }
    let names: Vec<&str> = written.split('/').filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| matches!(*name, "." | "..") || name.len() > 255) {
        let fix = "write plain names of at most 255 bytes between the slashes";
        return Err(Wrong::new(problem("has \".\", \"..\" or a very long name in it"), fix));
    }
    if written.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let fix = "leave them out: clients' mount tables cannot express them";
        return Err(Wrong::new(problem("has spaces or control characters in it"), fix));
    }
    Ok(format!("/{}", names.join("/")))
}

/// A directory that is there and can be listed; canonical, so that two names of one are seen to be one.
fn directory(node: &Node) -> Result<PathBuf, Wrong> {
    let AbsolutePath(path) = of(node)?;
    let name = shown(&path.to_string_lossy());
    let canonical = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let there = path.ancestors().skip(1).find(|above| above.exists());
            let there = there.unwrap_or(Path::new("/")).display();
            Wrong::new(
                format!("there is no directory {name} (there is {there})"),
                format!("`mkdir -p {name}`, or correct the path"),
            )
        }
        _ => Wrong::new(format!("{name}: {error}"), "make it accessible to the gateway"),
    })?;
    if !canonical.is_dir() {
        return Err(Wrong::new(
            format!("{name} is not a directory"),
            "export the directory it is in",
        ));
    }
    Ok(canonical)
}

/// `"10.0.0.0/8"`, `"10.0.0.9 ro"`, `"build.example.com rw"`, `"*"`, `"private"`.
fn client_rules(node: &Node) -> Result<ClientRules, Wrong> {
    let lists = list(client)(node)?;
    let rules: Vec<ClientRule> = lists.into_iter().flatten().collect();
    for (index, rule) in rules.iter().enumerate() {
        if rules.iter().take(index).any(|earlier| earlier.pattern == rule.pattern) {
            let problem = format!("there are two rules for {}", rule.pattern);
            return Err(Wrong::new(problem, "remove one"));
        }
    }
    if rules.is_empty() {
        return Err(Wrong::new(
            "nobody may use this export",
            "list addresses, networks or host names; \"*\" is everybody",
        ));
    }
    Ok(ClientRules::new(rules))
}

fn client(node: &Node) -> Result<Vec<ClientRule>, Wrong> {
    let written: String = of(node)?;
    let mut words = written.split_ascii_whitespace();
    let pattern = words.next().unwrap_or("");
    let rights = match (words.next(), words.next()) {
        (None | Some("rw"), None) => Rights::ReadWrite,
        (Some("ro"), None) => Rights::ReadOnly,
        _ => {
            let problem = format!("`{}` is not a client rule", shown(&written));
            return Err(Wrong::new(
                problem,
                "write a client and perhaps ro or rw: \"10.0.0.9 ro\"",
            ));
        }
    };
    let one = |pattern| Ok(vec![ClientRule { pattern, rights }]);
    match pattern {
        "*" => return one(Pattern::Any),
        "private" => return Ok(private(rights)),
        _ => {}
    }
    match pattern.parse::<Network>() {
        Ok(network) => one(Pattern::Network(network)),
        Err(NetworkError::Address(_)) if is_host_name(pattern) => {
            one(Pattern::Host { name: pattern.to_ascii_lowercase(), addresses: Vec::new() })
        }
        Err(NetworkError::HostBits(_, network)) => Err(Wrong::new(
            format!("`{pattern}` has bits set beyond its prefix"),
            format!("write \"{network}\" for the network, or leave the prefix out for the address"),
        )),
        Err(NetworkError::Prefix(prefix, most)) => Err(Wrong::new(
            format!("`{}` is not a prefix length", shown(&prefix)),
            format!("give a number from 0 to {most}"),
        )),
        Err(NetworkError::Address(_)) => Err(Wrong::new(
            format!("`{}` is neither an address, a network nor a host name", shown(pattern)),
            "write \"10.0.0.9\", \"10.0.0.0/8\", \"fd00::/8\", \"build.example.com\", \"private\" or \"*\"",
        )),
    }
}

fn private(rights: Rights) -> Vec<ClientRule> {
    let networks = PRIVATE_NETWORKS.iter().filter_map(|text| text.parse().ok());
    networks.map(|network| ClientRule { pattern: Pattern::Network(network), rights }).collect()
}

/// RFC 1123 section 2.1: letters, digits, hyphens, dots; and not something that was meant as an address.
fn is_host_name(word: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    word.len() <= HOST_NAME_BYTES_MAX
        && word.trim_end_matches('.').split('.').all(label)
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// The tables of `[[export]]` with their places.
pub fn tables<'a>(problems: &mut Problems, node: &'a Node) -> Vec<(Place, &'a super::tree::Table)> {
    let Value::List(items) = &node.value else {
        let problem = format!("{} is not a list of exports", node.value.kind());
        problems.add(
            &node.place,
            "export",
            problem,
            "write the header [[export]], in two brackets",
        );
        return Vec::new();
    };
    let mut tables = Vec::new();
    for item in items {
        match &item.value {
            Value::Table(table) => {
                // A header's own place is not kept by the parser: the first key's is next to it.
                let place = table.entries.first().map_or(&item.place, |entry| &entry.place);
                tables.push((place.clone(), table));
            }
            other => {
                let problem = format!("{} is not an export", other.kind());
                problems.add(&item.place, "export", problem, "write the header [[export]]");
            }
        }
    }
    tables
}
