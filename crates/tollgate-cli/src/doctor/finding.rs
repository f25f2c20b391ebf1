//! What was found, and what helps.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::report;

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
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) check: &'static str,
    pub(crate) says: String,
    /// Empty where nothing is wrong.
    pub(crate) remedy: String,
    server: String,
}

/// All that was found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) all: Vec<Finding>,
    /// Which server is looked at; empty while there is one.
    pub(crate) server: String,
}

impl Findings {
    pub(crate) fn fine(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(Level::Fine, check, text.into() + "\n");
    }

    /// The last line of the text is the remedy, here and below.
    pub(crate) fn note(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(Level::Note, check, text.into());
    }

    pub(crate) fn warning(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(Level::Warning, check, text.into());
    }

    pub(crate) fn error(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(Level::Error, check, text.into());
    }

    fn add(&mut self, level: Level, check: &'static str, mut text: String) {
        let remedy = text.split_off(text.rfind('\n').map_or(0, |end| end + 1));
        text.pop();
        let server = self.server.clone();
        self.all.push(Finding {
            level,
            check,
            says: text,
            remedy,
            server,
        });
    }

    pub(super) fn json(&self) -> Value {
        let shown = self.all.iter().map(|finding| {
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
    pub(super) fn text(&mut self) -> String {
        self.all.sort_by_key(|finding| Reverse(finding.level));
        let mut text = String::new();
        for finding in &self.all {
            let (level, check) = (finding.level.word(), finding.check);
            let server = match &*finding.server {
                "" => String::new(),
                server => format!("{server}: "),
            };
            let says = report::line(&format!("{server}{}", finding.says), 1_000);
            text += &format!("{level:8} {check:12} {says}\n");
            if !finding.remedy.is_empty() {
                let remedy = report::line(&finding.remedy, 1_000);
                text += &format!("{:21} → {remedy}\n", "");
            }
        }
        let count = |level| self.all.iter().filter(|it| it.level == level).count();
        text + &match (count(Level::Error), count(Level::Warning)) {
            (0, 0) => "\nnothing is wrong".to_owned(),
            (errors, warnings) => format!("\n{errors} errors, {warnings} warnings"),
        }
    }
}

impl Level {
    pub(crate) fn word(self) -> &'static str {
        ["ok", "note", "warning", "error"][self as usize]
    }
}
