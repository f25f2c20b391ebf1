//! The words of a text, with their places.

use std::ops::Range;

/// A part of the text, and where it begins.
#[derive(Clone, Copy)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
}

impl<'a> Word<'a> {
    pub(super) fn span(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    /// For a message: at most 40 characters of it.
    pub(super) fn quoted(&self) -> String {
        match self.text.char_indices().nth(40) {
            None => format!("{:?}", self.text),
            Some((end, _)) => format!("{:?}…", &self.text[..end]),
        }
    }

    pub(super) fn split_at(&self, at: usize) -> (Self, Self) {
        let (before, after) = self.text.split_at(at);
        let start = self.start + at;
        let after = Word { text: after, start };
        let before = Word {
            text: before,
            ..*self
        };
        (before, after)
    }

    /// Without white space around it.
    pub(super) fn trimmed(&self) -> Self {
        let text = self.text.trim_start();
        let start = self.start + (self.text.len() - text.len());
        let text = text.trim_end();
        Word { text, start }
    }
}

/// The words of a text. A `/` belongs to the word around it: `100 / min` is one.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words: Vec<Word<'_>> = Vec::new();
    for part in text.split_whitespace() {
        // Both are slices of one text.
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        match words.last_mut() {
            Some(last) if last.text.ends_with('/') || part.starts_with('/') => {
                last.text = &text[last.start..start + part.len()];
            }
            _ => words.push(Word { text: part, start }),
        }
    }
    words
}
