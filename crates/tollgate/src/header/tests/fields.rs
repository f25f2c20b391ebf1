//! Verdicts, the fields that are written of them, and the lists of fields for scripts in a browser.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use tollgate_core::{Retry, Rule, RuleSet, Source, Verdict, algorithm::Assessment};

use crate::header::{HeaderStyle as S, Headers, exposed_headers, grpc_exposed_headers};

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
    Headers::new(style, Default::default(), rules).write(map, verdicts, rules, None);
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

#[test]
fn every_field_is_exposed_once_and_in_lower_case_and_those_of_grpc_by_a_list_of_their_own() {
    let names: Vec<_> = exposed_headers().collect();
    let lists = [
        "ratelimit ratelimit-policy ratelimit-limit ratelimit-remaining ratelimit-reset",
        "x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset retry-after",
    ];
    assert_eq!(names, lists.join(" ").split(' ').collect::<Vec<_>>());
    let names: Vec<_> = grpc_exposed_headers().collect();
    let list = "grpc-status grpc-message grpc-status-details-bin grpc-retry-pushback-ms";
    assert_eq!(names, list.split(' ').collect::<Vec<_>>());
}
