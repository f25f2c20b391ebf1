//! What is wrong with the settings, a line each.

use std::{error::Error, fmt, ops::Range, path::Path};

/// What is wrong with the settings or with what they name, a line each: the file and the place, what is wrong, and what would be
/// right.
#[derive(Debug, Default)]
pub struct Mistakes(Vec<String>);

impl Mistakes {
    pub(crate) fn one(message: impl fmt::Display) -> Self {
        Self(vec![message.to_string()])
    }

    /// What is wrong with a file.
    pub(crate) fn of(file: &Path, why: impl fmt::Display) -> Self {
        Self::one(format!("{}: {why}", file.display()))
    }

    /// Two settings may need the same.
    pub(crate) fn add(&mut self, message: impl fmt::Display) {
        let message = message.to_string();
        if !self.0.contains(&message) {
            self.0.push(message);
        }
    }

    /// What is wrong, if it is.
    pub(crate) fn add_of<T>(&mut self, result: Result<T, Self>) {
        if let Err(wrong) = result {
            self.add(wrong);
        }
    }

    /// A mistake at a place of a file.
    pub(crate) fn add_at(
        &mut self,
        file: &Path,
        text: &str,
        span: Range<usize>,
        message: impl fmt::Display,
    ) {
        let before = text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |last| last.chars().count())
            + 1;
        self.add(format!("{}:{line}:{column}: {message}", file.display()));
    }

    /// These, or else the value.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        match self.0.is_empty() {
            true => Ok(value),
            false => Err(self),
        }
    }
}

impl From<std::io::Error> for Mistakes {
    fn from(wrong: std::io::Error) -> Self {
        Self::one(wrong)
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl Error for Mistakes {}
