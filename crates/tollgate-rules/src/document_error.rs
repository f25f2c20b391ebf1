//! What is wrong with a document: collected while it is read, and then an error with a marker under every wrong part.

use std::{error::Error, fmt, ops::Range};

use crate::{
    hidden_keys::HiddenKeys,
    node::{MOST, Problem, floor},
};

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
#[non_exhaustive]
pub struct Mistake {
    /// The name of the document: the path of a file.
    pub origin: String,
    /// The line, from 1; 0 where it is about the document as a whole.
    pub line: usize,
    /// The column in characters, from 1; 0 where it is about the document as a whole.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line of the document, and where the marker is in it, in characters.
    shown: Option<(String, Range<usize>)>,
}

/// The most characters of a line that are displayed.
const WIDTH: usize = 120;

impl DocumentError {
    pub(crate) fn none() -> Self {
        let mistakes = Vec::new();
        Self { mistakes }
    }

    /// Adds what is wrong with a text. `keys` are not shown.
    pub(crate) fn add(
        &mut self,
        origin: &str,
        text: &str,
        problems: &[Problem],
        keys: &HiddenKeys,
    ) {
        let lines = Lines::new(text, keys);
        let problems = problems.iter();
        self.mistakes
            .extend(problems.map(|problem| lines.mistake(origin, problem)));
    }

    /// An error about a document as a whole: it cannot be read, say.
    pub(crate) fn of_whole(origin: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            mistakes: vec![Mistake {
                origin: origin.to_string(),
                line: 0,
                column: 0,
                message: message.into(),
                shown: None,
            }],
        }
    }

    /// The mistakes, in the order of the document: the first 100 that are found.
    #[must_use]
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (origin, number, message) = (&self.origin, self.line.to_string(), &self.message);
        let Some((line, marked)) = &self.shown else {
            return write!(f, "{origin}: {message}");
        };
        let margin = " ".repeat(number.len());
        writeln!(f, "{origin}:{number}:{}: {message}", self.column)?;
        writeln!(f, "{margin} |\n{number} | {line}")?;
        let before = " ".repeat(marked.start);
        write!(f, "{margin} | {before}{}", "^".repeat(marked.len().max(1)))
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            mistake.fmt(f)?;
        }
        match self.mistakes.len() {
            0 | 1 => Ok(()),
            MOST.. => write!(f, "\n\n{MOST} mistakes or more"),
            all => write!(f, "\n\n{all} mistakes"),
        }
    }
}

// As it is displayed: it comes out of `main`.
tollgate_core::debug_fields!(DocumentError as Display);

impl Error for DocumentError {}

/// The line of a byte of a text, from 1.
pub(crate) fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at].iter().filter(|byte| **byte == b'\n').count()
}

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
        let start = floor(self.text, problem.span.start);
        let end = floor(self.text, problem.span.end.max(start));
        let index = self.starts.partition_point(|begin| *begin <= start) - 1;
        let line = self.line(index);
        let (start, end) = (start.min(line.end), end.min(line.end));
        let column = self.text[line.start..start].chars().count();
        Mistake {
            origin: origin.to_owned(),
            line: index + 1,
            column: column + 1,
            message: problem.message.clone(),
            shown: Some(self.cropped(line, start..end, column)),
        }
    }

    /// The bytes of a line, without what ends it.
    fn line(&self, index: usize) -> Range<usize> {
        let begin = self.starts[index];
        let next = self.starts.get(index + 1);
        let end = next.map_or(self.text.len(), |next| next - 1);
        // One at most: a line may be megabytes of them.
        let line = &self.text[begin..end];
        begin..end - usize::from(line.ends_with('\r'))
    }

    /// At most [`WIDTH`] characters of a line around the marked bytes, without keys and without characters that a terminal would obey,
    /// and where the mark is in them. `column` characters of the line are before the mark.
    fn cropped(
        &self,
        line: Range<usize>,
        marked: Range<usize>,
        column: usize,
    ) -> (String, Range<usize>) {
        let is_long = self.text[line.clone()].chars().nth(WIDTH).is_some();
        let before = if is_long {
            column.min(WIDTH / 4)
        } else {
            column
        };
        let back = self.text[line.start..marked.start].char_indices().rev();
        let from = match before.checked_sub(1) {
            None => marked.start,
            Some(index) => line.start + back.map(|(at, _)| at).nth(index).unwrap_or(0),
        };
        let shown = self.text[from..line.end].char_indices().take(WIDTH);
        let shown = shown.map(|(at, c)| match c {
            _ if self.keys.covers(from + at) => '*',
            c if c.is_control() => ' ',
            c => c,
        });
        let dots = if column > before { "…" } else { "" };
        let text: String = dots.chars().chain(shown).collect();
        let start = before + dots.chars().count();
        // As many as could be displayed.
        let marked = self.text[marked].chars().take(WIDTH + 1).count();
        (text, start..(start + marked).min(WIDTH + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displayed(text: &str, span: Range<usize>) -> String {
        let message = "it is wrong".to_owned();
        let keys = HiddenKeys::default();
        let mut error = DocumentError::none();
        error.add("a.toml", text, &[Problem { span, message }], &keys);
        error.to_string()
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
        // What ends a line is no part of it, and what would move the cursor of a terminal is a space.
        assert!(displayed("ab\r\r\ncd", 0..1).ends_with("1 | ab \n  | ^"));
        assert!(displayed("ab", 7..900).ends_with("1 | ab\n  |   ^"));
        // A part that begins within a character begins with it.
        assert!(displayed("a→b", 3..4).ends_with("1 | a→b\n  |  ^"));
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
