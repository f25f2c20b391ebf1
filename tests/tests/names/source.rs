//! What a source file says to people: its documentation, and its texts.

use crate::page::Page;

/// What a file says in one place.
pub(crate) struct Passage {
    /// The line on which it begins.
    pub(crate) line: usize,
    pub(crate) prose: Vec<String>,
}

/// The documentation and the texts of a Rust file, up to its tests: a message, a help, the value of a label.
pub(crate) fn passages(source: &str) -> Vec<Passage> {
    let source = match source.split_once("#[cfg(test)]\nmod ") {
        Some((before, _)) => before,
        None => source,
    };
    let mut reader = Reader {
        rest: source,
        line: 1,
        passages: Vec::new(),
        docs: (0, String::new()),
        is_of_item: false,
    };
    while !reader.rest.is_empty() {
        reader.token();
    }
    reader.end_docs();
    reader.passages
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    passages: Vec<Passage>,
    /// The lines of documentation that follow each other, and where they begin.
    docs: (usize, String),
    is_of_item: bool,
}

impl<'a> Reader<'a> {
    fn token(&mut self) {
        let Some(first) = self.rest.chars().next() else {
            return;
        };
        if self.rest.starts_with("//") {
            let line = self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
            let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
            if let Some(doc) = doc {
                // Of the file, and then of its first item.
                if line.starts_with("///") != self.is_of_item {
                    self.end_docs();
                    self.is_of_item = !self.is_of_item;
                }
                if self.docs.1.is_empty() {
                    self.docs.0 = self.line;
                }
                self.docs.1.push_str(doc.strip_prefix(' ').unwrap_or(doc));
                self.docs.1.push('\n');
            }
            return;
        }
        if first.is_whitespace() {
            self.take(first.len_utf8());
            return;
        }
        self.end_docs();
        if let Some(hashes) = raw_text(self.rest) {
            let start = self.rest.find('"').expect("it begins so") + 1;
            self.take(start);
            let end = format!("\"{}", "#".repeat(hashes));
            self.text(self.rest.find(&end).unwrap_or(self.rest.len()), end.len());
        } else if first == '"' {
            self.take(1);
            self.text(end_of_text(self.rest), 1);
        } else if first == '\'' {
            self.take(character(self.rest));
        } else {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = self.rest.find(|c| !word(c)).filter(|at| *at > 0);
            let length = match word(first) {
                true => length.unwrap_or(self.rest.len()),
                false => first.len_utf8(),
            };
            self.take(length);
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// A text of this length, and what ends it.
    fn text(&mut self, length: usize, end: usize) {
        let line = self.line;
        let text = self.take(length).replace("\\n", " ");
        self.take(end.min(self.rest.len()));
        // A line that goes on: `\` and the indentation of the next one.
        let lines = text.split("\\\n").map(str::trim_start);
        let prose = vec![lines.collect()];
        self.passages.push(Passage { line, prose });
    }

    fn end_docs(&mut self) {
        let (line, docs) = std::mem::take(&mut self.docs);
        if !docs.is_empty() {
            let prose = Page::new(&docs).prose;
            self.passages.push(Passage { line, prose });
        }
    }
}

/// How many `#` a raw text has that begins here.
fn raw_text(rest: &str) -> Option<usize> {
    let rest = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// Where a text ends whose first quote was taken.
fn end_of_text(rest: &str) -> usize {
    let mut is_escaped = false;
    let end = rest.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.unwrap_or(rest.len())
}

/// How long a character is, with its quotes; 1 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut letters = rest.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(1, |at| at + 4),
        Some((at, c)) if rest[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 1,
    }
}

#[test]
fn documentation_and_texts_are_read_and_comments_code_and_tests_are_not() {
    let source = r##"
//! A file. `code` is
//! left out.

/// A type of 'a and '"'.
///
/// ```
/// let example = "left out";
/// ```
// A comment "left out".
struct Kept<'a>(&'a str);
fn message() -> (&'static str, &'static str) {
    ("first \"part\", \
      second part", r#"raw "text""#)
}
#[cfg(test)]
mod tests {
    /// Left out.
}
"##;
    let passages = passages(source);
    let lines: Vec<usize> = passages.iter().map(|passage| passage.line).collect();
    let prose: Vec<&str> = passages
        .iter()
        .flat_map(|passage| &passage.prose)
        .map(String::as_str)
        .collect();
    assert_eq!(
        prose,
        [
            "A file. ` is left out.",
            "A type of 'a and '\"'.",
            "first \\\"part\\\", second part",
            "raw \"text\""
        ]
    );
    assert_eq!(lines, [2, 5, 13, 14]);
}
