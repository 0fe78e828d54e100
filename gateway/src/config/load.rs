//! The one way from text and arguments to a configuration. `serve`, `check-config` and a reload all go
//! through [`from_tree`], so they accept and refuse exactly the same.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    check, export,
    machine::Machine,
    memory::MemorySum,
    problem::{Place, Problems},
    read::{Part, read},
    schema::Config,
    sections::{self, Written},
    tree::{self, Node, Table},
};

/// Read and check a file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn from_file(path: &Path, machine: &Machine) -> Result<Config, Problems> {
    let (name, tree) = read_file(path)?;
    from_tree(&name, &tree, machine)
}

/// What stands for standard input in place of a file.
const STANDARD_INPUT: &str = "-";

/// Read a file, or standard input for `-`, as far as its tree, for arguments to be laid over it.
///
/// # Errors
/// When it cannot be read or is no TOML.
pub fn read_file(path: &Path) -> Result<(String, Table), Problems> {
    let is_input = path == Path::new(STANDARD_INPUT);
    let name = name_of(path);
    let refused = |problem: String, fix: &str| {
        let mut problems = Problems::default();
        problems.add(&Place::Whole(Arc::from(name.as_str())), "", problem, fix);
        problems
    };
    let read = if is_input { whole_input() } else { fs::read(path) };
    let bytes = read.map_err(|error| {
        refused(format!("cannot read the file ({error})"), &unreadable(path, &error))
    })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| refused("the file is not UTF-8 text".to_owned(), "save it as UTF-8"))?;
    let tree = tree::parse(&name, &text)?;
    Ok((name, tree))
}

/// What messages call a file.
pub fn name_of(path: &Path) -> String {
    if path == Path::new(STANDARD_INPUT) {
        return "standard input".to_owned();
    }
    path.display().to_string()
}

/// Standard input, which is there once: what a reload found in it would be an empty file.
fn whole_input() -> io::Result<Vec<u8>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err(io::Error::other("it has been read before"));
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What to do about a file that cannot be read.
fn unreadable(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        _ if path == Path::new(STANDARD_INPUT) => "give a file, which can be read again".to_owned(),
        io::ErrorKind::IsADirectory => {
            let file = configuration_in(path).unwrap_or_else(|| path.join("aqueduct.toml"));
            format!("this is a directory: give the file in it, like {}", file.display())
        }
        io::ErrorKind::PermissionDenied => {
            "give its reader the right to read it and to search the directories above it, or be root".to_owned()
        }
        _ => "`aqueduct example-config` prints one to begin with".to_owned(),
    }
}

/// The first file in a directory whose name says that it is a configuration.
fn configuration_in(directory: &Path) -> Option<PathBuf> {
    let paths = fs::read_dir(directory).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|end| end == "toml")).min()
}

/// Check a text. `name` is what messages call it.
///
/// # Errors
/// Everything that is wrong with it.
pub fn from_text(name: &str, text: &str, machine: &Machine) -> Result<Config, Problems> {
    from_tree(name, &tree::parse(name, text)?, machine)
}

/// Check a tree.
///
/// # Errors
/// Everything that is wrong with it.
pub fn from_tree(name: &str, tree: &Table, machine: &Machine) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let whole = Place::Whole(Arc::from(name));
    let tree = tree.clone();
    let Some(written) = read::<Written>(&mut problems, &whole, &tree) else {
        return Err(problems);
    };
    let part = |name| Part::new(name, &whole, tree.get(name));
    let mut config = Config {
        server: sections::server(&mut problems, &part("server"), written.server, machine),
        tcp: written.tcp,
        rdma: written.rdma,
        portmap: sections::portmap(&mut problems, &part("portmap"), written.portmap),
        limits: written.limits,
        log: written.log,
        exports: Vec::new(),
        memory: MemorySum::default(),
    };
    sections::rdma(&mut problems, &part("rdma"), &config.rdma, machine);
    sections::limits(&mut problems, &part("limits"), &config.limits);
    let mut placed = check::Placed::new();
    let exports = tree.get("export").into_iter().flat_map(Node::items);
    for (node, keys) in exports.zip(written.export.0) {
        let part = Part::new("export", &whole, Some(node));
        let checked = export::export(&mut problems, &part, keys);
        placed.extend(checked.map(|export| (part.place().clone(), export)));
    }
    check::exports(&mut problems, &placed);
    config.exports = placed.into_iter().map(|(_, export)| export).collect();
    config.memory = MemorySum::of(&config, machine);
    check::whole(&mut problems, &whole, &config, machine);
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
        time::Duration,
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{
        cli::run::EXAMPLE_CONFIG,
        config::{
            machine::tests::machine,
            schema::{BackendConfig, IoMode, Pinning, StateDir},
        },
        exports::{Rights, Squash},
    };

    const MEMORY: &str = "[[export]]\npath = \"/m\"\nid = 9\nbackend = \"memory\"\n";

    fn problems(text: &str) -> String {
        from_text("a.toml", text, &machine()).unwrap_err().to_string()
    }

    #[test]
    fn messages_name_place_key_problem_and_fix() {
        for (text, message) in [
            (
                "[server]\nlanse = 3\n",
                "a.toml:2: server.lanse: there is no key of this name; did you mean `lanes`?",
            ),
            (
                "[sever]\n",
                "a.toml:1: sever: there is no section of this name; did you mean `server`?",
            ),
            (
                "[log]\nx9x9x9 = 1\n",
                "a.toml:2: log.x9x9x9: there is no key of this name; known here: level, format",
            ),
            (
                "[server]\nlanes = 0\n",
                "a.toml:2: server.lanes: 0 is out of bounds; give a number from 1 to 256, or \"auto\"",
            ),
            (
                "[server]\nlanes = true\n",
                "a.toml:2: server.lanes: true or false is not a whole number (without quotes); give a whole number (without quotes), or \"auto\"",
            ),
            (
                "[server]\ncpus = [0, 99]\nlanes = 2\n",
                "a.toml:2: server.cpus: the gateway may not run on processor 99; there are 0, 1, 2, 3, 4, 5, 6, 7",
            ),
            (
                "[server]\ncpus = [0, \"one\"]\nlanes = 2\n",
                "a.toml:2: server.cpus: this says no processors; give a list like [2, 3], \"auto\" or \"none\"",
            ),
            (
                "[server]\ncpus = [0]\nlanes = 2\n",
                "a.toml:2: server.cpus: there are 1 processors for 2 lanes; list 2, or set server.lanes",
            ),
            (
                "[server]\nstate_dir = \"state\"\n",
                "a.toml:2: server.state_dir: `state` is not an absolute path; begin it with a slash",
            ),
            (
                "[server]\nspin = 50\n",
                "a.toml:2: server.spin: a duration needs a unit; add the unit: \"50s\", \"50ms\"",
            ),
            (
                "[server]\npayload_memory = \"64MB\"\n",
                "a.toml:2: server.payload_memory: `64MB` is not a size; did you mean \"64MiB\"?, or \"auto\"",
            ),
            (
                "[tcp]\nlisten = [\n  \"[::]:2049\",\n  \"10.0.0.1\",\n]\n",
                "a.toml:4: tcp.listen: `10.0.0.1` is not an address with a port; add the port: \"10.0.0.1:2049\"",
            ),
            (
                "[rdma]\nenabled = \"yess\"\n",
                "a.toml:2: rdma.enabled: `yess` is not possible here; did you mean \"yes\"?",
            ),
            (
                "[rdma]\ndevices = [\"mlx5_1\"]\n",
                "a.toml:2: rdma.devices: there is no RDMA device `mlx5_1`; there are mlx5_0",
            ),
            (
                "[rdma]\ninline_bytes = 1024\n",
                "a.toml:2: rdma.inline_bytes: 1 KiB is out of bounds; give a size from 4 KiB to 64 KiB",
            ),
            (
                "[portmap]\nlisten = \"[::]:111\"\n",
                "a.toml:2: portmap.listen: this address is used only by mode = \"serve\"; remove it, or set the mode",
            ),
            (
                "[limits]\nrecord_bytes_max = \"2MiB\"\n",
                "a.toml:2: limits.record_bytes_max: 2 MiB is out of bounds; give a size from 64 KiB to 1 MiB",
            ),
            (
                "[log]\nlevel = \"inof\"\n",
                "a.toml:2: log.level: `inof` is not possible here; did you mean \"info\"?",
            ),
            (
                "server = 3\n",
                "a.toml:1: server: a number is not a section; write the header [server]",
            ),
            (
                "[export]\npath = \"/a\"\n",
                "a.toml:1: export: a table is not a list of exports; write the header [[export]], in two brackets",
            ),
        ] {
            assert_eq!(
                problems(&format!(
                    "{text}{}",
                    if text.starts_with("[export]") { "" } else { MEMORY }
                )),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn messages_about_exports() {
        for (text, message) in [
            (
                "",
                "a.toml: export: nothing is exported; add an [[export]], or give --export /NAME=DIRECTORY",
            ),
            (
                "[[export]]\nbackend = \"memory\"\n",
                "a.toml:2: export.path: this key is missing; add path = \"/data\"",
            ),
            (
                "[[export]]\npath = \"/a\"\n",
                "a.toml:2: export.directory: this key is missing; add directory = \"/srv/data\"",
            ),
            (
                "[[export]]\npath = \"a\"\nbackend = \"memory\"\n",
                "a.toml:2: export.path: `a` does not begin with a slash; write \"/a\"",
            ),
            (
                "[[export]]\npath = \"/a/../b\"\nbackend = \"memory\"\n",
                "a.toml:2: export.path: `/a/../b` has \".\", \"..\" or a very long name in it; write plain names of at most 255 bytes between the slashes",
            ),
            (
                "[[export]]\npath = \"/a\"\ndirectory = \"/nowhere/at/all\"\n",
                "a.toml:3: export.directory: there is no directory /nowhere/at/all (there is /); `mkdir -p /nowhere/at/all`, or correct the path",
            ),
            (
                "[[export]]\npath = \"/a\"\ndirectory = \"/proc/self/status\"\n",
                "a.toml:3: export.directory: /proc/self/status is not a directory; export the directory it is in",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nio = \"direct\"\n",
                "a.toml:4: export.io: this key is only for backend = \"local\"; remove it",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nanonymous_uid = 4294967295\n",
                "a.toml:4: export.anonymous_uid: 4294967295 is out of bounds; give a number from 0 to 4294967294",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nclients = []\n",
                "a.toml:4: export.clients: nobody may use this export; list addresses, networks or host names; \"*\" is everybody",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nclients = [\"10.1.0.0/8\"]\n",
                "a.toml:4: export.clients: `10.1.0.0/8` has bits set beyond its prefix; write \"10.0.0.0/8\" for the network, or leave the prefix out for the address",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nclients = [\"10.0.0.0/33\"]\n",
                "a.toml:4: export.clients: `10.0.0.0/33` is no network: its prefix length is out of bounds; write a number from 0 to 32 after the slash",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nclients = [\"10.0.0.1\", \"::ffff:10.0.0.1\"]\n",
                "a.toml:4: export.clients: there are two rules for 10.0.0.1; remove one",
            ),
            (
                "[[export]]\npath = \"/a\"\nbackend = \"memory\"\nclients = [\"10.0.0.1 rx\"]\n",
                "a.toml:4: export.clients: `10.0.0.1 rx` is not a client rule; write a client and perhaps ro or rw: \"10.0.0.9 ro\"",
            ),
            (
                "[[export]]\npath = \"/m/\"\nbackend = \"memory\"\n",
                "a.toml:5: export.path: /m is exported at a.toml:2 already; give one of the two another path",
            ),
            (
                "[[export]]\npath = \"/o\"\nid = 9\nbackend = \"memory\"\n",
                "a.toml:6: export.id: the id 9 of /m is that of /o (a.toml:2); set another id on the newer of the two",
            ),
            (
                "[[export]]\npath = \"/m/n\"\nbackend = \"memory\"\n",
                "a.toml:5: export.path: the paths /m and /m/n (a.toml:2) lie one in the other; separate them, or set allow_overlap = true on one of them if that is what you want",
            ),
        ] {
            let text = if text.is_empty() { String::new() } else { format!("{text}{MEMORY}") };
            assert_eq!(problems(&text).lines().next().unwrap_or(""), message, "{text}");
        }
    }

    #[test]
    fn a_dash_is_standard_input() {
        // This test again, in another process, which is given a configuration.
        if std::env::var_os("AQUEDUCT_INPUT").is_some() {
            let config = from_file(Path::new("-"), &machine()).map(|config| config.exports.len());
            println!("read={config:?} ");
            println!("again={} ", from_file(Path::new("-"), &machine()).unwrap_err());
            return;
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        let name = "config::load::tests::a_dash_is_standard_input";
        again.args(["--exact", "--nocapture", name]).env("AQUEDUCT_INPUT", "yes");
        let mut child = again.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let text = b"[[export]]\npath = \"/a\"\nbackend = \"memory\"\n";
        child.stdin.take().unwrap().write_all(text).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("read=Ok(1)"), "{said}");
        assert!(said.contains("it has been read before") && said.contains("give a file"), "{said}");
        assert_eq!(name_of(Path::new("-")), "standard input");
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_told_which_file_to_give() {
        let dir = tempfile::tempdir().unwrap();
        let said = || from_file(dir.path(), &machine()).unwrap_err().to_string();
        assert!(said().contains("this is a directory"), "{}", said());
        assert!(said().ends_with("/aqueduct.toml"), "{}", said());
        fs::write(dir.path().join("nfs.toml"), "").unwrap();
        assert!(said().ends_with("/nfs.toml"), "{}", said());
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = "[server]\nlanes = 0\nspin = 1\n[tcp]\nlisten = 3\n[[export]]\nid = 1\n";
        assert_eq!(problems(text).lines().count(), 5, "{}", problems(text));
        let text = "[log]\nlevel = 3\n[tcp]\nlisten = []\n[rdma]\nenabled = false\n";
        assert_eq!(
            problems(text),
            "a.toml:2: log.level: a number is not a string in quotes; give a string in quotes\n\
             a.toml: export: nothing is exported; add an [[export]], or give --export /NAME=DIRECTORY\n\
             a.toml: tcp.listen: there is no transport to serve; set tcp.listen or rdma.enabled"
        );
    }

    #[test]
    fn every_key_and_every_item_is_said_once() {
        let text = "serve = 1\nlog = 3\n[sever]\n[server]\nlanes = 0\ncpus = [9, \"x\", 99]\nlanse = 2\n\
                    [tcp]\nlisten = [\"a\", \"[::]:1\",\n \"b\"]\n[portmap]\nmode = \"sevre\"\nlisten = \"[::]:111\"\n\
                    [rdma]\ndevices = [\"mlx5_0\", \"a/b\",\n \"mlx5_1\"]\n\
                    [[export]]\npath = \"a\"\nbackend = \"memroy\"\nclients = [\"10.0.0.1 rx\"]\nmemory = \"1B\"\n";
        let said = problems(text);
        let said: Vec<&str> = said.lines().filter_map(|line| line.split("; ").next()).collect();
        assert_eq!(
            said,
            [
                "a.toml:1: serve: there is no key of this name",
                "a.toml:2: log: a number is not a section",
                "a.toml:3: sever: there is no section of this name",
                "a.toml:5: server.lanes: 0 is out of bounds",
                "a.toml:6: server.cpus: this says no processors",
                "a.toml:7: server.lanse: there is no key of this name",
                "a.toml:9: tcp.listen: `a` is not an address with a port",
                "a.toml:10: tcp.listen: `b` is not an address with a port",
                "a.toml:12: portmap.mode: `sevre` is not possible here",
                "a.toml:15: rdma.devices: `a/b` is not the name of an RDMA device",
                "a.toml:18: export.path: `a` does not begin with a slash",
                "a.toml:19: export.backend: `memroy` is not possible here",
                "a.toml:20: export.clients: `10.0.0.1 rx` is not a client rule",
                "a.toml:21: export.memory: 1 B is out of bounds",
                "a.toml:16: rdma.devices: there is no RDMA device `mlx5_1`",
            ]
        );
    }

    #[test]
    fn what_is_wrong_with_very_many_keys_has_an_end() {
        let keys = (0..1000).fold(String::new(), |text, key| format!("{text}x{key} = 1\n"));
        let said = problems(&keys);
        assert!(said.lines().count() <= 101);
        assert!(said.ends_with("a.toml: there is more; correct this first"), "{said}");
    }

    #[test]
    fn an_export_that_is_wrong_does_not_shift_the_places_of_the_next() {
        let text = "export = [3, { path = \"/a\", backend = \"memory\" },\n { path = \"/b\" }]\n";
        assert_eq!(
            problems(text),
            "a.toml:1: export: a number is not an export; write the header [[export]]\n\
             a.toml:2: export.directory: this key is missing; add directory = \"/srv/data\""
        );
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_line() {
        let message = problems("[server]\nlanes = \n");
        assert!(message.starts_with("a.toml:2: not TOML: "), "{message}");
        let message = problems("[log]\nlevel = \"info\"\nlevel = \"warn\"\n");
        assert!(message.starts_with("a.toml:3: not TOML: duplicate key"), "{message}");
    }

    #[test]
    fn directories_that_lie_one_in_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        std::os::unix::fs::symlink(&inner, dir.path().join("link")).unwrap();
        let export = |path: &str, directory: &Path, more: &str| {
            format!(
                "[[export]]\npath = \"{path}\"\ndirectory = \"{}\"\n{more}",
                directory.display()
            )
        };
        let both = export("/a", dir.path(), "") + &export("/b", &inner, "");
        assert!(problems(&both).contains("lie one in the other, so that"), "{}", problems(&both));
        let linked = export("/a", &inner, "") + &export("/b", &dir.path().join("link"), "");
        assert!(problems(&linked).contains("lie one in the other, so that"));
        let allowed =
            export("/a", dir.path(), "allow_overlap = true\n") + &export("/b", &inner, "");
        assert_eq!(from_text("a.toml", &allowed, &machine()).unwrap().exports.len(), 2);
    }

    #[test]
    fn a_sum_beyond_the_most_is_refused_with_its_numbers() {
        let message = problems(&format!("[server]\nmemory_max = \"256MiB\"\n{MEMORY}"));
        assert!(message.contains("server.memory_max: the limits add up to "), "{message}");
        assert!(message.contains("more than 256 MiB (this machine has 16 GiB)"), "{message}");
        for line in ["payload buffers", "message buffers", "reply cache", "open files", "sum"] {
            assert!(message.contains(line), "{line}: {message}");
        }
        assert!(message.contains("; lower server.payload_memory, or raise server.memory_max"));
    }

    #[test]
    fn payload_memory_without_room_for_every_size_is_refused_with_what_is_needed() {
        let text =
            |memory: &str| format!("[server]\nlanes = 8\npayload_memory = \"{memory}\"\n{MEMORY}");
        let message = problems(&text("16MiB"));
        let wanted = "a.toml:3: server.payload_memory: 16 MiB are too little for 8 lanes: the share of each has \
                      no room for its buffers of 264 KiB; set at least 40 MiB, or fewer lanes";
        assert!(message.contains(wanted), "{message}");
        from_text("a.toml", &text("40MiB"), &machine()).unwrap();
    }

    #[test]
    fn the_patience_with_those_who_keep_buffers_from_others_is_checked() {
        let limits = |keys: &str| format!("[limits]\n{keys}\n{MEMORY}");
        let set = from_text("a.toml", &limits("starved_timeout = \"20s\""), &machine()).unwrap();
        assert_eq!(set.limits.starved_timeout, Duration::from_secs(20));
        for keys in ["starved_timeout = \"999ms\"", "starved_timeout = \"2h\""] {
            let message = problems(&limits(keys));
            assert!(message.contains("a.toml:2: limits.starved_timeout: "), "{message}");
        }
        let keys = "partial_record_timeout = \"3s\"\nstarved_timeout = \"4s\"";
        let message = problems(&limits(keys));
        assert!(
            message.contains("a.toml:3: limits.starved_timeout: this is longer than"),
            "{message}"
        );
        // What was not written follows.
        from_text("a.toml", &limits("partial_record_timeout = \"3s\""), &machine()).unwrap();
    }

    #[test]
    fn the_sum_adds_up_and_follows_the_limits() {
        let sum = |text: &str| {
            from_text("a.toml", &format!("{text}{MEMORY}"), &machine()).unwrap().memory
        };
        let usual = sum("");
        assert_eq!(usual.total(), usual.items.iter().map(|item| item.bytes).sum::<u64>());
        let more = sum("[limits]\nreply_cache_bytes = \"128MiB\"\n");
        assert_eq!(more.total() - usual.total(), 64 << 20);
        // Pages that clients do not take stay in memory whatever becomes of their files.
        let name = "pages being sent";
        let pages = usual.items.iter().find(|item| item.name == name).unwrap();
        assert_eq!(pages.bytes, 8 * (32 << 20), "eight lanes");
        let no_tcp = sum("[tcp]\nlisten = []\n");
        assert!(no_tcp.items.iter().all(|item| item.name != name));
    }

    #[test]
    fn the_example_is_good_and_says_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let directory = dir.path().display().to_string();
        let text = EXAMPLE_CONFIG
            .replace("\"/srv/data\"", &format!("\"{directory}\""))
            .replace("\"/var/lib/aqueduct\"", &format!("\"{directory}\""));
        let example = from_text("example.toml", &text, &machine()).unwrap();
        let bare = format!("[[export]]\npath = \"/data\"\nid = 1\ndirectory = \"{directory}\"\n");
        let mut bare = from_text("bare.toml", &bare, &machine()).unwrap();
        bare.server.state_dir = StateDir::Configured(dir.path().to_owned());
        assert_eq!(example, bare);
    }

    /// Every key that can be written is in the example.
    #[test]
    fn the_example_has_every_key() {
        for key in [
            "lanes",
            "cpus",
            "spin",
            "payload_memory",
            "memory_max",
            "state_dir",
            "blocking_threads",
            "open_files_max",
            "io_uring",
            "drain_timeout",
            "listen",
            "enabled",
            "devices",
            "inline_bytes",
            "credits",
            "connections_max",
            "mode",
            "connections_per_address_max",
            "calls_per_connection_max",
            "payload_per_connection_max",
            "record_bytes_max",
            "idle_timeout",
            "partial_record_timeout",
            "starved_timeout",
            "reply_cache_entries",
            "reply_cache_bytes",
            "level",
            "format",
            "path",
            "id",
            "backend",
            "directory",
            "read_only",
            "clients",
            "squash",
            "anonymous_uid",
            "anonymous_gid",
            "io",
            "sync",
            "local_writers",
            "reserved_port",
            "allow_overlap",
        ] {
            let start = format!("{key} = ");
            assert!(EXAMPLE_CONFIG.lines().any(|line| line.starts_with(&start)), "{key}");
        }
    }

    #[test]
    fn the_development_file_and_the_manifest_are_good() {
        let text = include_str!("../../../config/dev.toml");
        from_text("dev.toml", text, &machine()).unwrap();
        let manifest = include_str!("../../../config/kubernetes/aqueduct.yaml");
        let embedded: String = manifest
            .lines()
            .skip_while(|line| !line.contains("aqueduct.toml: |"))
            .skip(1)
            .take_while(|line| line.is_empty() || line.starts_with("    "))
            .map(|line| format!("{}\n", line.trim_start()))
            .collect();
        let dir = tempfile::tempdir().unwrap();
        let text = embedded.replace("/srv/data", &dir.path().display().to_string());
        let config = from_text("aqueduct.yaml", &text, &machine()).unwrap();
        assert_eq!(config.exports[0].settings.id, 1);
    }

    #[test]
    fn values_arrive() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\nlanes = 2\ncpus = [5, 3]\n[[export]]\npath = \"//data/\"\nid = 7\ndirectory = \"{}\"\n\
             squash = \"all\"\nclients = [\"*  ro\", \"10.0.0.0/8\", \"Build.example.com\"]\nio = \"dontcache\"\nsync = false\n",
            dir.path().display()
        );
        let config = from_text("a.toml", &text, &machine()).unwrap();
        assert_eq!(config.server.pinning, Pinning::Cpus(vec![5, 3]));
        let export = &config.exports[0];
        let settings = &export.settings;
        assert_eq!(
            (settings.id, settings.path.as_str(), settings.squash),
            (7, "/data", Squash::All)
        );
        assert_eq!(settings.clients.rights("10.2.3.4".parse().unwrap()), Some(Rights::ReadWrite));
        assert_eq!(settings.clients.rights("192.0.2.1".parse().unwrap()), Some(Rights::ReadOnly));
        assert!(
            settings.clients.iter().any(|rule| rule.pattern.to_string() == "build.example.com")
        );
        let BackendConfig::Local(local) = &export.backend else { panic!() };
        assert_eq!((local.io, local.metadata_sync), (IoMode::DontCache, false));
    }

    #[test]
    fn private_networks_are_the_default() {
        let config = from_text("a.toml", MEMORY, &machine()).unwrap();
        let rights = |text: &str| config.exports[0].settings.clients.rights(text.parse().unwrap());
        for inside in
            ["127.0.0.1", "10.77.0.1", "172.31.0.1", "192.168.1.1", "fd00::1", "fe80::1", "::1"]
        {
            assert_eq!(rights(inside), Some(Rights::ReadWrite), "{inside}");
        }
        for outside in ["8.8.8.8", "172.32.0.1", "2001:db8::1"] {
            assert_eq!(rights(outside), None, "{outside}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_panic(text in any::<String>()) {
            let _ = from_text("a.toml", &text, &machine());
        }

        #[test]
        fn no_value_of_any_key_makes_a_panic(
            section in prop::sample::select(vec!["server", "tcp", "rdma", "portmap", "limits", "log", "[export]"]),
            key in prop::sample::select(vec![
                "lanes", "cpus", "spin", "payload_memory", "memory_max", "state_dir", "listen", "enabled",
                "devices", "inline_bytes", "credits", "connections_max", "mode",
                "record_bytes_max", "idle_timeout", "level", "path", "id", "directory", "clients",
                "anonymous_uid", "backend", "memory", "squash", "blocking_threads", "open_files_max",
            ]),
            value in prop_oneof![
                any::<i64>().prop_map(|number| number.to_string()),
                any::<bool>().prop_map(|flag| flag.to_string()),
                "[0-9]{1,20}[ ]?[a-zA-Z]{0,4}".prop_map(|text| format!("{text:?}")),
                "[0-9a-f:./ *\\[\\]]{0,24}".prop_map(|text| format!("[{text:?}]")),
                Just("[[[1.5]]]".to_owned()),
                Just("1979-05-27".to_owned()),
                Just("{ a = 1 }".to_owned()),
            ],
        ) {
            let _ = from_text("a.toml", &format!("[{section}]\n{key} = {value}\n"), &machine());
        }
    }
}
