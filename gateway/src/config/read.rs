//! From a tree to typed sections, past everything that is wrong.

use serde::de::DeserializeOwned;

use super::{
    de,
    problem::{Place, Problems},
    tree::{Node, Table, Value},
};

/// What is said before we stop: every round begins anew.
const ROUNDS_MAX: usize = 100;

/// What the tree holds, as its type says. serde stops at the first thing that is wrong; that is noted, and
/// skipped in another round, until nothing is wrong any more. What was wrong has its default in the end, for
/// whatever else there is to say about the rest.
pub fn read<T: DeserializeOwned>(
    problems: &mut Problems,
    whole: &Place,
    tree: &Table,
) -> Option<T> {
    for _ in 0..ROUNDS_MAX {
        let wrong = match de::of_table(tree) {
            Ok(value) => return Some(value),
            Err(wrong) => wrong,
        };
        let Some(place) = wrong.place else {
            problems.add(whole, wrong.key, wrong.problem, wrong.fix);
            return None;
        };
        if !wrong.follows {
            problems.add(&place, wrong.key, wrong.problem, wrong.fix);
        }
    }
    problems.add(whole, "", "there is more", "correct this first");
    None
}

/// A section after it was read, for what is to be said about its keys together.
#[derive(Debug)]
pub struct Part<'a> {
    name: &'static str,
    place: &'a Place,
    table: Option<&'a Table>,
}

impl<'a> Part<'a> {
    /// The section `name` at `node`, if it was written.
    pub fn new(name: &'static str, whole: &'a Place, node: Option<&'a Node>) -> Self {
        let table = match node.map(|node| &node.value) {
            Some(Value::Table(table)) => Some(table),
            _ => None,
        };
        // A header's own place is not kept by the parser: the first key's is next to it.
        let first = table.and_then(|table| table.entries.first()).map(|entry| &entry.place);
        let place = first.or_else(|| node.map(|node| &node.place)).unwrap_or(whole);
        Self { name, place, table }
    }

    /// Where the section as a whole stands.
    pub fn place(&self) -> &'a Place {
        self.place
    }

    fn get(&self, key: &str) -> Option<&'a Node> {
        self.table?.get(key)
    }

    /// Whether the key was written.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether the value of a key, or a part of it, was refused.
    pub fn refused(&self, key: &str) -> bool {
        self.get(key).is_some_and(Node::has_refused)
    }

    /// Where the items of a key's list were written, but for those that were refused.
    pub fn item_places(&self, key: &str) -> impl Iterator<Item = &'a Place> {
        self.get(key).into_iter().flat_map(Node::items).map(|item| &item.place)
    }

    /// `section.key`
    pub fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    /// Say what is wrong with a key.
    pub fn wrong(
        &self,
        problems: &mut Problems,
        key: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let place = self.get(key).map_or(self.place, |node| &node.place);
        problems.add(place, self.key(key), problem, fix);
    }
}
