//! Verdicts, and the fields that are written of them.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use tollgate_core::{Retry, Rule, RuleSet, Source, Verdict, algorithm::Assessment};

use crate::header::{HeaderStyle as S, Headers};

/// The second 1 700 000 000.
const DATE: HeaderValue = HeaderValue::from_static("Tue, 14 Nov 2023 22:13:20 GMT");

pub(super) fn rules(rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    RuleSet::new(rules).expect("valid rules")
}

pub(super) fn allow(rule: u16, remaining: u64, reset_after: Duration) -> Verdict {
    answer(rule, 0, true, remaining, reset_after, Retry::Now)
}

pub(super) fn deny(rule: u16, remaining: u64, reset_after: Duration, retry: Retry) -> Verdict {
    answer(rule, 0, false, remaining, reset_after, retry)
}

pub(super) fn answer(
    rule: u16,
    plan: u16,
    fits: bool,
    remaining: u64,
    reset_after: Duration,
    retry: Retry,
) -> Verdict {
    let reset_after = u64::try_from(reset_after.as_micros()).expect("in range");
    let answer = Assessment::new(fits, remaining, reset_after, retry);
    Verdict::new(rule, plan, answer, Source::Store)
}

pub(super) fn write_to(map: &mut HeaderMap, style: S, rules: &RuleSet, verdicts: &[Verdict]) {
    map.insert(header::DATE, DATE);
    Headers::new(style, Default::default(), rules).write(map, verdicts, rules);
    map.remove(header::DATE);
}

/// The fields as they go over the wire, sorted.
pub(super) fn written(style: S, rules: &RuleSet, verdicts: &[Verdict]) -> Vec<String> {
    let mut map = HeaderMap::new();
    write_to(&mut map, style, rules, verdicts);
    lines(&map)
}

pub(super) fn lines(map: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = map
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ascii")))
        .collect();
    lines.sort_by(|a, b| a.split(':').next().cmp(&b.split(':').next()));
    lines
}
