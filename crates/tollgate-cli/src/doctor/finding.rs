//! What was found, and what helps.

use serde_json::{Value, json};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// It will hurt some day.
    Warning,
    /// Limits do not hold, or nothing is decided.
    Error,
}

/// What one check has found on one server.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) check: &'static str,
    pub(crate) says: String,
    /// Empty where nothing is wrong.
    pub(crate) remedy: String,
    /// Which server; empty while there is one.
    pub(crate) server: String,
}

impl Level {
    /// A finding of this level.
    pub(crate) fn of(
        self,
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            level: self,
            check,
            says: says.into(),
            remedy: remedy.into(),
            server: String::new(),
        }
    }

    pub(crate) fn word(self) -> &'static str {
        ["ok", "note", "warning", "error"][self as usize]
    }
}

impl Finding {
    pub(crate) fn json(&self) -> Value {
        json!({
            "level": self.level.word(),
            "check": self.check,
            "server": self.server,
            "says": self.says,
            "remedy": self.remedy,
        })
    }
}
