//! What was found, and what helps.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::printable;

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

pub(super) fn json(findings: &[Finding]) -> Value {
    let shown = findings.iter().map(|finding| {
        json!({
            "level": finding.level.word(),
            "check": finding.check,
            "server": finding.server,
            "says": finding.says,
            "remedy": finding.remedy,
        })
    });
    shown.collect()
}

/// The worst first; a remedy is a line of its own, to be copied.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| Reverse(finding.level));
    let mut text = String::new();
    for Finding {
        level,
        check,
        says,
        remedy,
        server,
    } in sorted
    {
        let separator = if server.is_empty() { "" } else { ": " };
        let says = printable::line(&format!("{server}{separator}{says}"), 1_000);
        text += &format!("{:8} {check:12} {says}\n", level.word());
        if !remedy.is_empty() {
            text += &format!("{:21} → {}\n", "", printable::line(remedy, 1_000));
        }
    }
    let count = |level| findings.iter().filter(|it| it.level == level).count();
    text + &match (count(Level::Error), count(Level::Warning)) {
        (0, 0) => "\nnothing is wrong".to_owned(),
        (errors, warnings) => format!("\n{errors} errors, {warnings} warnings"),
    }
}
