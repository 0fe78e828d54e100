//! Where a configuration comes from: a file, arguments, or arguments over a file. Kept for reloads.

use std::{env, path::Path};

use super::arguments::ServeArguments;
use crate::config::{
    Config, Machine, Place, Problems, from_tree,
    load::{name_of, read_file},
    tree::{Node, Table, Value},
};

/// A source that can be read again.
#[derive(Debug, Clone)]
pub struct Source {
    arguments: ServeArguments,
}

impl Source {
    /// These arguments, and the file that they name.
    pub fn new(arguments: ServeArguments) -> Self {
        Self { arguments }
    }

    /// Only this file: what `serve --config FILE` reads.
    pub fn of_file(path: &Path) -> Self {
        Self::new(ServeArguments { config: Some(path.to_owned()), ..ServeArguments::default() })
    }

    /// Whether there is a file that may have changed.
    pub fn has_file(&self) -> bool {
        self.arguments.config.is_some()
    }

    /// Read and check it.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self, machine: &Machine) -> Result<Config, Problems> {
        let (name, mut tree) = match &self.arguments.config {
            Some(path) => read_file(path)?,
            None => ("command line".to_owned(), Table::default()),
        };
        lay_over(&self.arguments, &mut tree)?;
        from_tree(&name, &tree, machine)
    }
}

/// Put the arguments in place of what the file says.
fn lay_over(arguments: &ServeArguments, tree: &mut Table) -> Result<(), Problems> {
    let mut problems = Problems::default();
    for export in &arguments.exports {
        match export_table(export) {
            Ok(table) => tree.append("export", Place::Argument("--export"), table),
            Err((problem, fix)) => {
                problems.add(&Place::Argument("--export"), "export", problem, fix);
            }
        }
    }
    listen(tree, "tcp", "--tcp", &arguments.tcp);
    listen(tree, "rdma", "--rdma", &arguments.rdma);
    let words = [
        ("portmap", "mode", "--portmap", &arguments.portmap),
        ("log", "level", "--log", &arguments.log),
        ("log", "format", "--log-format", &arguments.log_format),
    ];
    for (section, key, argument, word) in words {
        if let Some(word) = word {
            tree.set_in(section, key, Place::Argument(argument), Value::Text(word.clone()));
        }
    }
    if let Some(lanes) = arguments.lanes {
        tree.set_in("server", "lanes", Place::Argument("--lanes"), Value::Integer(lanes));
    }
    if let Some(state_dir) = &arguments.state_dir {
        let path = Value::Text(absolute(state_dir));
        tree.set_in("server", "state_dir", Place::Argument("--state-dir"), path);
    }
    for_every_export(arguments, tree);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn listen(tree: &mut Table, section: &str, argument: &'static str, addresses: &[String]) {
    let place = Place::Argument(argument);
    let off = addresses == ["off"];
    if off && section == "rdma" {
        tree.set_in(section, "enabled", place, Value::Text("no".to_owned()));
    } else if !addresses.is_empty() {
        let node = |text: &String| Node::new(place.clone(), Value::Text(text.clone()));
        let list = if off { Vec::new() } else { addresses.iter().map(node).collect() };
        tree.set_in(section, "listen", place, Value::List(list));
    }
}

/// `/NAME=DIR` as a table.
fn export_table(argument: &str) -> Result<Value, (String, String)> {
    let place = Place::Argument("--export");
    let example = "write the name and the directory: --export /data=/srv/data";
    let (path, directory) = argument
        .split_once('=')
        .filter(|(path, directory)| !path.is_empty() && !directory.is_empty())
        .ok_or_else(|| (format!("`{argument}` is not /NAME=DIR"), example.to_owned()))?;
    let mut table = Table::default();
    table.set("path", place.clone(), Value::Text(path.to_owned()));
    if directory == "memory" {
        table.set("backend", place, Value::Text("memory".to_owned()));
    } else {
        table.set("directory", place, Value::Text(absolute(Path::new(directory))));
    }
    Ok(Value::Table(table))
}

/// The arguments that hold for all exports, whether from the file or the command line.
fn for_every_export(arguments: &ServeArguments, tree: &mut Table) {
    let exports = tree.entries.iter_mut().find(|entry| entry.key == "export");
    let Some(Value::List(exports)) = exports.map(|entry| &mut entry.node.value) else { return };
    for export in exports {
        let Value::Table(export) = &mut export.value else { continue };
        let is_memory = matches!(export.get("backend"), Some(Node { value: Value::Text(backend), .. })
            if backend == "memory");
        if let Some(squash) = &arguments.squash {
            export.set("squash", Place::Argument("--squash"), Value::Text(squash.clone()));
        }
        if arguments.read_only {
            export.set("read_only", Place::Argument("--read-only"), Value::Flag(true));
        }
        if let Some(io) = arguments.io.as_ref().filter(|_| !is_memory) {
            export.set("io", Place::Argument("--io"), Value::Text(io.clone()));
        }
        if !arguments.clients.is_empty() {
            let place = Place::Argument("--clients");
            let node = |text: &String| Node::new(place.clone(), Value::Text(text.clone()));
            let list = arguments.clients.iter().map(node).collect();
            export.set("clients", place.clone(), Value::List(list));
        }
    }
}

/// A path as the shell's user means it: relative to the current directory.
fn absolute(path: &Path) -> String {
    let base = env::current_dir().unwrap_or_default();
    base.join(path).to_string_lossy().into_owned()
}

/// The name by which messages call a source.
impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.arguments.config {
            Some(path) => f.write_str(&name_of(path)),
            None => f.write_str("the command line"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{
        cli::arguments::{Arguments, Command},
        config::{
            machine::tests::machine,
            schema::{BackendConfig, IoMode, Portmap, RdmaMode},
        },
        exports::Squash,
    };

    fn load(arguments: &[&str]) -> Result<Config, String> {
        let all = ["aqueduct", "serve"].into_iter().chain(arguments.iter().copied());
        let Command::Serve(serve) = Arguments::try_parse_from(all).unwrap().command else {
            panic!()
        };
        Source::new(*serve).load(&machine()).map_err(|problems| problems.to_string())
    }

    #[test]
    fn arguments_alone_make_a_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let export = format!("/data={}", dir.path().display());
        let config = load(&["--export", &export]).unwrap();
        assert_eq!(config.tcp.listen, ["[::]:2049".parse().unwrap()]);
        assert_eq!(config.rdma.listen, ["[::]:20049".parse().unwrap()]);
        assert_eq!(config.rdma.mode, RdmaMode::Auto);
        assert_eq!(config.portmap, Portmap::Register);
        let data = &config.exports[0];
        assert_eq!((data.settings.path.as_str(), data.settings.squash), ("/data", Squash::Root));

        let scratch = ["--export", "/scratch=memory"];
        let more = ["--squash", "all", "--read-only", "--io", "direct", "--tcp", "127.0.0.1:12049"];
        let last = ["--rdma", "off", "--portmap", "off", "--lanes", "3", "--clients", "10.0.0.0/8"];
        let config =
            load(&[&["--export", &export], &scratch[..], &more[..], &last[..]].concat()).unwrap();
        assert_eq!(config.exports.len(), 2);
        assert!(config.exports.iter().all(|export| export.settings.read_only));
        assert!(config.exports.iter().all(|export| export.settings.squash == Squash::All));
        let BackendConfig::Local(local) = &config.exports[0].backend else { panic!() };
        assert_eq!(local.io, IoMode::Direct);
        assert!(matches!(config.exports[1].backend, BackendConfig::Memory { .. }));
        assert_eq!(config.tcp.listen, ["127.0.0.1:12049".parse().unwrap()]);
        assert_eq!((config.rdma.mode, config.server.lanes), (RdmaMode::No, 3));
    }

    #[test]
    fn arguments_are_checked_as_a_file_is() {
        for (arguments, message) in [
            (
                &[][..],
                "command line: export: nothing is exported; add an [[export]], or give --export /NAME=DIRECTORY",
            ),
            (
                &["--export", "/data"],
                "--export: `/data` is not /NAME=DIR; write the name and the directory: --export /data=/srv/data",
            ),
            (
                &["--export", "data=memory"],
                "--export: `data` does not begin with a slash; write \"/data\"",
            ),
            (
                &["--export", "/a=/nowhere/at/all"],
                "--export: there is no directory /nowhere/at/all (there is /); `mkdir -p /nowhere/at/all`, or correct the path",
            ),
            (
                &["--export", "/a=memory", "--squash", "rot"],
                "--squash: `rot` is not possible here; did you mean \"root\"?",
            ),
            (
                &["--export", "/a=memory", "--lanes", "0"],
                "--lanes: 0 is out of bounds; give a number from 1 to 256, or \"auto\"",
            ),
            (
                &["--export", "/a=memory", "--tcp", "2049"],
                "--tcp: `2049` is not an address with a port; write an IP address and a port: \"0.0.0.0:2049\", \"[::]:2049\"",
            ),
            (
                &["--export", "/a=memory", "--tcp", "off", "--rdma", "off"],
                "command line: tcp.listen: there is no transport to serve; set tcp.listen or rdma.enabled",
            ),
        ] {
            assert_eq!(load(arguments).unwrap_err(), message, "{arguments:?}");
        }
    }

    #[test]
    fn arguments_go_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        let text = "[server]\nlanes = 2\n[[export]]\npath = \"/a\"\nbackend = \"memory\"\nsquash = \"none\"\n";
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let config = load(&["--config", file]).unwrap();
        assert_eq!((config.server.lanes, config.exports.len()), (2, 1));
        assert_eq!(config.exports[0].settings.squash, Squash::None);
        let over = ["--config", file, "--lanes", "4", "--export", "/b=memory", "--squash", "root"];
        let config = load(&over).unwrap();
        assert_eq!((config.server.lanes, config.exports.len()), (4, 2));
        assert!(config.exports.iter().all(|export| export.settings.squash == Squash::Root));
    }
}
