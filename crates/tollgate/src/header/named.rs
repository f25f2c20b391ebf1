//! Lists of named policies: the syntax of draft-8 to draft-11.
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
//! RateLimit: "burst";r=42;t=17, "daily";r=901;t=30411
//! ```

use http::{HeaderMap, HeaderValue};
use tollgate_core::{Quota, Rule, RuleSet};

use crate::header::{
    merge,
    name::{RATELIMIT, RATELIMIT_POLICY},
    per_quota::{Before, PerQuota},
    quota_status::QuotaStatus,
    seconds::whole_seconds,
    structured::{self, Line, push_integer, separate, string},
};

/// The most rules whose policies are one value.
const MANY: usize = 16;

/// The constant parts of the fields, serialised once.
#[derive(Debug)]
pub(super) struct Named {
    /// `"name";r=`.
    prefixes: PerQuota<Box<[u8]>>,
    policies: PerQuota<Option<HeaderValue>>,
    /// The rules that apply to a request without plans and skipped rules, with their policies in one value.
    ///
    /// Without rules where there are many: they select by route.
    usual: Box<[usize]>,
    usual_policies: Option<HeaderValue>,
}

impl Named {
    pub(super) fn new(rules: &RuleSet, before: Before<'_, Self>) -> Self {
        let policies = before.map(|(rules, before)| (rules, &before.policies));
        let policies = PerQuota::new(rules, policies, |rule, quota| {
            HeaderValue::from_str(&policy(rule, quota)?).ok()
        });
        let all = match rules.rules().len() {
            all if all <= MANY => all,
            _ => 0,
        };
        let usual: Box<[usize]> = (0..all)
            .filter(|rule| rules.enforces(*rule) && !rules.rules()[*rule].quota().is_unlimited())
            .collect();
        let prefixes = before.map(|(rules, before)| (rules, &before.prefixes));
        Self {
            prefixes: PerQuota::by_rule(rules, prefixes, |rule| {
                string(rule.name()).map_or_else(Box::default, |name| {
                    format!("{name};r=").into_bytes().into()
                })
            }),
            usual_policies: join(usual.iter().map(|rule| policies.find(*rule, 0)?.clone())),
            policies,
            usual,
        }
    }

    #[inline]
    pub(super) fn write(
        &self,
        map: &mut HeaderMap,
        rules: &RuleSet,
        statuses: impl Iterator<Item = QuotaStatus> + Clone,
    ) {
        let mut line = Line::new();
        let mut expected = self.usual.iter();
        let mut usual = true;
        for status in statuses.clone() {
            usual &= status.plan == 0 && expected.next() == Some(&status.rule);
            let Some(prefix) = self
                .prefixes
                .find(status.rule, 0)
                .filter(|name| !name.is_empty())
            else {
                continue;
            };
            separate(&mut line);
            line.extend_from_slice(prefix);
            push_integer(&mut line, status.remaining);
            line.extend_from_slice(b";t=");
            push_integer(&mut line, whole_seconds(status.lasts));
        }
        // Appends to the list of an inner limiter.
        let limits = structured::value(&line);
        let was_there =
            limits.is_some_and(|limits| matches!(map.try_append(RATELIMIT, limits), Ok(true)));
        let policies = if usual && expected.next().is_none() {
            self.usual_policies.clone()
        } else {
            self.policies(rules, statuses)
        };
        if let Some(policies) = policies {
            let _ = map.try_append(RATELIMIT_POLICY, policies);
        }
        if was_there {
            merge::merge_same_names(map);
        }
    }

    fn policies(
        &self,
        rules: &RuleSet,
        mut statuses: impl Iterator<Item = QuotaStatus> + Clone,
    ) -> Option<HeaderValue> {
        let find = |status: QuotaStatus| match self.policies.find(status.rule, status.plan) {
            Some(policy) => policy.clone(),
            None => {
                let rule = rules.rules().get(status.rule)?;
                let policy = policy(rule, &rule.quota_under(status.plan))?;
                HeaderValue::from_str(&policy).ok()
            }
        };
        let all = statuses.clone();
        match (statuses.next(), statuses.next()) {
            (Some(one), None) => find(one),
            _ => join(all.map(find)),
        }
    }
}

/// The policy of one quota; `None` if its name is not a valid string.
fn policy(rule: &Rule, quota: &Quota) -> Option<String> {
    let mut line = Line::new();
    line.extend_from_slice(string(rule.name())?.as_bytes());
    line.extend_from_slice(b";q=");
    push_integer(&mut line, quota.limit());
    // A window under a second has no `w`: 0 is not allowed, and 1 would state another rate.
    if quota.window().as_secs() > 0 {
        line.extend_from_slice(b";w=");
        push_integer(&mut line, whole_seconds(quota.window()));
    }
    String::from_utf8(line.into_vec()).ok()
}

fn join(policies: impl Iterator<Item = Option<HeaderValue>>) -> Option<HeaderValue> {
    let mut line = Line::new();
    for policy in policies.flatten() {
        separate(&mut line);
        line.extend_from_slice(policy.as_bytes());
    }
    structured::value(&line)
}
