//! Header fields and bodies of a service's own: texts with variables.

use std::{borrow::Cow, time::Duration};

use http::HeaderMap;
use tollgate_core::{RuleError, RuleErrorKind, RuleSet, UnknownName};

use crate::{
    header::{
        response_time::{epoch_seconds, response_time},
        seconds::whole_seconds,
    },
    json_text::push_text,
};

/// The variables. A time is in whole seconds, rounded up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variable {
    Rule,
    Limit,
    Window,
    Remaining,
    Used,
    Reset,
    ResetAt,
    Reason,
    Status,
}

const NAMES: [(&str, Variable); 9] = [
    ("rule", Variable::Rule),
    ("limit", Variable::Limit),
    ("window", Variable::Window),
    ("remaining", Variable::Remaining),
    ("used", Variable::Used),
    ("reset", Variable::Reset),
    ("reset_at", Variable::ResetAt),
    ("reason", Variable::Reason),
    ("status", Variable::Status),
];

/// A text with variables, such as `{limit};window={window}`.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Variables, each behind a text.
    parts: Vec<(Box<str>, Variable)>,
    end: Box<str>,
}

/// What variables stand for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Values<'a> {
    pub(crate) rule: Option<&'a str>,
    pub(crate) limit: Option<u64>,
    pub(crate) window: Option<Duration>,
    pub(crate) remaining: Option<u64>,
    pub(crate) reset: Option<Duration>,
    /// The end of `reset`, in seconds since the Unix epoch.
    pub(crate) reset_at: Option<u64>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) status: Option<u16>,
}

impl Template {
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let (mut parts, mut begin, mut from) = (Vec::new(), 0, 0);
        while let Some(open) = text[from..].find('{') {
            let open = from + open;
            let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
            let name = text[open + 1..].split_once('}').map(|(name, _)| name);
            from = open + 1;
            // A brace of JSON begins none.
            let Some(name) = name.filter(|name| !name.is_empty() && name.chars().all(is_name))
            else {
                continue;
            };
            let Some((_, variable)) = NAMES.iter().find(|(known, _)| *known == name) else {
                let unknown = UnknownName::new("variable", name, NAMES.map(|(name, _)| name));
                return Err(RuleError::general(
                    RuleErrorKind::RuleSet,
                    unknown.to_string(),
                ));
            };
            parts.push((text[begin..open].into(), *variable));
            begin = open + name.len() + 2;
            from = begin;
        }
        let end = text[begin..].into();
        Ok(Self { parts, end })
    }

    /// The text; `None` if a variable has no value.
    pub(crate) fn text(&self, values: &Values<'_>) -> Option<String> {
        let mut text = String::new();
        for (before, variable) in &self.parts {
            text += before;
            text += &values.of(*variable)?;
        }
        Some(text + &self.end)
    }

    /// The text as JSON: words are quoted, and what has no value is null.
    pub(crate) fn json(&self, values: &Values<'_>) -> String {
        let mut json = String::new();
        for (before, variable) in &self.parts {
            json += before;
            match (values.of(*variable), variable) {
                (Some(word), Variable::Rule | Variable::Reason) => push_text(&mut json, &word),
                (Some(number), _) => json += &number,
                (None, _) => json += "null",
            }
        }
        json + &self.end
    }
}

impl<'a> Values<'a> {
    /// What they say of a quota.
    pub(crate) fn of_quota(rules: &'a RuleSet, rule: usize, plan: usize, remaining: u64) -> Self {
        let rule = rules.rules().get(rule);
        Self {
            rule: rule.map(|rule| rule.name()),
            limit: rule.and_then(|rule| rule.limit_under(plan)),
            window: rule.map(|rule| rule.quota_under(plan).window()),
            remaining: Some(remaining),
            ..Self::default()
        }
    }

    /// With the time until something is left, for a response with these fields.
    pub(crate) fn until(self, reset: Option<Duration>, map: &HeaderMap) -> Self {
        let reset_at = reset.map(|reset| epoch_seconds(response_time(map), reset));
        Self {
            reset,
            reset_at,
            ..self
        }
    }

    fn of(&self, variable: Variable) -> Option<Cow<'a, str>> {
        let number = match variable {
            Variable::Rule => return self.rule.map(Cow::Borrowed),
            Variable::Reason => return self.reason.map(Cow::Borrowed),
            Variable::Limit => self.limit,
            Variable::Window => self.window.map(whole_seconds),
            Variable::Remaining => self.remaining,
            Variable::Used => self
                .limit
                .zip(self.remaining)
                .map(|(limit, left)| limit.saturating_sub(left)),
            Variable::Reset => self.reset.map(whole_seconds),
            Variable::ResetAt => self.reset_at,
            Variable::Status => self.status.map(u64::from),
        };
        number.map(|number| number.to_string().into())
    }
}
