//! What is wrong with a configuration: where, which key, what, and how to mend it.

use std::{fmt, sync::Arc};

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, counted from 1.
    Line {
        /// Name of the file as it was given.
        file: Arc<str>,
        /// The line.
        line: usize,
    },
    /// An argument on the command line: `--lanes`.
    Argument(&'static str),
    /// The file as a whole, or the lack of anything.
    Whole(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Argument(name) => f.write_str(name),
            Self::Whole(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// Which key, as `section.key`; empty when it is about no key.
    pub key: String,
    /// What.
    pub problem: String,
    /// How to mend it.
    pub fix: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() && !matches!(self.place, Place::Argument(_)) {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

/// Everything that is wrong, in the order in which it was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Add one.
    pub fn add(
        &mut self,
        place: &Place,
        key: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.0.push(Problem {
            place: place.clone(),
            key: key.into(),
            problem: problem.into(),
            fix: fix.into(),
        });
    }

    /// Whether there is one with this section.
    pub fn concern(&self, section: &str) -> bool {
        let of = |key: &str| key.split('.').next() == Some(section);
        self.0.iter().any(|problem| of(&problem.key))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A word from the file, cut to what a message can hold, and with nothing in it that a terminal would obey.
pub fn shown(word: &str) -> String {
    const CHARS_MAX: usize = 80;
    let cut: String = word.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if word.chars().nth(CHARS_MAX).is_some() { format!("{cut}…") } else { cut }
}

/// The candidate that `word` was most likely meant to be, if one is near.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word.to_lowercase(), candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other.
/// Words longer than any key are not worth the time.
fn distance(from: &str, to: &str) -> usize {
    const CHARS_MAX: usize = 64;
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    if from.len() > CHARS_MAX || to.len() > CHARS_MAX {
        return usize::MAX;
    }
    let mut rows = vec![vec![0_usize; to.len() + 1]; from.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=from.len() {
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_words_find_their_key() {
        let keys = ["lanes", "listen", "read_only", "squash"];
        for (word, wanted) in [
            ("lane", Some("lanes")),
            ("lanse", Some("lanes")),
            ("readonly", Some("read_only")),
            ("READ_ONLY", Some("read_only")),
            ("sqaush", Some("squash")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, keys), wanted, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(10_000), keys), None);
    }

    #[test]
    fn places() {
        let mut problems = Problems::default();
        problems.add(&Place::Argument("--lanes"), "server.lanes", "`x` is bad", "give a number");
        let line = Place::Line { file: Arc::from("a.toml"), line: 3 };
        problems.add(&line, "server.lanes", "`x` is bad", "give a number");
        assert_eq!(
            problems.to_string(),
            "--lanes: `x` is bad; give a number\na.toml:3: server.lanes: `x` is bad; give a number"
        );
    }
}
