//! Who may use whom within a crate. Where its `lib.rs` lists the modules from top to bottom and says that each
//! uses only what stands below it, that list is the rule. Modules on one line of it may use each other.

use super::source::{Source, Violation};

const CLAIM: &str = "each uses only what stands below it";

/// The modules of one crate, from top to bottom.
#[derive(Debug)]
pub struct Layers {
    /// Where its sources are, with `/` at the end.
    place: String,
    lines: Vec<Vec<String>>,
}

impl Layers {
    /// The layers that a `lib.rs` tells; `None` if it makes no such promise.
    pub fn of(lib: &Source) -> Option<Self> {
        let place = lib.path.strip_suffix("lib.rs")?.to_owned();
        // The claim may be broken across lines.
        let prose: Vec<_> = lib
            .text
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .flat_map(str::split_whitespace)
            .collect();
        if !prose.join(" ").contains(CLAIM) {
            return None;
        }
        let entries = lib.text.lines().filter_map(|line| line.strip_prefix("//! * [`"));
        let names = |entry: &str| {
            let head = entry.split("]:").next().unwrap_or_default();
            head.trim_end_matches('`').split("`], [`").map(str::to_owned).collect()
        };
        Some(Self { place, lines: entries.map(names).collect() })
    }

    /// Modules that the crate has and the list does not, or has twice.
    pub fn listing(&self, lib: &Source) -> Vec<Violation> {
        let mut found = Vec::new();
        for (number, line) in lib.code.lines().enumerate() {
            let line = line.trim();
            let declared = line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod "));
            let Some(name) = declared.and_then(|rest| rest.strip_suffix(';')) else { continue };
            let times = self.lines.iter().flatten().filter(|listed| *listed == name).count();
            if times != 1 {
                found.push(lib.at(number, &format!("`{name}` stands in the list {times} times")));
            }
        }
        found
    }

    /// Uses of a module that stands above the one whose source this is. Unit tests may use everything.
    pub fn upward(&self, source: &Source) -> Vec<Violation> {
        let Some(inside) = source.path.strip_prefix(&self.place) else { return Vec::new() };
        let file = inside.strip_suffix(".rs").unwrap_or(inside);
        let parts: Vec<_> = file.split('/').filter(|part| *part != "mod").collect();
        let is_test = parts.contains(&"tests");
        let Some(own) = parts.first().and_then(|name| self.rank(name)).filter(|_| !is_test) else {
            return Vec::new();
        };
        let code: String = source.code_before_tests().flat_map(|(_, line)| [line, "\n"]).collect();
        let code = code.replace(&"super::".repeat(parts.len()), "crate::");
        let mut found = Vec::new();
        for (at, name) in used(&code) {
            if self.rank(name).is_some_and(|rank| rank < own) {
                let line = code[..at].matches('\n').count();
                found.push(source.at(line, &format!("`{name}` stands above `{}`", parts[0])));
            }
        }
        found
    }

    /// On which line of the list a module stands.
    fn rank(&self, name: &str) -> Option<usize> {
        self.lines.iter().position(|line| line.iter().any(|listed| listed == name))
    }
}

/// Modules that stand right behind `crate::`, or first in the paths of a group behind it, and where.
fn used(code: &str) -> Vec<(usize, &str)> {
    const ROOT: &str = "crate::";
    let mut found = Vec::new();
    for (at, _) in code.match_indices(ROOT) {
        let start = at + ROOT.len();
        let rest = &code[start..];
        if !rest.starts_with('{') {
            found.push((start, word(rest)));
            continue;
        }
        let mut depth = 0;
        let mut first = false;
        for (offset, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if depth == 1 && matches!(c, '{' | ',') {
                first = true;
            } else if first && !c.is_whitespace() {
                found.push((start + offset, word(&rest[offset..])));
                first = false;
            }
        }
    }
    found
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "//! A crate. Modules, top to bottom; each uses\n//! only what stands below it:\n//!\n\
        //! * [`driver`]: moves\n//! * [`soft`], [`tcp`]: [`wire`] and more\n//! * [`wire`]: carries\n\n\
        pub mod driver;\nmod soft;\npub mod tcp;\npub mod wire;\n";

    fn layers() -> Layers {
        Layers::of(&Source::new("x/src/lib.rs", LIB)).unwrap()
    }

    fn upward(path: &str, text: &str) -> Vec<Violation> {
        layers().upward(&Source::new(path, text))
    }

    #[test]
    fn the_list_is_read() {
        assert_eq!(layers().lines, [vec!["driver"], vec!["soft", "tcp"], vec!["wire"]]);
        assert!(Layers::of(&Source::new("x/src/lib.rs", "//! * [`a`]: no promise\n")).is_none());
        assert!(Layers::of(&Source::new("x/src/wire.rs", LIB)).is_none());
        let lib = Source::new("x/src/lib.rs", &format!("{LIB}pub mod late;\n"));
        assert_eq!(layers().listing(&lib), ["x/src/lib.rs:12: `late` stands in the list 0 times"]);
    }

    #[test]
    fn uses_of_what_stands_above_are_found() {
        for text in [
            "use crate::driver::Lane;",
            "use crate::{\n    buffers::{driver, Arena},\n    driver::{Lane, wire},\n};",
            "use crate::{wire::{A, B}, driver};",
            "fn f(lane: &crate::driver::Lane) {}",
            "use super::super::driver::Lane;",
        ] {
            assert_eq!(upward("x/src/soft/queue.rs", text).len(), 1, "{text}");
            assert_eq!(upward("x/src/driver/queue.rs", text).len(), 0, "{text}");
        }
        assert_eq!(upward("x/src/soft/mod.rs", "use super::driver;").len(), 1);
        assert_eq!(
            upward("x/src/wire.rs", "//! x\nuse crate::{\n    soft::A,\n};"),
            ["x/src/wire.rs:3: `soft` stands above `wire`"]
        );
    }

    #[test]
    fn uses_of_what_stands_below_or_beside_are_not() {
        for (path, text) in [
            ("x/src/soft/queue.rs", "use crate::{wire::A, tcp::B};\nuse super::driver;"),
            (
                "x/src/tcp.rs",
                "use crate::soft;\n// crate::driver\n#[cfg(test)]\nuse crate::driver;",
            ),
            ("x/src/soft/tests/rig.rs", "use crate::driver;"),
            ("x/src/soft/tests.rs", "use crate::driver;"),
            ("y/src/soft.rs", "use crate::driver;"),
        ] {
            assert_eq!(upward(path, text), [""; 0], "{path}: {text}");
        }
    }
}
