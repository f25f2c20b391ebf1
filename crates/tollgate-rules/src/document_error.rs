//! The error of a document: every wrong part, with a marker under it.

use std::{error::Error, fmt, ops::Range};

use crate::{hidden_keys::HiddenKeys, problems::Problem};

/// A document that is not a rule set: all that is wrong with it, and what would be right.
///
/// Displayed, each mistake has the file, the line, the column, the line of the document, and a marker under the wrong part. It goes
/// to logs, so the key of an override is shown as asterisks, also where the syntax is wrong.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentError {
    mistakes: Vec<Mistake>,
}

/// One mistake in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    origin: String,
    line: usize,
    column: usize,
    message: String,
    /// The line of the document, and where the marker is in it, in characters.
    shown: Option<(String, Range<usize>)>,
}

/// The most mistakes that are displayed. All are counted.
const SHOWN: usize = 100;
/// The most characters of a line that are displayed.
const WIDTH: usize = 120;

impl DocumentError {
    /// `keys` are not shown.
    pub(crate) fn new(origin: &str, text: &str, problems: &[Problem], keys: &HiddenKeys) -> Self {
        let lines = Lines::new(text, keys);
        Self {
            mistakes: problems
                .iter()
                .map(|problem| lines.mistake(origin, problem))
                .collect(),
        }
    }

    /// An error about a document as a whole: it cannot be read, say.
    pub(crate) fn of_whole(origin: &str, message: impl Into<String>) -> Self {
        Self {
            mistakes: vec![Mistake {
                origin: origin.to_owned(),
                line: 0,
                column: 0,
                message: message.into(),
                shown: None,
            }],
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.mistakes.extend(other.mistakes);
    }

    /// The mistakes, in the order of the document.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl Mistake {
    /// The name of the document: the path of a file.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The line, from 1; 0 where it is about the document as a whole.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1; 0 where it is about the document as a whole.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, and what would be right.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((line, marked)) = &self.shown else {
            return write!(f, "{}: {}", self.origin, self.message);
        };
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        writeln!(
            f,
            "{}:{}:{}: {}",
            self.origin, self.line, self.column, self.message
        )?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {line}")?;
        let before = " ".repeat(marked.start);
        write!(f, "{margin} | {before}{}", "^".repeat(marked.len().max(1)))
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().take(SHOWN).enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            mistake.fmt(f)?;
        }
        match self.mistakes.len() {
            0 | 1 => Ok(()),
            all if all > SHOWN => write!(f, "\n\n{SHOWN} of {all} mistakes are shown"),
            all => write!(f, "\n\n{all} mistakes"),
        }
    }
}

/// As it is displayed: it comes out of `main`.
impl fmt::Debug for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for DocumentError {}

/// A text by lines.
struct Lines<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
    keys: &'a HiddenKeys,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, keys: &'a HiddenKeys) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = ends.map(|(end, _)| end + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(starts).collect(),
            keys,
        }
    }

    fn mistake(&self, origin: &str, problem: &Problem) -> Mistake {
        let start = self.floor(problem.span.start);
        let end = self.floor(problem.span.end.max(start));
        let index = self.starts.partition_point(|begin| *begin <= start) - 1;
        let begin = self.starts[index];
        let rest = &self.text[begin..];
        let line = rest.split('\n').next().unwrap_or_default();
        let line = line.trim_end_matches('\r');
        let column_of = |at: usize| {
            let bytes = (at - begin).min(line.len());
            line[..bytes].chars().count()
        };
        let marked = column_of(start)..column_of(end).max(column_of(start));
        Mistake {
            origin: origin.to_owned(),
            line: index + 1,
            column: marked.start + 1,
            message: problem.message.clone(),
            shown: Some(cropped(&self.without_keys(begin, line), marked)),
        }
    }

    /// A line that begins at this byte, with as many characters.
    fn without_keys(&self, begin: usize, line: &str) -> String {
        let shown = |(at, c)| if self.keys.covers(begin + at) { '*' } else { c };
        line.char_indices().map(shown).collect()
    }

    /// The start of the character at or before this byte.
    fn floor(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

/// At most [`WIDTH`] characters around the marked ones, without characters that a terminal would obey.
fn cropped(line: &str, marked: Range<usize>) -> (String, Range<usize>) {
    let all = line.chars().count();
    let first = if all <= WIDTH {
        0
    } else {
        marked.start.saturating_sub(WIDTH / 4)
    };
    let shown = line.chars().skip(first).take(WIDTH);
    let shown = shown.map(|c| if c.is_control() { ' ' } else { c });
    let dots = if first > 0 { "…" } else { "" };
    let text: String = dots.chars().chain(shown).collect();
    let shift = |at: usize| (at - first + dots.chars().count()).min(WIDTH + 1);
    (
        text,
        shift(marked.start)..shift(marked.end.max(marked.start)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displayed(text: &str, span: Range<usize>) -> String {
        let message = "it is wrong".to_owned();
        let keys = HiddenKeys::default();
        DocumentError::new("a.toml", text, &[Problem { span, message }], &keys).to_string()
    }

    #[test]
    fn the_marker_is_under_the_wrong_part() {
        assert_eq!(
            displayed("one\ntwo = 3\r\nfour", 10..11),
            "a.toml:2:7: it is wrong\n  |\n2 | two = 3\n  |       ^"
        );
        // Characters, not bytes.
        assert_eq!(
            displayed("ä = \"größe\"", 7..13),
            "a.toml:1:7: it is wrong\n  |\n1 | ä = \"größe\"\n  |       ^^^^"
        );
        // A part of several lines is marked in its first one, the end of the text with one mark.
        assert!(displayed("ab\ncd", 1..5).ends_with("1 | ab\n  |  ^"));
        assert!(displayed("ab", 2..2).ends_with("1 | ab\n  |   ^"));
        assert!(displayed("", 0..0).ends_with("1 | \n  | ^"));
        assert!(displayed("ab", 7..900).ends_with("1 | ab\n  |   ^"));
    }

    #[test]
    fn a_long_line_is_cropped_around_the_wrong_part() {
        let long = "x".repeat(5_000);
        let shown = displayed(&long, 4_000..4_003);
        assert!(shown.len() < 600, "{}", shown.len());
        assert!(shown.contains("^^^") && !shown.contains("^^^^"), "{shown}");
        let shown = displayed(&long, 0..5_000);
        assert!(shown.len() < 600, "{}", shown.len());
    }
}
