//! What is wrong with the settings of a shedder.

use std::{borrow::Cow, error::Error, fmt};

/// A setting that cannot work. Says what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShedError(Cow<'static, str>);

impl ShedError {
    pub(super) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for ShedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ShedError {}
