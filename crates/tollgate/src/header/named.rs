//! Lists of named policies: the syntax of draft-8 to draft-11. Of nested limiters that share a rule, the inner one lists it.
//!
//! ```text
//! RateLimit-Policy: "burst";q=100;w=60, "tokens";q=1000;qu="tokens";w=86400, "exports";q=3;qu="concurrent-requests"
//! RateLimit: "burst";r=42;t=17, "tokens";r=901;t=30411, "exports";r=2
//! ```

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;
use tollgate_core::{AlgorithmKind, Quota, Rule, RuleSet, Verdict};

use crate::header::{
    name::{RATELIMIT, RATELIMIT_POLICY},
    quota_status::{PerQuota, QuotaStatus, unit_of},
    structured::{Line, field_value, push_integer, separate, string, with_own_count},
    times::whole_seconds,
};

/// The constant parts of the fields, serialised once.
#[derive(Clone, Debug)]
pub(super) struct Named {
    parts: Arc<Parts>,
    /// The policies of the usual rules in one value. Each response counts on it.
    usual_policies: Option<HeaderValue>,
}

/// What is only read.
#[derive(Debug)]
struct Parts {
    /// `"name";r=`, by rule; empty where the name is not a valid string.
    prefixes: Box<[Box<[u8]>]>,
    policies: PerQuota<Option<HeaderValue>>,
    /// The rules that apply to a request without plans and skipped rules; none where they are many, because each stripe of
    /// threads has their policies.
    usual: Box<[usize]>,
}

/// The most rules whose policies are joined beforehand.
const FEW_RULES: usize = 16;

impl Named {
    pub(super) fn new(rules: &RuleSet) -> Self {
        let mut usual: Box<[usize]> = (0..rules.rules().len())
            .filter(|rule| rules.enforces(*rule) && rules.rules()[*rule].quota().has_state())
            .collect();
        if usual.len() > FEW_RULES {
            usual = Box::default();
        }
        let mut joined = Line::new();
        for rule in &usual {
            let rule = &rules.rules()[*rule];
            if let Some(policy) = policy(rule, rule.quota()) {
                push_policy(&mut joined, &policy);
            }
        }
        let usual_policies = field_value(&joined);
        let prefix = |rule: &Rule| {
            string(rule.name()).map_or_else(Box::default, |name| {
                format!("{name};r=").into_bytes().into()
            })
        };
        let parts = Parts {
            prefixes: rules.rules().iter().map(prefix).collect(),
            policies: PerQuota::new(rules),
            usual,
        };
        Self {
            parts: Arc::new(parts),
            usual_policies,
        }
    }

    /// The same for another stripe of threads.
    pub(super) fn for_stripe(&self) -> Self {
        Self {
            parts: Arc::clone(&self.parts),
            usual_policies: self.usual_policies.as_ref().and_then(with_own_count),
        }
    }

    /// Returns a rule that an inner limiter lists, too.
    #[inline]
    pub(super) fn write(
        &self,
        map: &mut HeaderMap,
        rules: &RuleSet,
        verdicts: &[Verdict],
    ) -> Option<usize> {
        let parts = &*self.parts;
        let mut line = Line::new();
        let mut expected = parts.usual.iter();
        let mut usual = true;
        for verdict in verdicts {
            let Some(status) = QuotaStatus::of(verdict, rules) else {
                continue;
            };
            usual &= status.plan == 0 && expected.next() == Some(&status.rule);
            let Some(prefix) = parts
                .prefixes
                .get(status.rule)
                .filter(|name| !name.is_empty())
            else {
                continue;
            };
            separate(&mut line);
            line.push(prefix);
            push_integer(&mut line, status.remaining);
            if !status.is_of_slots {
                line.push(b";t=");
                push_integer(&mut line, whole_seconds(status.lasts));
                // Whole seconds would slow a client down to a part of its rate. A denial is obeyed by its `Retry-After`.
                if status.remaining == 0 && !status.denied && status.lasts.subsec_nanos() > 0 {
                    line.push(b";tollgate-ms=");
                    let millis = status.lasts.as_micros().div_ceil(1_000);
                    push_integer(&mut line, u64::try_from(millis).unwrap_or(u64::MAX));
                }
            }
        }
        let limits = field_value(&line)?;
        // Appends to the list of an inner limiter.
        if matches!(map.try_append(RATELIMIT, limits), Ok(true))
            && let Some(others) = parts.not_listed(map, verdicts)
        {
            self.write(map, rules, &others);
            let mut rules = verdicts.iter().map(Verdict::rule);
            return rules.find(|rule| others.iter().all(|it| it.rule() != *rule));
        }
        let policies = if usual && expected.next().is_none() {
            self.usual_policies.clone()
        } else {
            parts.policies(rules, QuotaStatus::all(verdicts, rules))
        };
        if let Some(policies) = policies {
            let _ = map.try_append(RATELIMIT_POLICY, policies);
        }
        None
    }
}

impl Parts {
    /// Takes our list out again if it names a policy that an inner limiter lists: a list must not name it twice, and the inner one has
    /// decided later. Returns the verdicts on the others then.
    fn not_listed(
        &self,
        map: &mut HeaderMap,
        verdicts: &[Verdict],
    ) -> Option<SmallVec<[Verdict; 8]>> {
        let mut inner: Vec<_> = map.get_all(RATELIMIT).iter().cloned().collect();
        inner.pop();
        let members = || {
            let lists = inner.iter().filter_map(|list| list.to_str().ok());
            lists.flat_map(|list| list.split(',')).map(str::trim_start)
        };
        let is_listed = |verdict: &Verdict| {
            let prefix = self.prefixes.get(verdict.rule());
            let name = prefix.and_then(|prefix| prefix.strip_suffix(b"r="));
            name.is_some_and(|name| members().any(|member| member.as_bytes().starts_with(name)))
        };
        let others = verdicts.iter().filter(|verdict| !is_listed(verdict));
        let others: SmallVec<[Verdict; 8]> = others.copied().collect();
        if others.len() == verdicts.len() {
            return None;
        }
        map.remove(RATELIMIT);
        for list in inner {
            let _ = map.try_append(RATELIMIT, list);
        }
        Some(others)
    }

    /// A value of its own: a clone would count on one that all threads share.
    fn policies(
        &self,
        rules: &RuleSet,
        statuses: impl Iterator<Item = QuotaStatus>,
    ) -> Option<HeaderValue> {
        let mut line = Line::new();
        for status in statuses {
            let Some(rule) = rules.rules().get(status.rule) else {
                continue;
            };
            let make = || policy(rule, &rule.quota_under(status.plan));
            let brought;
            let policy = match self.policies.cell(status.rule, status.plan) {
                Some(prepared) => prepared.get_or_init(make),
                // The request has brought its quota along.
                None => {
                    brought = make();
                    &brought
                }
            };
            if let Some(policy) = policy {
                push_policy(&mut line, policy);
            }
        }
        field_value(&line)
    }
}

/// The policy of one quota; `None` if its name is not a valid string.
fn policy(rule: &Rule, quota: &Quota) -> Option<HeaderValue> {
    let mut line = Line::new();
    line.push(string(rule.name())?.as_bytes());
    line.push(b";q=");
    push_integer(&mut line, quota.limit());
    let unit = match (unit_of(rule), quota.algorithm()) {
        ("requests", AlgorithmKind::Concurrent) => "concurrent-requests",
        (unit, _) => unit,
    };
    // What the parameter means where it is absent. The draft's registry has it in the singular.
    if unit != "requests" {
        line.push(b";qu=");
        line.push(string(unit)?.as_bytes());
    }
    // A window under a second has no `w`: 0 is not allowed, and 1 would state another rate.
    if quota.window().as_secs() > 0 {
        line.push(b";w=");
        push_integer(&mut line, whole_seconds(quota.window()));
    }
    field_value(&line)
}

fn push_policy(line: &mut Line, policy: &HeaderValue) {
    separate(line);
    line.push(policy.as_bytes());
}
