//! The repository keeps the house rules.

use aqueduct_tests::tidy::{
    fences, imports,
    layers::Layers,
    ledger::{LONG_FILES, LONG_FUNCTIONS, LONG_LINES, UNSAFE_ALLOWED},
    repository, shape,
    source::{Source, Violation, has_word},
};

fn sources() -> Vec<Source> {
    let files = repository::files();
    let rust = files.iter().filter(|path| path.ends_with(".rs"));
    let sources: Vec<_> = rust.map(|path| Source::new(path, &repository::read(path))).collect();
    assert!(sources.len() > 50, "only {} sources found: is this the repository?", sources.len());
    sources
}

fn report(rule: &str, check: impl Fn(&Source) -> Vec<Violation>) {
    let violations: Vec<_> = sources().iter().flat_map(check).collect();
    assert!(violations.is_empty(), "{rule}:\n{}", violations.join("\n"));
}

#[test]
fn nobody_calls_upward() {
    report(
        "imports go downward: gateway, then rpc-rdma and backends, then buffers",
        imports::upward,
    );
    let manifests = repository::files().into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let violations: Vec<_> =
        manifests.flat_map(|path| imports::manifest(&path, &repository::read(&path))).collect();
    assert!(violations.is_empty(), "dependencies go downward:\n{}", violations.join("\n"));
}

#[test]
fn modules_stand_in_the_order_that_their_crate_says() {
    let sources = sources();
    let layered = sources.iter().filter_map(|lib| Some((lib, Layers::of(lib)?)));
    let mut crates = Vec::new();
    let mut violations = Vec::new();
    for (lib, layers) in layered {
        crates.push(lib.path.as_str());
        violations.extend(layers.listing(lib));
        violations.extend(sources.iter().flat_map(|source| layers.upward(source)));
    }
    assert_eq!(crates, ["backends/src/lib.rs", "gateway/src/lib.rs", "rpc-rdma/src/lib.rs"]);
    assert!(violations.is_empty(), "uses go downward:\n{}", violations.join("\n"));
}

#[test]
fn the_protocol_engine_is_sans_io() {
    report("time and input are parameters of the protocol engine", imports::sans_io);
}

#[test]
fn unsafe_code_is_fenced() {
    report("unsafe code belongs into a fence, or into the ledger with a reason", fences::unsafety);
}

#[test]
fn files_are_documented() {
    report("each file says what it is for", shape::documentation);
}

#[test]
fn files_are_short() {
    report("split the file by its nouns", shape::file_length);
}

#[test]
fn functions_are_short() {
    report("split the function", shape::function_length);
}

#[test]
fn lines_fit_the_page() {
    report("break the line", shape::line_length);
}

#[test]
fn nothing_is_unfinished() {
    report("finish it or open an issue", shape::unfinished);
}

#[test]
fn names_say_something() {
    report("name it after what is inside", shape::names);
}

#[test]
fn the_ledger_only_shrinks() {
    let sources = sources();
    let find = |path: &str| sources.iter().find(|source| source.path == path);
    for (path, _) in UNSAFE_ALLOWED {
        let needed = find(path).is_some_and(|source| has_word(&source.code, "unsafe"));
        assert!(needed, "{path} needs no exception for unsafe code any more");
    }
    for (path, _) in LONG_FILES {
        let long = |source: &Source| source.lines_before_tests() > shape::FILE_LINES_MAX;
        assert!(find(path).is_some_and(long), "{path} is not too long any more");
    }
    for path in LONG_LINES {
        let long = |source: &Source| !shape::long_lines(source).is_empty();
        assert!(find(path).is_some_and(long), "{path} has no lines that are too long any more");
    }
    for (path, name) in LONG_FUNCTIONS {
        let long = |source: &Source| shape::long_functions(source).iter().any(|f| f.name == *name);
        assert!(find(path).is_some_and(long), "`{name}` in {path} is not too long any more");
    }
}
