//! One source file. Checks look at its code: the text in which comments, strings and characters are
//! replaced by spaces, so that nothing is found in prose.

use std::iter::Peekable;

/// Something that is wrong, with its place.
pub type Violation = String;

/// A Rust source file.
#[derive(Debug)]
pub struct Source {
    /// Path from the top of the repository.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// The file with blanks for comments and literals; lines are the same.
    pub code: String,
}

impl Source {
    /// A file.
    pub fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank(text) }
    }

    /// A violation on a line, counted from 0.
    pub fn at(&self, line: usize, what: &str) -> Violation {
        format!("{}:{}: {what}", self.path, line + 1)
    }

    /// How many lines there are before the unit tests.
    pub fn lines_before_tests(&self) -> usize {
        let marker = |line: &str| line.trim_start().starts_with("#[cfg(test)]");
        self.code.lines().position(marker).unwrap_or_else(|| self.code.lines().count())
    }

    /// The code before the unit tests.
    pub fn code_before_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().take(self.lines_before_tests())
    }
}

/// Whether `word` stands in `line` as a word of its own.
pub fn has_word(line: &str, word: &str) -> bool {
    find_word(line, word).is_some()
}

/// Where `word` stands in `line` as a word of its own.
pub fn find_word(line: &str, word: &str) -> Option<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).map(|(at, _)| at).find(|&at| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Replace comments and literals by spaces.
fn blank(text: &str) -> String {
    let mut scanner = Scanner { rest: text.chars().peekable(), out: String::new(), last: ' ' };
    while let Some(next) = scanner.rest.peek().copied() {
        scanner.step(next);
    }
    scanner.out
}

struct Scanner<I: Iterator<Item = char>> {
    rest: Peekable<I>,
    out: String,
    last: char,
}

impl<I: Iterator<Item = char> + Clone> Scanner<I> {
    fn step(&mut self, next: char) {
        match next {
            '/' if self.follows("//") => self.skip_while(|c| c != '\n'),
            '/' if self.follows("/*") => self.block_comment(),
            '"' => self.string(),
            'r' | 'b' | 'c' if !is_word(self.last) => self.prefixed(),
            '\'' => self.character(),
            _ => self.keep(),
        }
    }

    fn follows(&self, text: &str) -> bool {
        let mut ahead = self.rest.clone();
        text.chars().all(|c| ahead.next() == Some(c))
    }

    fn keep(&mut self) {
        if let Some(c) = self.rest.next() {
            self.out.push(c);
            self.last = c;
        }
    }

    fn skip(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        self.out.push(if c == '\n' { '\n' } else { ' ' });
        self.last = ' ';
        Some(c)
    }

    fn skip_while(&mut self, skipped: impl Fn(char) -> bool) {
        while self.rest.peek().copied().is_some_and(&skipped) {
            self.skip();
        }
    }

    fn skip_text(&mut self, text: &str) {
        for _ in text.chars() {
            self.skip();
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            if self.follows("/*") {
                depth += 1;
                self.skip_text("/*");
            } else if self.follows("*/") {
                depth -= 1;
                self.skip_text("*/");
            } else if self.skip().is_none() {
                return;
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.skip();
        while let Some(c) = self.skip() {
            match c {
                '\\' => {
                    self.skip();
                }
                '"' => return,
                _ => {}
            }
        }
    }

    /// A word that may be the prefix of a literal: `r"`, `b"`, `br#"`, `b'` and so on.
    fn prefixed(&mut self) {
        let letters: String = self.rest.clone().take_while(|c| c.is_alphabetic()).collect();
        let hashes = self.rest.clone().skip(letters.len()).take_while(|&c| c == '#').count();
        let after = self.rest.clone().nth(letters.len() + hashes);
        match (letters.as_str(), hashes, after) {
            ("r" | "br" | "cr", _, Some('"')) => self.raw_string(&letters, hashes),
            ("b" | "c", 0, Some('"')) => {
                self.skip_text(&letters);
                self.string();
            }
            ("b", 0, Some('\'')) => {
                self.skip();
                self.character();
            }
            _ => self.keep(),
        }
    }

    fn raw_string(&mut self, letters: &str, hashes: usize) {
        let end = format!("\"{}", "#".repeat(hashes));
        self.skip_text(letters);
        self.skip_text(&end);
        while !self.follows(&end) {
            if self.skip().is_none() {
                return;
            }
        }
        self.skip_text(&end);
    }

    /// A character, or the tick of a lifetime.
    fn character(&mut self) {
        let mut ahead = self.rest.clone();
        ahead.next();
        let (first, second) = (ahead.next(), ahead.next());
        if first == Some('\\') {
            self.skip_text("'\\x");
            self.skip_while(|c| c != '\'' && c != '\n');
            self.skip();
        } else if second == Some('\'') {
            self.skip_text("'x'");
        } else {
            self.keep();
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        for (text, code) in [
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            (r#"f("un\"safe") + 1"#, "f(          ) + 1"),
            (r##"f(r#"a"b"#, b"c", b'd')"##, "f(        ,     ,     )"),
            ("let c = '\"'; 'a: loop { '\\'' }", "let c =    ; 'a: loop {      }"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("for r in bar {}", "for r in bar {}"),
        ] {
            assert_eq!(blank(text), code, "{text}");
        }
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("x = unsafe { y }", "unsafe"));
        assert!(!has_word("#![allow(unsafe_code)]", "unsafe"));
        assert!(has_word("my_tokio + tokio::spawn", "tokio"));
    }

    #[test]
    fn unit_tests_are_not_counted() {
        let source = Source::new("a.rs", "//! x\nfn f() {}\n#[cfg(test)]\nmod tests {}\n");
        assert_eq!(source.lines_before_tests(), 2);
        assert_eq!(source.code_before_tests().count(), 2);
    }
}
