//! Documentation, lengths and words.

use super::{
    ledger::{LONG_FILES, LONG_FUNCTIONS, LONG_LINES},
    source::{Source, Violation, find_word},
};

/// Longest file, in lines, without its unit tests.
pub const FILE_LINES_MAX: usize = 500;
/// Longest function, in lines.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Longest line, in columns.
pub const COLUMNS_MAX: usize = 100;
/// Longest line with a comment, in columns.
pub const COMMENT_COLUMNS_MAX: usize = 120;

/// Names that say nothing.
const EMPTY_NAMES: [&str; 8] =
    ["utils", "util", "helpers", "helper", "common", "misc", "utilities", "stuff"];

/// Macros and marks of unfinished work. Put together here, so that this file does not contain them.
const UNFINISHED: [&str; 4] = [
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!("),
    concat!("FIX", "ME"),
];

/// A file without a word on what it is.
pub fn documentation(source: &Source) -> Vec<Violation> {
    let mut lines = source.text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.find(|line| !line.starts_with("#!"));
    if first.is_some_and(|line| line.starts_with("//!")) {
        return Vec::new();
    }
    vec![source.at(0, "the file does not begin with `//!`: what is it for?")]
}

/// A file that has grown too long.
pub fn file_length(source: &Source) -> Vec<Violation> {
    let lines = source.lines_before_tests();
    if lines <= FILE_LINES_MAX
        || is_test(&source.path)
        || LONG_FILES.iter().any(|(path, _)| *path == source.path)
    {
        return Vec::new();
    }
    vec![source.at(0, &format!("{lines} lines before the tests; at most {FILE_LINES_MAX}"))]
}

/// Whether a whole file is tests.
fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Lines that are too long, except where a literal or an address cannot be broken. Comments have their own
/// measure: what is left of the line without them must fit the page, the whole must fit a wide one.
pub fn line_length(source: &Source) -> Vec<Violation> {
    if LONG_LINES.contains(&&*source.path) {
        return Vec::new();
    }
    let lines = long_lines(source).into_iter();
    lines.map(|number| source.at(number, "longer than the page is wide")).collect()
}

/// Numbers of the lines that are too long.
pub fn long_lines(source: &Source) -> Vec<usize> {
    let mut found = Vec::new();
    // The formatter does not reach into the macros of property tests.
    for ((number, code), line) in source.code_before_tests().zip(source.text.lines()) {
        let wide = code.trim_end().chars().count() > COLUMNS_MAX
            || line.chars().count() > COMMENT_COLUMNS_MAX;
        if wide && !line.contains('"') && !line.contains("://") {
            found.push(number);
        }
    }
    found
}

/// Marks of unfinished work.
pub fn unfinished(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for mark in UNFINISHED.iter().filter(|mark| line.contains(*mark)) {
            found.push(source.at(number, &format!("unfinished: {mark}")));
        }
    }
    found
}

/// Files and modules with a name that says nothing.
pub fn names(source: &Source) -> Vec<Violation> {
    let parts = source.path.trim_end_matches(".rs").split('/');
    let mut found: Vec<_> = parts
        .filter(|part| EMPTY_NAMES.contains(part))
        .map(|part| source.at(0, &format!("`{part}` says nothing of what is inside")))
        .collect();
    for (number, line) in source.code.lines().enumerate() {
        let Some(at) = find_word(line, "mod") else { continue };
        let name = line[at + 3..].trim().trim_end_matches([';', '{', '}']).trim();
        if EMPTY_NAMES.contains(&name) {
            found.push(source.at(number, &format!("`{name}` says nothing of what is inside")));
        }
    }
    found
}

/// A function and its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line that it starts on, counted from 0.
    pub line: usize,
    /// Lines from the signature to the closing brace.
    pub lines: usize,
}

/// Functions that are too long and not in the ledger.
pub fn function_length(source: &Source) -> Vec<Violation> {
    let known = |name: &str| {
        LONG_FUNCTIONS.iter().any(|(path, listed)| *path == source.path && *listed == name)
    };
    let long = long_functions(source).into_iter().filter(|function| !known(&function.name));
    long.map(|Function { name, line, lines }| {
        source.at(line, &format!("`{name}` has {lines} lines; at most {FUNCTION_LINES_MAX}"))
    })
    .collect()
}

/// Functions that are too long. Tests may be: a table of cases is easier to read in one piece.
pub fn long_functions(source: &Source) -> Vec<Function> {
    let mut found = functions(&source.code);
    let end = if is_test(&source.path) { 0 } else { source.lines_before_tests() };
    found.retain(|function| function.lines > FUNCTION_LINES_MAX && function.line < end);
    found
}

/// All functions with a body.
fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut start = 0;
    for (number, line) in code.split('\n').enumerate() {
        if let Some(at) = find_word(line, "fn") {
            let rest = &code[start + at + 2..];
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let name: String = rest.trim_start().chars().take_while(|&c| word(c)).collect();
            // A function pointer type has no name.
            if let (false, Some(lines)) = (name.is_empty(), lines_to_end(rest)) {
                found.push(Function { name, line: number, lines });
            }
        }
        start += line.len() + 1;
    }
    found
}

/// How many lines a function takes from its name to its last brace; `None` when it has no body.
fn lines_to_end(code: &str) -> Option<usize> {
    let (mut round, mut curly, mut lines) = (0_i32, 0_i32, 1);
    for c in code.chars() {
        match c {
            '\n' => lines += 1,
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if round == 0 && curly == 0 => return None,
            '{' => curly += 1,
            '}' => {
                curly -= 1;
                if curly == 0 && round == 0 {
                    return Some(lines);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(check: fn(&Source) -> Vec<Violation>, path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn files_say_what_they_are() {
        assert_eq!(count(documentation, "a.rs", "//! A thing.\n"), 0);
        assert_eq!(count(documentation, "a.rs", "#![no_main]\n\n//! A thing.\n"), 0);
        assert_eq!(count(documentation, "a.rs", "use a;\n//! late\n"), 1);
        assert_eq!(count(documentation, "a.rs", ""), 1);
    }

    #[test]
    fn long_files_are_found() {
        let text = "x\n".repeat(FILE_LINES_MAX);
        assert_eq!(count(file_length, "a.rs", &text), 0);
        assert_eq!(count(file_length, "a.rs", &format!("{text}x\n")), 1);
        assert_eq!(count(file_length, "a/tests.rs", &format!("{text}x\n")), 0);
        assert_eq!(count(file_length, "a.rs", &format!("{text}#[cfg(test)]\nx\n")), 0);
    }

    #[test]
    fn long_lines_are_found() {
        let wide = "x".repeat(COLUMNS_MAX + 1);
        assert_eq!(count(line_length, "a.rs", &wide), 1);
        assert_eq!(count(line_length, "a.rs", &wide[1..]), 0);
        assert_eq!(count(line_length, "a.rs", &format!("f(\"{wide}\")")), 0);
        assert_eq!(count(line_length, "a.rs", &format!("// {wide}")), 0);
        assert_eq!(count(line_length, "a.rs", &format!("// {wide}{wide}")), 1);
    }

    #[test]
    fn unfinished_work_is_found() {
        for mark in UNFINISHED {
            assert_eq!(count(unfinished, "a.rs", &format!("x {mark} y")), 1, "{mark}");
        }
        assert_eq!(count(unfinished, "a.rs", "fn f() {}"), 0);
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(count(names, "gateway/src/utils.rs", ""), 1);
        assert_eq!(count(names, "gateway/src/helpers/a.rs", ""), 1);
        assert_eq!(count(names, "a.rs", "pub mod common;\nmod misc {}\n"), 2);
        assert_eq!(count(names, "a.rs", "mod commonplace;\n// mod misc;\n"), 0);
    }

    #[test]
    fn functions_are_measured() {
        let code = "fn a(x: [u8; 2]) {\n  if y { z }\n}\ntrait T { fn b(); fn c() -> u8 { 1 } }\n";
        let found: Vec<_> =
            functions(code).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found[0], ("a".to_owned(), 0, 3));
        let body = "x;\n".repeat(FUNCTION_LINES_MAX);
        assert_eq!(count(function_length, "a.rs", &format!("fn long() {{\n{body}}}\n")), 1);
        assert_eq!(
            count(function_length, "a.rs", &format!("fn short() {{\n{}}}\n", &body[6..])),
            0
        );
    }
}
