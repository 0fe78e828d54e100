//! Readers of single values: sizes, durations, addresses, words.

use std::{fmt, net::SocketAddr, ops::RangeInclusive, path::PathBuf, time::Duration};

use serde::Deserialize;

use super::{
    problem::{Place, nearest},
    section::shown,
    tree::{Node, Value},
};

/// Why a value was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Where, if not at the value itself (an item of a list).
    pub place: Option<Place>,
    /// What is wrong.
    pub problem: String,
    /// How to mend it.
    pub fix: String,
}

impl Wrong {
    /// A value that was not accepted.
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { place: None, problem: problem.into(), fix: fix.into() }
    }

    pub(super) fn kind(node: &Node, wanted: &str) -> Self {
        Self::new(format!("{} is not {wanted}", node.value.kind()), format!("give {wanted}"))
    }

    /// The same, at `node` unless it has a place already.
    pub(super) fn within(self, node: &Node) -> Self {
        Self { place: Some(self.place.unwrap_or_else(|| node.place.clone())), ..self }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

impl std::error::Error for Wrong {}

/// A number within bounds.
///
/// # Errors
/// When it is something else or outside.
pub fn number<T>(range: RangeInclusive<T>) -> impl Fn(&Node) -> Result<T, Wrong>
where
    T: TryFrom<i64> + PartialOrd + fmt::Display + Copy,
{
    move |node| {
        let Value::Integer(written) = node.value else {
            return Err(Wrong::kind(node, "a whole number (without quotes)"));
        };
        T::try_from(written).ok().filter(|value| range.contains(value)).ok_or_else(|| {
            let fix = format!("give a number from {} to {}", range.start(), range.end());
            Wrong::new(format!("{written} is out of bounds"), fix)
        })
    }
}

const SIZE_UNITS: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A size in bytes: `"256MiB"`, or a number of bytes.
///
/// # Errors
/// When it is something else or outside of the bounds.
pub fn size(range: RangeInclusive<u64>) -> impl Fn(&Node) -> Result<u64, Wrong> {
    move |node| {
        let bytes = match &node.value {
            Value::Integer(bytes) => u64::try_from(*bytes)
                .map_err(|_| Wrong::new(format!("{bytes} is negative"), "give a size"))?,
            Value::Text(text) => in_units(text, &SIZE_UNITS, "a size", "256MiB")?,
            _ => return Err(Wrong::kind(node, "a size like \"256MiB\"")),
        };
        if range.contains(&bytes) {
            return Ok(bytes);
        }
        let (low, high) = (format_size(*range.start()), format_size(*range.end()));
        let problem = format!("{} is out of bounds", format_size(bytes));
        Err(Wrong::new(problem, format!("give a size from {low} to {high}")))
    }
}

const TIME_UNITS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("min", 60 * 1_000_000),
    ("h", 60 * 60 * 1_000_000),
];

/// A duration: `"30s"`, `"5min"`, `"50us"`.
///
/// # Errors
/// When it is something else or outside of the bounds.
pub fn duration(range: RangeInclusive<Duration>) -> impl Fn(&Node) -> Result<Duration, Wrong> {
    move |node| {
        let time = match &node.value {
            Value::Text(text) => {
                Duration::from_micros(in_units(text, &TIME_UNITS, "a duration", "30s")?)
            }
            Value::Integer(0) => Duration::ZERO,
            Value::Integer(number) => {
                let fix = format!("add the unit: \"{number}s\", \"{number}ms\"");
                return Err(Wrong::new("a duration needs a unit", fix));
            }
            _ => return Err(Wrong::kind(node, "a duration like \"30s\"")),
        };
        if range.contains(&time) {
            return Ok(time);
        }
        let fix = format!("give a duration from {:?} to {:?}", range.start(), range.end());
        Err(Wrong::new(format!("{time:?} is out of bounds"), fix))
    }
}

/// `12 MiB` in the smallest unit of the table.
fn in_units(
    text: &str,
    units: &[(&'static str, u64)],
    what: &str,
    example: &str,
) -> Result<u64, Wrong> {
    let bad = |fix: String| Wrong::new(format!("`{}` is not {what}", shown(text)), fix);
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = unit.trim();
    let names = || units.iter().map(|(name, _)| *name);
    if digits.is_empty() || unit.contains(|c: char| !c.is_ascii_alphabetic()) {
        return Err(bad(format!("write a whole number and a unit: \"{example}\"")));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let unit_meant = names().find(|name| {
            let (near, written) = (name.to_lowercase(), unit.to_lowercase());
            near == written || near.replace('i', "") == written || near.replace("ib", "") == written
        });
        let near = unit_meant.or_else(|| nearest(unit, names())).filter(|_| !unit.is_empty());
        let list = names().collect::<Vec<_>>().join(", ");
        return Err(bad(match near {
            Some(near) => format!("did you mean \"{digits}{near}\"?"),
            None => format!("units are {list}: \"{example}\""),
        }));
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(*factor))
        .ok_or_else(|| bad("it is too large".to_owned()))
}

/// A size for people: the largest unit that divides it, or one with a fraction.
pub fn format_size(bytes: u64) -> String {
    let unit = SIZE_UNITS.iter().rev().find(|(_, factor)| bytes >= *factor);
    let (name, factor) = unit.copied().unwrap_or(("B", 1));
    if bytes.is_multiple_of(factor) {
        return format!("{} {name}", bytes / factor);
    }
    let (whole, tenths) = (bytes / factor, (bytes % factor) * 10 / factor);
    format!("{whole}.{tenths} {name}")
}

/// What `read` accepts, or the word "auto" for `None`.
///
/// # Errors
/// Those of `read`.
pub fn auto<T>(
    read: impl Fn(&Node) -> Result<T, Wrong>,
) -> impl Fn(&Node) -> Result<Option<T>, Wrong> {
    move |node| match &node.value {
        Value::Text(word) if word == "auto" => Ok(None),
        _ => read(node)
            .map(Some)
            .map_err(|wrong| Wrong { fix: format!("{}, or \"auto\"", wrong.fix), ..wrong }),
    }
}

/// Most items of any list.
pub const ITEMS_MAX: usize = 1024;

/// A list of what `read` accepts.
///
/// # Errors
/// When it is no list, too long, or an item is wrong: then the place is the item's.
pub fn list<T>(
    read: impl Fn(&Node) -> Result<T, Wrong>,
) -> impl Fn(&Node) -> Result<Vec<T>, Wrong> {
    move |node| {
        let Value::List(items) = &node.value else {
            return Err(Wrong::kind(node, "a list in brackets"));
        };
        if items.len() > ITEMS_MAX {
            let problem = format!("the list has {} items", items.len());
            return Err(Wrong::new(problem, format!("give at most {ITEMS_MAX}")));
        }
        items.iter().map(|item| read(item).map_err(|wrong| wrong.within(item))).collect()
    }
}

/// An address and a port to listen on: `"[::]:2049"`, `"0.0.0.0:2049"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Listen(pub SocketAddr);

impl TryFrom<String> for Listen {
    type Error = Wrong;

    fn try_from(written: String) -> Result<Self, Wrong> {
        match written.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => {
                Err(Wrong::new("port 0 is no port to listen on", "give one from 1 to 65535"))
            }
            Ok(address) => Ok(Self(address)),
            Err(_) => Err(not_an_address(&written)),
        }
    }
}

fn not_an_address(written: &str) -> Wrong {
    let fix = match (written.parse::<std::net::IpAddr>(), written.strip_prefix(':')) {
        (Ok(std::net::IpAddr::V6(ip)), _) => format!("add the port: \"[{ip}]:2049\""),
        (Ok(ip), _) => format!("add the port: \"{ip}:2049\""),
        (_, Some(port)) if port.parse::<u16>().is_ok() => {
            format!("for all addresses write \"[::]:{port}\"")
        }
        _ => "write an IP address and a port: \"0.0.0.0:2049\", \"[::]:2049\"".to_owned(),
    };
    Wrong::new(format!("`{}` is not an address with a port", shown(written)), fix)
}

/// An absolute path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct AbsolutePath(pub PathBuf);

impl TryFrom<String> for AbsolutePath {
    type Error = Wrong;

    fn try_from(written: String) -> Result<Self, Wrong> {
        if written.starts_with('/') {
            return Ok(Self(PathBuf::from(written)));
        }
        let problem = format!("`{}` is not an absolute path", shown(&written));
        Err(Wrong::new(problem, "begin it with a slash"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::de::of;

    fn node(value: Value) -> Node {
        Node { place: Place::Argument("--x"), value }
    }

    fn word(text: &str) -> Node {
        node(Value::Text(text.to_owned()))
    }

    #[test]
    fn sizes() {
        let read = size(0..=1 << 40);
        for (text, bytes) in [
            ("256MiB", 256 << 20),
            ("256 MiB", 256 << 20),
            ("0B", 0),
            ("4KiB", 4096),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(read(&word(text)), Ok(bytes), "{text}");
        }
        assert_eq!(read(&node(Value::Integer(4096))), Ok(4096));
        for (text, problem, fix) in [
            ("256MB", "`256MB` is not a size", "did you mean \"256MiB\"?"),
            ("256mib", "`256mib` is not a size", "did you mean \"256MiB\"?"),
            ("2G", "`2G` is not a size", "did you mean \"2GiB\"?"),
            ("256", "`256` is not a size", "units are B, KiB, MiB, GiB, TiB: \"256MiB\""),
            ("-1KiB", "`-1KiB` is not a size", "write a whole number and a unit: \"256MiB\""),
            ("1.5GiB", "`1.5GiB` is not a size", "write a whole number and a unit: \"256MiB\""),
            ("99999999999TiB", "`99999999999TiB` is not a size", "it is too large"),
            ("2TiB", "2 TiB is out of bounds", "give a size from 0 B to 1 TiB"),
        ] {
            assert_eq!(read(&word(text)), Err(Wrong::new(problem, fix)), "{text}");
        }
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (5 << 30, "5 GiB")]
        {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn durations() {
        let read = duration(Duration::ZERO..=Duration::from_secs(3600));
        for (text, micros) in
            [("50us", 50), ("5ms", 5000), ("30s", 30_000_000), ("1min", 60_000_000)]
        {
            assert_eq!(read(&word(text)), Ok(Duration::from_micros(micros)), "{text}");
        }
        for (value, problem, fix) in [
            (word("5m"), "`5m` is not a duration", "did you mean \"5ms\"?"),
            (word("2h"), "7200s is out of bounds", "give a duration from 0ns to 3600s"),
            (
                node(Value::Integer(30)),
                "a duration needs a unit",
                "add the unit: \"30s\", \"30ms\"",
            ),
        ] {
            assert_eq!(read(&value), Err(Wrong::new(problem, fix)));
        }
    }

    #[test]
    fn addresses() {
        assert!(of::<Listen>(&word("[::]:2049")).is_ok());
        for (text, fix) in [
            ("10.0.0.1", "add the port: \"10.0.0.1:2049\""),
            ("::1", "add the port: \"[::1]:2049\""),
            (":2049", "for all addresses write \"[::]:2049\""),
            ("host:2049", "write an IP address and a port: \"0.0.0.0:2049\", \"[::]:2049\""),
            ("10.0.0.1:0", "give one from 1 to 65535"),
        ] {
            assert_eq!(of::<Listen>(&word(text)).unwrap_err().fix, fix, "{text}");
        }
    }

    #[test]
    fn an_item_of_a_list_has_its_own_place() {
        let item = Node { place: Place::Argument("--item"), value: Value::Integer(9) };
        let wrong = list(number(0..=5_u32))(&node(Value::List(vec![item]))).unwrap_err();
        assert_eq!(wrong.place, Some(Place::Argument("--item")));
        let many = vec![node(Value::Integer(1)); ITEMS_MAX + 1];
        assert!(list(number(0..=5_u32))(&node(Value::List(many))).is_err());
    }
}
