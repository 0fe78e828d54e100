//! Keys and values with the place where each was written, whether in a file or on the command line.

use std::{cell::Cell, sync::Arc};

use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem, Problems};

/// Largest configuration file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// An integer.
    Integer(i64),
    /// A boolean.
    Flag(bool),
    /// An array.
    List(Vec<Node>),
    /// A table.
    Table(Table),
    /// What no key takes: a float, a date, an integer out of range; said as it is called.
    Other(&'static str),
}

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Where it was written.
    pub place: Place,
    /// The value.
    pub value: Value,
    /// It was wrong and has been said to be: skipped from then on.
    pub refused: Cell<bool>,
}

impl Node {
    /// A value that was written there.
    pub fn new(place: Place, value: Value) -> Self {
        Self { place, value, refused: Cell::new(false) }
    }

    /// Whether it or anything in it was refused.
    pub fn has_refused(&self) -> bool {
        self.refused.get()
            || match &self.value {
                Value::List(items) => items.iter().any(Self::has_refused),
                Value::Table(table) => table.entries.iter().any(|entry| entry.node.has_refused()),
                _ => false,
            }
    }

    /// Its items, but for those that were refused.
    pub fn items(&self) -> impl Iterator<Item = &Self> {
        let items = match &self.value {
            Value::List(items) => items.as_slice(),
            _ => &[],
        };
        items.iter().filter(|item| !item.refused.get())
    }
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key was written.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

/// A table in the order of the text; keys are unique.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Table {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Set a key, in place of what it had.
    pub fn set(&mut self, key: &str, place: Place, value: Value) {
        self.entries.retain(|entry| entry.key != key);
        let node = Node::new(place.clone(), value);
        self.entries.push(Entry { key: key.to_owned(), place, node });
    }

    /// Set a key of a section, which is made if it is not there. A section that is no table stays as it
    /// is, to be complained of by whoever reads it.
    pub fn set_in(&mut self, section: &str, key: &str, place: Place, value: Value) {
        if self.get(section).is_none() {
            self.set(section, place.clone(), Value::Table(Self::default()));
        }
        let node = self.entries.iter_mut().find(|entry| entry.key == section);
        if let Some(Value::Table(table)) = node.map(|entry| &mut entry.node.value) {
            table.set(key, place, value);
        }
    }

    /// Append to a key's list, which is made if it is not there.
    pub fn append(&mut self, key: &str, place: Place, value: Value) {
        if self.get(key).is_none() {
            self.set(key, place.clone(), Value::List(Vec::new()));
        }
        let node = self.entries.iter_mut().find(|entry| entry.key == key);
        if let Some(Value::List(list)) = node.map(|entry| &mut entry.node.value) {
            list.push(Node::new(place, value));
        }
    }
}

/// Parse TOML.
///
/// # Errors
/// All places where the text is no TOML.
pub fn parse(name: &str, text: &str) -> Result<Table, Problems> {
    let file: Arc<str> = Arc::from(name);
    if text.len() > FILE_BYTES_MAX {
        let mut problems = Problems::default();
        let problem = format!("the file has {} bytes, more than {FILE_BYTES_MAX}", text.len());
        problems.add(&Place::Whole(file), "", problem, "is this the right file?");
        return Err(problems);
    }
    let lines = Lines::of(file, text);
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problems = errors.iter().map(|error| syntax_problem(&lines, error)).collect();
        return Err(Problems(problems));
    }
    Ok(table_of(&lines, root.get_ref()))
}

fn syntax_problem(lines: &Lines, error: &toml::de::Error) -> Problem {
    Problem {
        place: lines.place(error.span().map_or(0, |span| span.start)),
        key: String::new(),
        problem: format!("not TOML: {}", error.message().replace('\n', ", ")),
        fix: "`aqueduct example-config` prints a file with every key".to_owned(),
    }
}

/// From byte offsets to lines.
struct Lines {
    file: Arc<str>,
    starts: Vec<usize>,
}

impl Lines {
    fn of(file: Arc<str>, text: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self { file, starts: breaks.map(|(offset, _)| offset + 1).collect() }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset) + 1;
        Place::Line { file: Arc::clone(&self.file), line }
    }
}

fn table_of(lines: &Lines, table: &DeTable<'_>) -> Table {
    let mut entries: Vec<Entry> = Vec::with_capacity(table.len());
    let mut ordered: Vec<_> = table.iter().collect();
    ordered.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in ordered {
        let node = node_of(lines, value);
        let key_place = lines.place(key.span().start);
        entries.push(Entry { key: key.get_ref().to_string(), place: key_place, node });
    }
    Table { entries }
}

fn node_of(lines: &Lines, written: &toml::Spanned<DeValue<'_>>) -> Node {
    let value = match written.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_or(Value::Other("a number that is too large"), Value::Integer),
        DeValue::Float(_) => Value::Other("a number with a fraction"),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(array) => {
            Value::List(array.iter().map(|item| node_of(lines, item)).collect())
        }
        DeValue::Table(table) => Value::Table(table_of(lines, table)),
    };
    Node::new(lines.place(written.span().start), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: usize) -> Place {
        Place::Line { file: Arc::from("f"), line }
    }

    #[test]
    fn places_are_lines() {
        let table = parse("f", "a = 1\n\n[b]\nc = [\n  \"x\",\n  2.5,\n]\n").unwrap();
        assert_eq!(table.get("a").unwrap().place, line(1));
        let Value::Table(b) = &table.get("b").unwrap().value else { panic!() };
        let Value::List(c) = &b.get("c").unwrap().value else { panic!() };
        assert_eq!(c[0], Node::new(line(5), Value::Text("x".to_owned())));
        assert_eq!(c[1].value, Value::Other("a number with a fraction"));
    }

    #[test]
    fn numbers_in_all_notations() {
        let table =
            parse("f", "a = 0x10\nb = 0o17\nc = 1_000\nd = 99999999999999999999\n").unwrap();
        let value = |key| table.get(key).unwrap().value.clone();
        assert_eq!(value("a"), Value::Integer(16));
        assert_eq!(value("b"), Value::Integer(15));
        assert_eq!(value("c"), Value::Integer(1000));
        assert_eq!(value("d"), Value::Other("a number that is too large"));
    }

    #[test]
    fn set_replaces_and_makes_sections() {
        let mut table = parse("f", "[s]\na = 1\n").unwrap();
        table.set_in("s", "a", Place::Argument("--a"), Value::Integer(2));
        table.set_in("t", "b", Place::Argument("--b"), Value::Flag(true));
        let section = |name| match &table.get(name).unwrap().value {
            Value::Table(section) => section.clone(),
            _ => panic!(),
        };
        assert_eq!(section("s").get("a").unwrap().value, Value::Integer(2));
        assert_eq!(section("s").entries.len(), 1);
        assert_eq!(section("t").get("b").unwrap().value, Value::Flag(true));
    }
}
