//! What is wrong with a document, collected while it is read.

use std::{cell::RefCell, ops::Range};

/// A wrong part of a document, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Problem {
    /// Bytes of the document.
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
}

/// All that is wrong with a document.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(crate) fn add(&self, span: Range<usize>, message: impl Into<String>) {
        let message = message.into();
        self.0.borrow_mut().push(Problem { span, message });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// In the order of the document.
    pub(crate) fn into_sorted(self) -> Vec<Problem> {
        let mut problems = self.0.into_inner();
        problems.sort_by_key(|problem| (problem.span.start, problem.span.end));
        problems.dedup();
        problems
    }
}
