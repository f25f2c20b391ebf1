//! Who changes rules, and why.

use std::fmt;

/// Who changes rules, and why: for the audit. The caller says it, and it is not checked.
///
/// ```
/// use tollgate_rules::Author;
///
/// let author = Author::new("alice").because("ticket 4711");
/// assert_eq!(author.to_string(), "alice, because: ticket 4711");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Author {
    actor: String,
    reason: String,
}

impl Author {
    /// A person, a program, or a file.
    pub fn new(actor: impl Into<String>) -> Self {
        Self {
            actor: actor.into(),
            reason: String::new(),
        }
    }

    /// The reason of the change.
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Who it is.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Why; empty if the author gave no reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.actor)?;
        if !self.reason.is_empty() {
            write!(f, ", because: {}", self.reason)?;
        }
        Ok(())
    }
}
