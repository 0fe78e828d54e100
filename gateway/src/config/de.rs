//! The tree through serde: what a section holds and what a key takes is said by types (`#[derive(Deserialize)]`),
//! and serde checks it.
//!
//! The error is ours, [`Wrong`]: it says what to write instead, and where. On its way out the node at which it
//! arose is marked; [`super::read`] then goes on behind it, so that all that is wrong is said at once.

use std::fmt::{self, Display};

use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess,
        Unexpected, Visitor, value::MapAccessDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{
    problem::{Place, nearest, shown},
    tree::{Entry, Node, Table, Value},
};

/// Most items of any list but that of exports.
pub const ITEMS_MAX: usize = 1024;

/// Why a value was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Where it was written, once that is known.
    pub place: Option<Place>,
    /// Which key it is, as `section.key`.
    pub key: String,
    /// It may only be the fault of something in it that was refused before.
    pub follows: bool,
    /// What is wrong.
    pub problem: String,
    /// How to mend it.
    pub fix: String,
}

impl Wrong {
    /// A value that was not accepted.
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        let (problem, fix) = (problem.into(), fix.into());
        Self { place: None, key: String::new(), follows: false, problem, fix }
    }

    /// The same at `node`, which is marked, unless it has a place inside of it.
    fn at(mut self, node: &Node, place: &Place) -> Self {
        if self.place.is_none() {
            self.follows = node.has_refused();
            self.place = Some(place.clone());
            node.refused.set(true);
        }
        self
    }

    /// The same within a key.
    fn within(mut self, key: &str) -> Self {
        let inner = if self.key.is_empty() { String::new() } else { format!(".{}", self.key) };
        self.key = shown(key) + &inner;
        self
    }
}

impl Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

impl std::error::Error for Wrong {}

impl de::Error for Wrong {
    /// Types that check what they are made of say what is wrong as `problem; fix`.
    fn custom<T: Display>(message: T) -> Self {
        let message = message.to_string();
        let (problem, fix) = message.rsplit_once("; ").unwrap_or((&message, "correct it"));
        Self::new(problem, fix)
    }

    /// What is wanted may bring its own fix: `wanted; fix`.
    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(_) => "a string",
            Unexpected::Signed(_) => "a number",
            Unexpected::Bool(_) => "true or false",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a table",
            Unexpected::Other(kind) => kind,
            _ => "this",
        };
        let wanted = wanted.to_string();
        let (wanted, fix) = wanted.split_once("; ").unwrap_or((&wanted, ""));
        // What the types of the standard library call themselves.
        let wanted = match wanted {
            "i64" => "a whole number (without quotes)",
            "a boolean" => "true or false (without quotes)",
            "a string" => "a string in quotes",
            "a sequence" => "a list in brackets",
            other => other,
        };
        let fix = if fix.is_empty() { format!("give {wanted}") } else { fix.to_owned() };
        Self::new(format!("{found} is not {wanted}"), fix)
    }

    fn unknown_variant(written: &str, words: &'static [&'static str]) -> Self {
        let fix = match nearest(written, words.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("give one of \"{}\"", words.join("\", \"")),
        };
        Self::new(format!("`{}` is not possible here", shown(written)), fix)
    }

    fn unknown_field(written: &str, known: &'static [&'static str]) -> Self {
        let fix = match nearest(written, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("known here: {}", known.join(", ")),
        };
        Self::new("there is no key of this name", fix)
    }
}

impl Node {
    fn is_not(&self, wanted: &dyn Expected) -> Wrong {
        let found = match &self.value {
            Value::Text(text) => Unexpected::Str(text),
            Value::Integer(number) => Unexpected::Signed(*number),
            Value::Flag(flag) => Unexpected::Bool(*flag),
            Value::List(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
            Value::Other(kind) => Unexpected::Other(kind),
        };
        de::Error::invalid_type(found, wanted)
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Text(text) if text.contains('\0') => {
                Err(Wrong::new("there is a NUL character in it", "remove it"))
            }
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            Value::Table(table) => visitor.visit_map(Entries::of(table)),
            Value::Other(_) => Err(self.is_not(&visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::List(items) if items.len() > ITEMS_MAX => {
                let problem = format!("the list has {} items", items.len());
                Err(Wrong::new(problem, format!("give at most {ITEMS_MAX}")))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    /// A section. (The visitors that serde derives would take a list, too.)
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Table(table) => visitor.visit_map(Entries::of(table)),
            _ => Err(self.is_not(&visitor)),
        }
    }

    /// A word of a closed list. Where yes and no are words of it, true and false mean them.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let word = match &self.value {
            Value::Text(word) => word.as_str(),
            Value::Flag(true) if variants.contains(&"yes") => "yes",
            Value::Flag(false) if variants.contains(&"no") => "no",
            _ => return Err(self.is_not(&"a string in quotes")),
        };
        visitor.visit_enum(word.into_deserializer())
    }

    /// What the gateway decides itself where it is left out, or "auto".
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        if matches!(&self.value, Value::Text(word) if word == "auto") {
            return visitor.visit_none();
        }
        visitor
            .visit_some(self)
            .map_err(|wrong| Wrong { fix: format!("{}, or \"auto\"", wrong.fix), ..wrong })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct tuple tuple_struct map identifier ignored_any
    }
}

/// What a table holds, as its type says.
///
/// # Errors
/// At the first thing that is wrong.
pub fn of_table<T: DeserializeOwned>(table: &Table) -> Result<T, Wrong> {
    T::deserialize(MapAccessDeserializer::new(Entries::of(table)))
}

/// What is left of a list.
struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Wrong> {
        let Some(item) = self.0.find(|item| !item.refused.get()) else { return Ok(None) };
        seed.deserialize(item).map(Some).map_err(|wrong| wrong.at(item, &item.place))
    }
}

/// What is left of a table.
struct Entries<'a> {
    entries: std::slice::Iter<'a, Entry>,
    current: Option<&'a Entry>,
}

impl<'a> Entries<'a> {
    fn of(table: &'a Table) -> Self {
        Self { entries: table.entries.iter(), current: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Wrong;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Wrong> {
        self.current = self.entries.find(|entry| !entry.node.refused.get());
        let Some(Entry { key, place, node }) = self.current else { return Ok(None) };
        let unknown = |mut wrong: Wrong| {
            if matches!(node.value, Value::Table(_)) {
                wrong.problem = "there is no section of this name".to_owned();
            }
            Wrong { follows: false, ..wrong.at(node, place).within(key) }
        };
        seed.deserialize(key.as_str().into_deserializer()).map(Some).map_err(unknown)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Wrong> {
        let Some(Entry { key, node, .. }) = self.current else {
            return Err(Wrong::new("a value without a key", "correct it"));
        };
        seed.deserialize(node).map_err(|wrong| wrong.at(node, &node.place).within(key))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, de::Error};

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Buffered,
        #[default]
        Yes,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields, expecting = "a section; write its header")]
    struct Keys {
        word: Word,
        list: Vec<String>,
    }

    fn node(value: Value) -> Node {
        Node::new(Place::Argument("--x"), value)
    }

    fn text(text: &str) -> Node {
        node(Value::Text(text.to_owned()))
    }

    fn of<T: DeserializeOwned>(node: &Node) -> Result<T, Wrong> {
        T::deserialize(node)
    }

    #[test]
    fn words_are_variants() {
        assert_eq!(of::<Word>(&text("buffered")), Ok(Word::Buffered));
        assert_eq!(of::<Word>(&node(Value::Flag(true))), Ok(Word::Yes));
        let wrong = |problem, fix: &str| Err(Wrong::new(problem, fix));
        assert_eq!(
            of::<Word>(&text("bufferde")),
            wrong("`bufferde` is not possible here", "did you mean \"buffered\"?")
        );
        assert_eq!(
            of::<Word>(&text("x\u{1b}[m")),
            wrong("`x\\u{1b}[m` is not possible here", "give one of \"buffered\", \"yes\"")
        );
        assert_eq!(
            of::<Word>(&node(Value::Flag(false))),
            wrong("true or false is not a string in quotes", "give a string in quotes")
        );
    }

    #[test]
    fn other_kinds_are_named() {
        let number = node(Value::Integer(3));
        assert_eq!(of::<bool>(&node(Value::Flag(true))), Ok(true));
        assert_eq!(
            of::<bool>(&number).unwrap_err().problem,
            "a number is not true or false (without quotes)"
        );
        assert_eq!(of::<String>(&number).unwrap_err().fix, "give a string in quotes");
        assert!(of::<String>(&text("a\0b")).is_err());
        assert_eq!(
            of::<Vec<String>>(&number).unwrap_err().problem,
            "a number is not a list in brackets"
        );
        for value in [Value::Integer(3), Value::List(vec![text("buffered")])] {
            assert_eq!(of::<Keys>(&node(value)).unwrap_err().fix, "write its header");
        }
    }

    #[test]
    fn what_is_wrong_has_its_key_and_place_and_is_skipped_from_then_on() {
        let item = Node::new(Place::Argument("--item"), Value::Integer(9));
        let mut table = Table::default();
        table.set("list", Place::Argument("--list"), Value::List(vec![text("a"), item]));
        let wrong = of_table::<Keys>(&table).unwrap_err();
        assert_eq!(wrong.place, Some(Place::Argument("--item")));
        assert_eq!((wrong.key.as_str(), wrong.follows), ("list", false));
        let keys = of_table::<Keys>(&table).unwrap();
        assert_eq!(keys, Keys { word: Word::Yes, list: vec!["a".to_owned()] });
    }

    #[test]
    fn an_option_may_be_left_to_the_gateway() {
        assert_eq!(of::<Option<Word>>(&text("auto")), Ok(None));
        assert_eq!(of::<Option<Word>>(&text("yes")), Ok(Some(Word::Yes)));
        let fix = of::<Option<Word>>(&text("yess")).unwrap_err().fix;
        assert_eq!(fix, "did you mean \"yes\"?, or \"auto\"");
    }

    #[test]
    fn lists_have_an_end() {
        let many = node(Value::List(vec![text("a"); ITEMS_MAX + 1]));
        assert_eq!(of::<Vec<String>>(&many).unwrap_err().fix, "give at most 1024");
    }

    #[test]
    fn a_type_may_say_what_is_wrong_and_how_to_mend_it() {
        let wrong = Wrong::custom("`a; b` is bad; write \"c\"");
        assert_eq!(wrong, Wrong::new("`a; b` is bad", "write \"c\""));
    }
}
