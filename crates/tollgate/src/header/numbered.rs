//! `RateLimit-Policy` of draft-6 and draft-7: policies identified by their limit.
//!
//! ```text
//! RateLimit-Policy: 100;w=60, 5000;w=86400
//! ```

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::{MAX_UNITS, Quota, RuleSet};

use crate::header::{
    line::Line,
    name::RATELIMIT_POLICY,
    per_quota::PerQuota,
    quota_status::QuotaStatus,
    seconds::whole_seconds,
    structured::{self, separate},
};

#[derive(Debug)]
pub(super) struct Numbered(PerQuota<Option<Policy>>);

#[derive(Clone, Debug)]
struct Policy {
    limit: u64,
    seconds: u64,
    value: HeaderValue,
}

impl Policy {
    fn of(quota: &Quota) -> Option<Self> {
        let limit = quota.limit().min(MAX_UNITS);
        // These drafts require the window, so a shorter one is rounded up to a second.
        let seconds = whole_seconds(quota.window()).min(MAX_UNITS);
        Some(Self {
            limit,
            seconds,
            value: HeaderValue::from_str(&format!("{limit};w={seconds}")).ok()?,
        })
    }
}

impl Numbered {
    pub(super) fn new(rules: &RuleSet) -> Self {
        Self(PerQuota::new(rules, |_, quota| Policy::of(quota)))
    }

    pub(super) fn write(&self, map: &mut HeaderMap, rules: &RuleSet, statuses: &[QuotaStatus]) {
        if let Some(policies) = self.policies(map, rules, statuses) {
            let _ = map.try_append(RATELIMIT_POLICY, policies);
        }
    }

    /// The policies that are not in `map` yet. No two may share a limit: the one with the longer window stays, which is
    /// the lower rate.
    fn policies(
        &self,
        map: &HeaderMap,
        rules: &RuleSet,
        statuses: &[QuotaStatus],
    ) -> Option<HeaderValue> {
        let mut kept = SmallVec::<[Cow<'_, Policy>; 4]>::new();
        for status in statuses {
            let policy = match self.0.find(status.rule, status.plan) {
                Some(policy) => policy.as_ref().map(Cow::Borrowed),
                None => {
                    let rule = rules.rules().get(status.rule)?;
                    Policy::of(&rule.quota_under(status.plan)).map(Cow::Owned)
                }
            };
            let Some(policy) = policy else {
                continue;
            };
            match kept.iter_mut().find(|other| other.limit == policy.limit) {
                Some(other) if other.seconds < policy.seconds => *other = policy,
                Some(_) => {}
                None => kept.push(policy),
            }
        }
        for value in map.get_all(RATELIMIT_POLICY) {
            kept.retain(|policy| !limits(value).any(|limit| limit == policy.limit));
        }
        // A value of its own: a clone would count on one that all threads share.
        let mut line = Line::new();
        for policy in kept {
            separate(&mut line);
            line.push(policy.value.as_bytes());
        }
        structured::value(&line)
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
