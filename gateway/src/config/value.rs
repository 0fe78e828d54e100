//! What keys take: numbers, sizes and durations within bounds, addresses, paths. Each is a type whose
//! `Deserialize` knows what to write instead.

use std::{
    fmt,
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer, Visitor},
};

use super::{
    de::Wrong,
    problem::{nearest, shown},
};

/// A type that stands for what it holds.
pub trait Held {
    /// What it holds.
    type Value;
    /// Take it out.
    fn held(self) -> Self::Value;
}

/// For fields that are of the held type: `deserialize_with = "plain::<Size<0, 4096>, _>"`.
///
/// # Errors
/// Those of `W`.
pub fn plain<'de, W: Held + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<W::Value, D::Error> {
    W::deserialize(deserializer).map(Held::held)
}

macro_rules! held {
    ($([$($generics:tt)*] $type:ty => $value:ty;)*) => {
        $(impl<$($generics)*> Held for $type {
            type Value = $value;

            fn held(self) -> $value {
                self.0
            }
        })*
    };
}

held! {
    [T: TryFrom<u64>, const MIN: u64, const MAX: u64] Number<T, MIN, MAX> => T;
    [T, const MIN: u64, const MAX: u64] Size<T, MIN, MAX> => T;
    [const MIN: u64, const MAX: u64] Time<MIN, MAX> => Duration;
    [] Listen => SocketAddr;
    [] AbsolutePath => PathBuf;
    [] InlineBytes => usize;
    [] DeviceName => String;
    [] LogFilter => String;
}

impl<W: Held> Held for Vec<W> {
    type Value = Vec<W::Value>;

    fn held(self) -> Self::Value {
        self.into_iter().map(Held::held).collect()
    }
}

/// A number within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Number<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(pub T);

impl<T: TryFrom<u64>, const MIN: u64, const MAX: u64> TryFrom<i64> for Number<T, MIN, MAX> {
    type Error = Wrong;

    fn try_from(written: i64) -> Result<Self, Wrong> {
        let within = u64::try_from(written).ok().filter(|n| (MIN..=MAX).contains(n));
        within.and_then(|number| T::try_from(number).ok()).map(Self).ok_or_else(|| {
            let fix = format!("give a number from {MIN} to {MAX}");
            Wrong::new(format!("{written} is out of bounds"), fix)
        })
    }
}

/// Reads a number or a text; everything else is not what was wanted.
struct Scalar<T> {
    wanted: &'static str,
    number: fn(i64) -> Result<T, Wrong>,
    text: fn(&str) -> Result<T, Wrong>,
}

impl<T> Visitor<'_> for Scalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.number)(number).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).map_err(E::custom)
    }
}

const SIZE_UNITS: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// A size in bytes within bounds: `"256MiB"`, or a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size<T, const MIN: u64, const MAX: u64>(pub T);

impl<T: TryFrom<u64>, const MIN: u64, const MAX: u64> Size<T, MIN, MAX> {
    fn within(bytes: u64) -> Result<Self, Wrong> {
        let within = Some(bytes).filter(|bytes| (MIN..=MAX).contains(bytes));
        within.and_then(|bytes| T::try_from(bytes).ok()).map(Self).ok_or_else(|| {
            let fix = format!("give a size from {} to {}", format_size(MIN), format_size(MAX));
            Wrong::new(format!("{} is out of bounds", format_size(bytes)), fix)
        })
    }
}

impl<'de, T: TryFrom<u64>, const MIN: u64, const MAX: u64> Deserialize<'de> for Size<T, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |written| match u64::try_from(written) {
            Ok(bytes) => Self::within(bytes),
            Err(_) => Err(Wrong::new(format!("{written} is negative"), "give a size")),
        };
        let text = |text: &str| Self::within(in_units(text, &SIZE_UNITS, "a size", "256MiB")?);
        let wanted = "a size like \"256MiB\"";
        deserializer.deserialize_any(Scalar { wanted, number, text })
    }
}

const TIME_UNITS: [(&str, u64); 5] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("min", 60 * 1_000_000),
    ("h", 60 * 60 * 1_000_000),
];

/// A duration within bounds, which are in milliseconds: `"30s"`, `"5min"`, `"50us"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time<const MIN: u64, const MAX: u64>(pub Duration);

impl<const MIN: u64, const MAX: u64> Time<MIN, MAX> {
    fn within(micros: u64) -> Result<Self, Wrong> {
        let time = Duration::from_micros(micros);
        let (low, high) = (Duration::from_millis(MIN), Duration::from_millis(MAX));
        if (low..=high).contains(&time) {
            return Ok(Self(time));
        }
        let fix = format!("give a duration from {low:?} to {high:?}");
        Err(Wrong::new(format!("{time:?} is out of bounds"), fix))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Time<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |written| match written {
            0 => Self::within(0),
            _ => {
                let fix = format!("add the unit: \"{written}s\", \"{written}ms\"");
                Err(Wrong::new("a duration needs a unit", fix))
            }
        };
        let text = |text: &str| Self::within(in_units(text, &TIME_UNITS, "a duration", "30s")?);
        let wanted = "a duration like \"30s\"";
        deserializer.deserialize_any(Scalar { wanted, number, text })
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

/// All addresses of both families.
pub fn any_address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
}

/// An absolute path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
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

/// The longest RDMA message without chunks. The private data of a connection says it in units of 1 KiB
/// (RFC 8797 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Size<usize, 4096, 65_536>")]
pub struct InlineBytes(pub usize);

impl TryFrom<Size<usize, 4096, 65_536>> for InlineBytes {
    type Error = Wrong;

    fn try_from(Size(bytes): Size<usize, 4096, 65_536>) -> Result<Self, Wrong> {
        if bytes.is_multiple_of(1024) {
            return Ok(Self(bytes));
        }
        Err(Wrong::new(format!("{bytes} is no multiple of 1 KiB"), "give a size like \"8KiB\""))
    }
}

/// What can be the name of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct DeviceName(pub String);

impl TryFrom<String> for DeviceName {
    type Error = Wrong;

    fn try_from(name: String) -> Result<Self, Wrong> {
        if name.is_empty() || name.contains('/') {
            let problem = format!("`{}` is not the name of an RDMA device", shown(&name));
            return Err(Wrong::new(problem, "`aqueduct doctor` lists the devices"));
        }
        Ok(Self(name))
    }
}

/// A level of the log, or a filter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LogFilter(pub String);

impl TryFrom<String> for LogFilter {
    type Error = Wrong;

    fn try_from(written: String) -> Result<Self, Wrong> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Level {
            Off,
            Error,
            Warn,
            Info,
            Debug,
            Trace,
        }
        if written.contains(['=', ',']) {
            written.parse::<tracing_subscriber::filter::Targets>().map_err(|error| {
                let problem = format!("not a log filter ({})", shown(&error.to_string()));
                Wrong::new(problem, "try \"info\"")
            })?;
        } else {
            let word: de::value::StrDeserializer<'_, Wrong> = written.as_str().into_deserializer();
            Level::deserialize(word)?;
        }
        Ok(Self(written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        problem::Place,
        tree::{Node, Value},
    };

    fn of<T: for<'de> Deserialize<'de>>(value: Value) -> Result<T, Wrong> {
        T::deserialize(&Node::new(Place::Argument("--x"), value))
    }

    fn word<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Wrong> {
        of(Value::Text(text.to_owned()))
    }

    #[test]
    fn numbers() {
        type Read = Number<u32, 1, 300>;
        assert_eq!(of(Value::Integer(300)), Ok(Number::<u32, 1, 300>(300)));
        for number in [0, -1, 301, i64::MIN, i64::MAX] {
            let wrong = of::<Read>(Value::Integer(number)).unwrap_err();
            let message = format!("{number} is out of bounds; give a number from 1 to 300");
            assert_eq!(wrong.to_string(), message);
        }
        let wrong = of::<Number<u8, 0, 300>>(Value::Integer(300)).unwrap_err();
        assert_eq!(wrong.problem, "300 is out of bounds");
        for (value, kind) in [
            (Value::Text("1".to_owned()), "a string"),
            (Value::Flag(true), "true or false"),
            (Value::List(Vec::new()), "a list"),
            (Value::Other("a date"), "a date"),
        ] {
            let wanted = "a whole number (without quotes)";
            let wrong = Wrong::new(format!("{kind} is not {wanted}"), format!("give {wanted}"));
            assert_eq!(of::<Read>(value), Err(wrong));
        }
    }

    #[test]
    fn sizes() {
        type Read = Size<u64, 0, { 1 << 40 }>;
        for (text, bytes) in [
            ("256MiB", 256 << 20),
            ("256 MiB", 256 << 20),
            ("0B", 0),
            ("4KiB", 4096),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(word::<Read>(text), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(of::<Read>(Value::Integer(4096)), Ok(Size(4096)));
        assert_eq!(
            of::<Read>(Value::Integer(-1)),
            Err(Wrong::new("-1 is negative", "give a size"))
        );
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
            assert_eq!(word::<Read>(text), Err(Wrong::new(problem, fix)), "{text}");
        }
        assert_eq!(word::<InlineBytes>("8KiB"), Ok(InlineBytes(8192)));
        let wrong = of::<InlineBytes>(Value::Integer(5000)).unwrap_err();
        assert_eq!(wrong, Wrong::new("5000 is no multiple of 1 KiB", "give a size like \"8KiB\""));
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
        type Read = Time<0, 3_600_000>;
        for (text, micros) in
            [("50us", 50), ("5ms", 5000), ("30s", 30_000_000), ("1min", 60_000_000)]
        {
            assert_eq!(word::<Read>(text), Ok(Time(Duration::from_micros(micros))), "{text}");
        }
        assert_eq!(of::<Read>(Value::Integer(0)), Ok(Time(Duration::ZERO)));
        for (read, problem, fix) in [
            (word::<Read>("5m"), "`5m` is not a duration", "did you mean \"5ms\"?"),
            (word("2h"), "7200s is out of bounds", "give a duration from 0ns to 3600s"),
            (of(Value::Integer(30)), "a duration needs a unit", "add the unit: \"30s\", \"30ms\""),
        ] {
            assert_eq!(read, Err(Wrong::new(problem, fix)));
        }
    }

    #[test]
    fn addresses() {
        assert!(word::<Listen>("[::]:2049").is_ok());
        for (text, fix) in [
            ("10.0.0.1", "add the port: \"10.0.0.1:2049\""),
            ("::1", "add the port: \"[::1]:2049\""),
            (":2049", "for all addresses write \"[::]:2049\""),
            ("host:2049", "write an IP address and a port: \"0.0.0.0:2049\", \"[::]:2049\""),
            ("10.0.0.1:0", "give one from 1 to 65535"),
        ] {
            assert_eq!(word::<Listen>(text).unwrap_err().fix, fix, "{text}");
        }
    }

    #[test]
    fn filters_of_the_log() {
        for good in ["off", "trace", "info,gateway::mount=debug"] {
            assert_eq!(word(good), Ok(LogFilter(good.to_owned())));
        }
        assert_eq!(word::<LogFilter>("wran").unwrap_err().fix, "did you mean \"warn\"?");
        assert!(
            word::<LogFilter>("a=nonsense").unwrap_err().problem.starts_with("not a log filter")
        );
    }
}
