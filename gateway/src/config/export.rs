//! One `[[export]]`: its keys, bounds and defaults.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::{
    de::Wrong,
    problem::{Problems, shown},
    read::Part,
    schema::{BackendConfig, ExportConfig, IoMode, LocalConfig},
    value::{AbsolutePath, Number, Size},
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

/// `[[export]]`, all of them.
#[derive(Debug, Default)]
pub struct Exports(pub Vec<ExportKeys>);

impl<'de> Deserialize<'de> for Exports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Exports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of exports; write the header [[export]], in two brackets")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Exports, A::Error> {
                let mut exports = Vec::new();
                while let Some(export) = items.next_element()? {
                    exports.push(export);
                }
                Ok(Exports(exports))
            }
        }
        deserializer.deserialize_any(List)
    }
}

/// 4294967295 is "no id" to the kernel.
type Id = Number<u32, 0, { u32::MAX as u64 - 1 }>;

/// One export as it is written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an export; write the header [[export]]")]
pub struct ExportKeys {
    path: ExportPath,
    id: Option<Number<u32, 1, { u32::MAX as u64 }>>,
    backend: Kind,
    read_only: bool,
    clients: Clients,
    squash: Squash,
    anonymous_uid: Id,
    anonymous_gid: Id,
    reserved_port: bool,
    allow_overlap: bool,
    directory: AbsolutePath,
    io: IoMode,
    sync: bool,
    local_writers: bool,
    memory: Size<u64, { 1 << 20 }, { 1 << 40 }>,
}

impl Default for ExportKeys {
    fn default() -> Self {
        Self {
            path: ExportPath::default(),
            id: None,
            backend: Kind::Local,
            read_only: false,
            clients: Clients(private(Rights::ReadWrite)),
            squash: Squash::default(),
            anonymous_uid: Number(ANONYMOUS),
            anonymous_gid: Number(ANONYMOUS),
            reserved_port: false,
            allow_overlap: false,
            directory: AbsolutePath::default(),
            io: IoMode::Buffered,
            sync: true,
            local_writers: false,
            memory: Size(1 << 28),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Local,
    Memory,
}

/// Keys that only one kind of backend has.
const LOCAL_KEYS: [&str; 4] = ["directory", "io", "sync", "local_writers"];
const MEMORY_KEYS: [&str; 1] = ["memory"];

/// Check one export. `None` when it lacks what nothing can be said without.
pub fn export(problems: &mut Problems, part: &Part<'_>, keys: ExportKeys) -> Option<ExportConfig> {
    let has_path = written(problems, part, "path", "\"/data\"");
    let backend = backend(problems, part, &keys)?;
    let ExportPath(path) = keys.path;
    if !has_path {
        return None;
    }
    let origin = match &backend {
        BackendConfig::Local(local) => format!("local {}", local.directory.display()),
        BackendConfig::Memory { .. } => format!("memory {path}"),
    };
    let settings = ExportSettings {
        id: keys.id.map_or_else(|| derived_id(&path), |id| id.0),
        path,
        origin,
        read_only: keys.read_only,
        squash: keys.squash,
        anonymous_uid: keys.anonymous_uid.0,
        anonymous_gid: keys.anonymous_gid.0,
        clients: ClientRules::new(keys.clients.0),
        require_reserved_port: keys.reserved_port,
    };
    Some(ExportConfig { settings, backend, allow_overlap: keys.allow_overlap })
}

/// Whether a key that must be there is there and good. Says so if it is missing.
fn written(problems: &mut Problems, part: &Part<'_>, key: &str, example: &str) -> bool {
    if !part.has(key) {
        part.wrong(problems, key, "this key is missing", format!("add {key} = {example}"));
    }
    part.has(key) && !part.refused(key)
}

fn backend(problems: &mut Problems, part: &Part<'_>, keys: &ExportKeys) -> Option<BackendConfig> {
    if part.refused("backend") {
        return None;
    }
    let (misplaced, needed): (&[&str], _) = match keys.backend {
        Kind::Local => (&MEMORY_KEYS, "memory"),
        Kind::Memory => (&LOCAL_KEYS, "local"),
    };
    for key in misplaced.iter().filter(|key| part.has(key)) {
        let problem = format!("this key is only for backend = \"{needed}\"");
        part.wrong(problems, key, problem, "remove it");
    }
    if keys.backend == Kind::Memory {
        return Some(BackendConfig::Memory { bytes_max: keys.memory.0 });
    }
    if !written(problems, part, "directory", "\"/srv/data\"") {
        return None;
    }
    let directory = directory(&keys.directory.0)
        .map_err(|wrong| part.wrong(problems, "directory", wrong.problem, wrong.fix))
        .ok()?;
    Some(BackendConfig::Local(LocalConfig {
        directory,
        io: keys.io,
        metadata_sync: keys.sync,
        local_writers: keys.local_writers,
    }))
}

/// The name under which clients mount it, normalized.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "String")]
struct ExportPath(String);

impl TryFrom<String> for ExportPath {
    type Error = Wrong;

    fn try_from(written: String) -> Result<Self, Wrong> {
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
        Ok(Self(format!("/{}", names.join("/"))))
    }
}

/// A directory that is there and can be listed; canonical, so that two names of one are seen to be one.
fn directory(path: &Path) -> Result<PathBuf, Wrong> {
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

/// Who may use it.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Vec<Client>")]
struct Clients(Vec<ClientRule>);

impl TryFrom<Vec<Client>> for Clients {
    type Error = Wrong;

    fn try_from(written: Vec<Client>) -> Result<Self, Wrong> {
        let rules: Vec<ClientRule> = written.into_iter().flat_map(|client| client.0).collect();
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
        Ok(Self(rules))
    }
}

/// `"10.0.0.0/8"`, `"10.0.0.9 ro"`, `"build.example.com rw"`, `"*"`, `"private"`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Client(Vec<ClientRule>);

impl TryFrom<String> for Client {
    type Error = Wrong;

    fn try_from(written: String) -> Result<Self, Wrong> {
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
        let one = |pattern| Ok(Self(vec![ClientRule { pattern, rights }]));
        match pattern {
            "*" => return one(Pattern::Any),
            "private" => return Ok(Self(private(rights))),
            _ => {}
        }
        match pattern.parse::<Network>() {
            Ok(network) => one(Pattern::Network(network)),
            Err(NetworkError::Address(_)) if is_host_name(pattern) => {
                one(Pattern::Host { name: pattern.to_ascii_lowercase(), addresses: Vec::new() })
            }
            Err(NetworkError::HostBits(_, network)) => Err(Wrong::new(
                format!("`{pattern}` has bits set beyond its prefix"),
                format!(
                    "write \"{network}\" for the network, or leave the prefix out for the address"
                ),
            )),
            Err(NetworkError::Prefix(network, most)) => Err(Wrong::new(
                format!("`{}` is no network: its prefix length is out of bounds", shown(&network)),
                format!("write a number from 0 to {most} after the slash"),
            )),
            Err(NetworkError::Address(_)) => Err(Wrong::new(
                format!("`{}` is neither an address, a network nor a host name", shown(pattern)),
                "write \"10.0.0.9\", \"10.0.0.0/8\", \"fd00::/8\", \"build.example.com\", \"private\" or \"*\"",
            )),
        }
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
