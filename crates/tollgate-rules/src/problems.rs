//! What is wrong with a document, collected while it is read.

use std::{cell::RefCell, ops::Range};

/// The most bytes of a message: parsers repeat what they have read, and that may be megabytes.
const LONGEST: usize = 1_000;

/// The most that are kept. A document of ten megabytes may have millions.
pub(crate) const MOST: usize = 10_000;
/// The most that are displayed.
pub(crate) const SHOWN: usize = 100;

/// A wrong part of a document, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Problem {
    /// Bytes of the document.
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

/// What is wrong with a document: the first [`MOST`] problems.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(crate) fn add(&self, span: Range<usize>, message: impl Into<String>) {
        let mut problems = self.0.borrow_mut();
        if problems.len() < MOST {
            let message = shortened(message.into());
            problems.push(Problem { span, message });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// All of them in a line.
    pub(crate) fn messages(self) -> String {
        let messages = self.into_sorted().into_iter();
        let messages: Vec<_> = messages.map(|problem| problem.message).collect();
        messages.join("; ")
    }

    /// In the order of the document.
    pub(crate) fn into_sorted(self) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| (problem.span.start, problem.span.end));
        problems.dedup();
        problems
    }
}

/// The start of the character at or before this byte.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    let mut bytes = (0..=at.min(text.len())).rev();
    bytes.find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn shortened(mut message: String) -> String {
    if message.len() > LONGEST {
        message.truncate(floor(&message, LONGEST));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let problems = Problems::default();
        problems.add(0..1, format!("x{}", "ü".repeat(LONGEST)));
        problems.add(1..2, "x".repeat(LONGEST));
        let messages: Vec<String> = problems
            .into_sorted()
            .into_iter()
            .map(|problem| problem.message)
            .collect();
        assert_eq!(messages[0], format!("x{}…", "ü".repeat(LONGEST / 2 - 1)));
        assert_eq!(messages[1].len(), LONGEST);
    }
}
