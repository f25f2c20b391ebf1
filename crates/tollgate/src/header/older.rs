//! Fields of older styles, which report one rule. `RateLimit-Policy` of draft-6 and draft-7, with policies identified by their limit;
//! `RateLimit` of draft-7, one dictionary; and three fields of one number each: `RateLimit-*` of draft-6, and `X-RateLimit-*`.
//!
//! ```text
//! RateLimit-Policy: 100;w=60, 5000;w=86400
//! RateLimit: limit=100, remaining=50, reset=17
//!
//! X-RateLimit-Limit: 100
//! X-RateLimit-Remaining: 50
//! X-RateLimit-Reset: 17
//! ```

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::{MAX_UNITS, RuleSet};

use crate::header::{
    name::{
        RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING, RATELIMIT_RESET,
        X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
    },
    quota_status::QuotaStatus,
    structured::{Line, field_value, push_integer, separate},
    times::whole_seconds,
};

/// Writes the policies that are not in `map` yet. No two may share a limit: the one with the longer window stays, which is the
/// lower rate.
pub(super) fn write_policies(map: &mut HeaderMap, rules: &RuleSet, statuses: &[QuotaStatus]) {
    let mut kept = SmallVec::<[(u64, u64); 4]>::new();
    for status in statuses {
        let Some(rule) = rules.rules().get(status.rule) else {
            continue;
        };
        // These drafts require the window, so a shorter one is rounded up to a second.
        let seconds = whole_seconds(rule.quota_under(status.plan).window());
        match kept.iter_mut().find(|(limit, _)| *limit == status.limit) {
            Some((_, longer)) => *longer = seconds.max(*longer),
            None => kept.push((status.limit, seconds)),
        }
    }
    for value in map.get_all(RATELIMIT_POLICY) {
        kept.retain(|(limit, _)| !limits(value).any(|written| written == *limit));
    }
    let mut line = Line::new();
    for (limit, seconds) in kept {
        separate(&mut line);
        push_integer(&mut line, limit);
        line.push(b";w=");
        push_integer(&mut line, seconds);
    }
    if let Some(policies) = field_value(&line) {
        let _ = map.try_append(RATELIMIT_POLICY, policies);
    }
}

/// The limits of the policies in a value.
fn limits(value: &HeaderValue) -> impl Iterator<Item = u64> {
    value
        .to_str()
        .unwrap_or_default()
        .split(',')
        .filter_map(|policy| policy.split(';').next()?.trim().parse().ok())
}

/// Writes the field, unless an inner limiter has written one that leaves less.
pub(super) fn write_dictionary(map: &mut HeaderMap, status: &QuotaStatus) {
    let reset = whole_seconds(status.lasts);
    let written = |name: &str| {
        let mut members = map.get(RATELIMIT)?.to_str().ok()?.split(',');
        members.find_map(|member| {
            let (key, number) = member.split_once('=')?;
            (key.trim() == name).then(|| number.trim().parse().ok())?
        })
    };
    if leaves_less(written("remaining"), written("reset"), status, reset) {
        return;
    }
    let mut line = Line::new();
    line.push(b"limit=");
    push_integer(&mut line, status.limit);
    line.push(b", remaining=");
    push_integer(&mut line, status.remaining);
    line.push(b", reset=");
    push_integer(&mut line, reset);
    if let Some(value) = field_value(&line) {
        let _ = map.try_insert(RATELIMIT, value);
    }
}

/// Whether the remaining units and the reset that an inner limiter has written are fewer, or as many for at least the same time. A
/// missing or invalid number does not count.
fn leaves_less(
    remaining: Option<u64>,
    reset: Option<u64>,
    status: &QuotaStatus,
    own_reset: u64,
) -> bool {
    remaining.is_some_and(|remaining| {
        remaining < status.remaining
            || remaining == status.remaining && reset.is_none_or(|reset| reset >= own_reset)
    })
}

/// The fields for the limit, the remaining units and the reset.
pub(super) static DRAFT_6: [HeaderName; 3] =
    [RATELIMIT_LIMIT, RATELIMIT_REMAINING, RATELIMIT_RESET];

pub(super) static X_RATELIMIT: [HeaderName; 3] =
    [X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET];

/// Writes all three, unless an inner limiter has written what leaves less.
pub(super) fn write_triple(
    map: &mut HeaderMap,
    names: &[HeaderName; 3],
    status: &QuotaStatus,
    reset: u64,
) {
    let written = |name| map.get(name)?.to_str().ok()?.trim().parse().ok();
    let [_, remaining_name, reset_name] = names;
    if leaves_less(written(remaining_name), written(reset_name), status, reset) {
        return;
    }
    for (name, number) in names.iter().zip([status.limit, status.remaining, reset]) {
        let _ = map.try_insert(name, HeaderValue::from(number.min(MAX_UNITS)));
    }
}
