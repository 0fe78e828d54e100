//! Reading one table key by key; what was never asked for is unknown, and said to be.

use super::{
    problem::{Place, Problems, nearest},
    tree::{Node, Table, Value},
    value::Wrong,
};

/// A table under reading.
#[derive(Debug)]
pub struct Section<'a> {
    name: &'a str,
    place: Place,
    table: &'a Table,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// Begin. `place` is where the table as a whole stands.
    pub fn new(name: &'a str, place: Place, table: &'a Table) -> Self {
        Self { name, place, table, known: Vec::new() }
    }

    /// The value of a key, if it is there and `read` accepts it.
    pub fn get<T>(
        &mut self,
        problems: &mut Problems,
        key: &'static str,
        read: impl FnOnce(&Node) -> Result<T, Wrong>,
    ) -> Option<T> {
        self.known.push(key);
        let node = self.table.get(key)?;
        match read(node) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let place = wrong.place.unwrap_or_else(|| node.place.clone());
                problems.add(&place, self.key(key), wrong.problem, wrong.fix);
                None
            }
        }
    }

    /// Where a key was written; the table's own place if it was not.
    pub fn place_of(&self, key: &str) -> Place {
        self.table.get(key).map_or_else(|| self.place.clone(), |node| node.place.clone())
    }

    /// Whether the key was written.
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// `section.key`, or the key alone at the top.
    pub fn key(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// End: complain of every key that was not asked for.
    pub fn finish(self, problems: &mut Problems) {
        for entry in &self.table.entries {
            if self.known.contains(&entry.key.as_str()) {
                continue;
            }
            let what = if matches!(entry.node.value, Value::Table(_)) { "section" } else { "key" };
            let fix = match nearest(&entry.key, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            let problem = format!("there is no {what} of this name");
            problems.add(&entry.place, self.key(&shown(&entry.key)), problem, fix);
        }
    }
}

/// A word from the file, cut to what a message can hold.
pub fn shown(word: &str) -> String {
    const CHARS_MAX: usize = 80;
    let cut: String = word.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if word.chars().nth(CHARS_MAX).is_some() { format!("{cut}…") } else { cut }
}
