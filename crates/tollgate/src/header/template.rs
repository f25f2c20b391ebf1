//! Header fields and bodies of a service's own: texts with variables.

use std::time::Duration;

use tollgate_core::{RuleError, RuleSet, Tick};

use crate::{
    diagnostics::wrong_setting,
    header::times::{epoch_seconds, whole_seconds},
    json_text::push_text,
};

/// The variables: words, and numbers from [`NUMBERS`] on. Times are in whole seconds, rounded up.
const NAMES: [&str; 8] = [
    "rule",
    "reason",
    "limit",
    "window",
    "remaining",
    "used",
    "reset",
    "reset_at",
];
const NUMBERS: usize = 2;

/// A text with variables, such as `{limit};window={window}`.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Variables by their place in [`NAMES`], each behind a text.
    parts: Vec<(Box<str>, usize)>,
    end: Box<str>,
}

/// What variables stand for.
#[derive(Debug)]
pub(crate) struct Values([Option<String>; NAMES.len()]);

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let (mut parts, mut pieces) = (Vec::new(), text.split('{'));
        let mut end = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (name, behind) = piece.split_once('}').unwrap_or_default();
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            // A brace of JSON begins none.
            if name.is_empty() || !name.chars().all(is_name) {
                end = end + "{" + piece;
                continue;
            }
            let Some(place) = NAMES.iter().position(|known| *known == name) else {
                return Err(RuleError::unknown("variable", name, NAMES));
            };
            parts.push((end.into(), place));
            end = behind.to_owned();
        }
        let end = end.into();
        Ok(Self { parts, end })
    }

    /// One of JSON, in which words bring their quotes.
    pub(crate) fn parse_json(text: &str) -> Result<Self, RuleError> {
        let template = Self::parse(text)?;
        let mut is_in_text = false;
        for (before, variable) in &template.parts {
            let before = before.replace(r"\\", "").replace(r#"\""#, "");
            is_in_text ^= before.matches('"').count() % 2 == 1;
            if is_in_text && *variable < NUMBERS {
                let name = NAMES[*variable];
                return Err(wrong_setting(format!(
                    "{{{name}}} brings its quotes: write it outside of a text, as {{\"{name}\": {{{name}}}}}"
                )));
            }
        }
        Ok(template)
    }

    /// The text; `None` if a variable has no value.
    pub(crate) fn text(&self, values: &Values) -> Option<String> {
        let mut text = String::new();
        for (before, variable) in &self.parts {
            text += before;
            text += values.0[*variable].as_deref()?;
        }
        Some(text + &self.end)
    }

    /// The text as JSON: words are quoted, and what has no value is null.
    pub(crate) fn json(&self, values: &Values) -> String {
        let mut json = String::new();
        for (before, variable) in &self.parts {
            json += before;
            match values.0[*variable].as_deref() {
                Some(word) if *variable < NUMBERS => push_text(&mut json, word),
                value => json += value.unwrap_or("null"),
            }
        }
        json + &self.end
    }
}

impl Values {
    /// Of a rule, its plan and what is left, of why a request was denied, and of a time from then until something is.
    pub(crate) fn new(
        rules: &RuleSet,
        quota: Option<(usize, usize, u64)>,
        reason: Option<&str>,
        reset: Option<Duration>,
        from: Tick,
    ) -> Self {
        let found = quota
            .and_then(|(rule, ..)| rules.rules().get(rule))
            .zip(quota);
        let limit = found.and_then(|(rule, (_, plan, _))| rule.limit_under(plan));
        let left = found.map(|(_, (.., left))| left);
        let window = found.map(|(rule, (_, plan, _))| rule.quota_under(plan).window());
        // Slots have none.
        let window = window.filter(|window| !window.is_zero());
        let used = limit.zip(left);
        let reset_at = reset.map(|reset| epoch_seconds(from, reset));
        let text = |number: Option<u64>| number.map(|number| number.to_string());
        Self([
            found.map(|(rule, _)| rule.name().to_owned()),
            reason.map(str::to_owned),
            text(limit),
            text(window.map(whole_seconds)),
            text(left),
            text(used.map(|(limit, left)| limit.saturating_sub(left))),
            text(reset.map(whole_seconds)),
            text(reset_at),
        ])
    }
}
