//! What goes wrong, and when.

use std::{str::FromStr, time::Duration};

use crate::error::ErrorKind;

/// Longest delay that a rule may ask for; a longer one is surely a slip of the pen.
pub const DELAY_MAX: Duration = Duration::from_secs(600);

/// Everything that shall go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultPlan {
    /// The same seed and the same operations give the same faults. Each lane has its own stream.
    pub seed: u64,
    /// The rules. Of several that hit one operation, the first error, the first delay and the first
    /// shortening count.
    pub rules: Vec<Rule>,
}

/// One kind of trouble.
///
/// As text: `OPERATION WHEN FAULT [ARGUMENT]`, for example `write 1/100 fail-before no-space`,
/// `commit #3 fail-after io`, `any 1/50 delay 20ms`, `any 1/2 hold 3`, `read 1/10 short`, `any 1/3 reorder`.
/// Operations have the names of [`Operation::name`](crate::op::Operation::name).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name of the operation that it is for; `None` means every operation.
    pub operation: Option<String>,
    /// When it hits.
    pub trigger: Trigger,
    /// What happens then.
    pub fault: Fault,
}

/// When a rule hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// By chance, this often in so many operations.
    Chance {
        /// How often.
        hits: u64,
        /// In so many.
        of: u64,
    },
    /// At this one of the operations that it is for, counted from 1 over all lanes.
    Occurrence(u64),
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fail without doing anything.
    FailBefore(ErrorKind),
    /// Do it, then say that it failed: the answer was lost.
    FailAfter(ErrorKind),
    /// Give the completion this much later.
    Delay(Duration),
    /// Give the completion after the lane has asked this many times.
    Hold(u32),
    /// Give the completion after the lane has asked up to four times, so that a later one may overtake it.
    Reorder,
    /// READ or WRITE only a part, at least one byte.
    Short,
}

/// A rule that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("fault rule \"{rule}\": {problem}; a rule reads like \"write 1/100 fail-before no-space\"")]
pub struct RuleError {
    rule: String,
    problem: &'static str,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed = match words.as_slice() {
            [operation, when, fault @ ..] => parse(operation, when, fault),
            _ => Err("too short"),
        };
        parsed.map_err(|problem| RuleError { rule: text.to_owned(), problem })
    }
}

fn parse(operation: &str, when: &str, fault: &[&str]) -> Result<Rule, &'static str> {
    let operation = match operation {
        "any" => None,
        name if OPERATION_NAMES.contains(&name) => Some(name.to_owned()),
        _ => return Err("there is no such operation"),
    };
    let fault = match fault {
        ["fail-before", kind] => Fault::FailBefore(parse_kind(kind)?),
        ["fail-after", kind] => Fault::FailAfter(parse_kind(kind)?),
        ["delay", time] => Fault::Delay(parse_time(time)?),
        ["hold", polls] => Fault::Hold(polls.parse().map_err(|_| "hold needs a number")?),
        ["reorder"] => Fault::Reorder,
        ["short"] => Fault::Short,
        _ => return Err("there is no such fault, or its argument is missing"),
    };
    Ok(Rule { operation, trigger: parse_trigger(when)?, fault })
}

fn parse_trigger(text: &str) -> Result<Trigger, &'static str> {
    let problem = "when is neither a fraction such as 1/100 nor a count such as #3";
    if let Some(count) = text.strip_prefix('#') {
        let count = count.parse().map_err(|_| problem)?;
        return if count > 0 { Ok(Trigger::Occurrence(count)) } else { Err("counts start at #1") };
    }
    let (hits, of) = text.split_once('/').ok_or(problem)?;
    let hits = hits.parse().map_err(|_| problem)?;
    let of = of.parse().map_err(|_| problem)?;
    if hits <= of && of > 0 {
        Ok(Trigger::Chance { hits, of })
    } else {
        Err("the fraction is not between 0 and 1")
    }
}

fn parse_time(text: &str) -> Result<Duration, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "a delay reads like 20ms, 50us or 2s")?;
    let time = match text.strip_prefix(digits) {
        Some("us") => Duration::from_micros(number),
        Some("ms") => Duration::from_millis(number),
        Some("s") => Duration::from_secs(number),
        _ => return Err("a delay reads like 20ms, 50us or 2s"),
    };
    if time <= DELAY_MAX { Ok(time) } else { Err("the delay is longer than ten minutes") }
}

fn parse_kind(text: &str) -> Result<ErrorKind, &'static str> {
    let found = ERROR_NAMES.iter().find(|(name, _)| *name == text);
    found.map(|&(_, kind)| kind).ok_or("there is no such error")
}

/// What operations are called; a test holds it against `Operation::name`.
const OPERATION_NAMES: [&str; 18] = [
    "getattr", "setattr", "lookup", "access", "readlink", "read", "write", "commit", "create",
    "mkdir", "symlink", "mknod", "remove", "rmdir", "rename", "link", "readdir", "fsstat",
];

/// What errors are called in rules.
const ERROR_NAMES: [(&str, ErrorKind); 13] = [
    ("access", ErrorKind::Access),
    ("exists", ErrorKind::Exists),
    ("io", ErrorKind::Io),
    ("later", ErrorKind::Later),
    ("no-space", ErrorKind::NoSpace),
    ("not-found", ErrorKind::NotFound),
    ("not-supported", ErrorKind::NotSupported),
    ("not-sync", ErrorKind::NotSync),
    ("quota", ErrorKind::Quota),
    ("read-only", ErrorKind::ReadOnly),
    ("server-fault", ErrorKind::ServerFault),
    ("stale", ErrorKind::Stale),
    ("too-large", ErrorKind::TooLarge),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        handle::ObjectHandle,
        op::{Operation, ReadDirectory},
    };

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    #[test]
    fn rules_can_be_written_as_text() {
        let trigger = Trigger::Chance { hits: 1, of: 100 };
        let fault = Fault::FailBefore(ErrorKind::NoSpace);
        assert_eq!(
            rule("write 1/100 fail-before no-space"),
            Rule { operation: Some("write".into()), trigger, fault }
        );
        assert_eq!(rule("any #3 reorder").trigger, Trigger::Occurrence(3));
        assert_eq!(rule("any #3 reorder").operation, None);
        assert_eq!(rule("read 1/2 delay 20ms").fault, Fault::Delay(Duration::from_millis(20)));
        assert_eq!(rule("read 1/2 hold 4").fault, Fault::Hold(4));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "write",
            "write 1/2",
            "wrote 1/2 short",
            "write 3/2 short",
            "write 1/0 short",
            "write #0 short",
            "write 1/2 fail-before nonsense",
            "write 1/2 delay 3",
            "any 1/2 hold x",
            "any 1/2 delay 1h",
            "any 1/2 delay 601s",
            "any 1/2 short 3",
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn operations_are_called_by_their_names() {
        let object = ObjectHandle::new(b"x").unwrap();
        let readdir = ReadDirectory {
            directory: object,
            cookie: 0,
            plus: false,
            name_bytes_max: 0,
            entries_max: 0,
        };
        for operation in [
            Operation::GetAttributes { object },
            Operation::ReadLink { object },
            Operation::ReadDirectory(readdir),
            Operation::FileSystemSpace { object },
            Operation::Commit { object, offset: 0, count: 0 },
        ] {
            assert!(OPERATION_NAMES.contains(&operation.name()), "{}", operation.name());
        }
    }
}
