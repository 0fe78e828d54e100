//! Single values through serde: a value of the tree is a deserializer, so that what a key takes is said by its
//! type (`#[derive(Deserialize)]`) and serde checks it.
//!
//! The error is ours, [`Wrong`]: it keeps the place, and says what to write. Whole sections are not derived:
//! serde gives up at the first thing that is wrong, while we say everything at once ([`super::section`]).

use std::fmt::Display;

use serde::{
    Deserializer,
    de::{
        self, DeserializeOwned, Expected, IntoDeserializer, SeqAccess, Unexpected, Visitor,
        value::MapDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{
    problem::nearest,
    section::shown,
    tree::{Node, Value},
    value::{ITEMS_MAX, Wrong},
};

/// What the key takes, as its type says.
///
/// # Errors
/// When the value is something else.
pub fn of<T: DeserializeOwned>(node: &Node) -> Result<T, Wrong> {
    T::deserialize(node)
}

impl de::Error for Wrong {
    /// Types that check what they are made of say what is wrong as `problem; fix`.
    fn custom<T: Display>(message: T) -> Self {
        let message = message.to_string();
        let (problem, fix) = message.rsplit_once("; ").unwrap_or((&message, "correct it"));
        Self::new(problem, fix)
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::new(format!("{found} is not {wanted}"), format!("give {wanted}"))
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self::new(format!("{found} is out of bounds"), format!("give {wanted}"))
    }

    fn unknown_variant(written: &str, words: &'static [&'static str]) -> Self {
        let fix = match nearest(written, words.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("give one of \"{}\"", words.join("\", \"")),
        };
        Self::new(format!("`{}` is not possible here", shown(written)), fix)
    }
}

impl<'de> Deserializer<'de> for &'de Node {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Text(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Flag(flag) => visitor.visit_bool(*flag),
            Value::List(items) => visitor.visit_seq(Items(items)),
            Value::Table(table) => {
                let entries = table.entries.iter();
                let entries = entries.map(|entry| (entry.key.as_str(), &entry.node));
                visitor.visit_map(MapDeserializer::new(entries))
            }
            Value::Other(kind) => Err(de::Error::invalid_type(Unexpected::Other(kind), &visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.value {
            Value::Flag(flag) => visitor.visit_bool(flag),
            _ => Err(Wrong::kind(self, "true or false (without quotes)")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Text(text) if text.contains('\0') => {
                Err(Wrong::new("there is a NUL character in it", "remove it"))
            }
            Value::Text(text) => visitor.visit_borrowed_str(text),
            _ => Err(Wrong::kind(self, "a string in quotes")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_str(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Value::List(items) = &self.value else {
            return Err(Wrong::kind(self, "a list in brackets"));
        };
        if items.len() > ITEMS_MAX {
            let problem = format!("the list has {} items", items.len());
            return Err(Wrong::new(problem, format!("give at most {ITEMS_MAX}")));
        }
        visitor.visit_seq(Items(items))
    }

    /// A word of a closed list.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.value {
            Value::Text(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            _ => Err(Wrong::kind(self, "a string in quotes")),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for &'de Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// What is left of a list. What is wrong with an item is wrong at the item's place.
struct Items<'a>(&'a [Node]);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<S: de::DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Wrong> {
        let Some((item, rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        seed.deserialize(item).map(Some).map_err(|wrong| wrong.within(item))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::config::problem::Place;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Buffered,
        Direct,
    }

    fn node(value: Value) -> Node {
        Node { place: Place::Argument("--x"), value }
    }

    fn text(text: &str) -> Node {
        node(Value::Text(text.to_owned()))
    }

    #[test]
    fn words_are_variants() {
        assert_eq!(of::<Word>(&text("direct")), Ok(Word::Direct));
        let wrong = |problem, fix: &str| Err(Wrong::new(problem, fix));
        assert_eq!(
            of::<Word>(&text("dierct")),
            wrong("`dierct` is not possible here", "did you mean \"direct\"?")
        );
        assert_eq!(
            of::<Word>(&text("x\u{1b}[m")),
            wrong("`x\\u{1b}[m` is not possible here", "give one of \"buffered\", \"direct\"")
        );
        assert_eq!(
            of::<Word>(&node(Value::Flag(true))),
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
        assert_eq!(of::<u8>(&node(Value::Integer(300))).unwrap_err().fix, "give u8");
    }

    #[test]
    fn an_item_of_a_list_has_its_own_place() {
        let item = Node { place: Place::Argument("--item"), value: Value::Integer(9) };
        let list = node(Value::List(vec![text("a"), item]));
        let wrong = of::<Vec<String>>(&list).unwrap_err();
        assert_eq!(wrong.place, Some(Place::Argument("--item")));
        let many = node(Value::List(vec![text("a"); ITEMS_MAX + 1]));
        assert!(of::<Vec<String>>(&many).is_err());
    }

    #[test]
    fn a_type_may_say_what_is_wrong_and_how_to_mend_it() {
        let wrong = <Wrong as de::Error>::custom("`a; b` is bad; write \"c\"");
        assert_eq!(wrong, Wrong::new("`a; b` is bad", "write \"c\""));
    }
}
