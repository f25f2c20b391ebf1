//! Which quotas instances have for one rule: what an instance says of its own, and what it makes of those of others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Duration,
};

use tokio::time::Instant;
use tollgate_core::{AlgorithmKind, Mode, Quota, Rule};

/// How long instances may differ: a new version of a service replaces an old one.
const DEPLOYMENT: Duration = Duration::from_secs(600);

/// The quotas of rules, by name, in words.
pub(super) type Quotas = BTreeMap<String, BTreeSet<String>>;

/// Another quota of a rule that this instance has too, for longer than a deployment takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastingConflict {
    pub(super) rule: String,
    pub(super) here: String,
    pub(super) elsewhere: String,
    pub(super) since: Duration,
}

/// Rules that other instances have with other quotas, and since when.
#[derive(Debug, Default)]
pub(super) struct QuotaConflicts(BTreeMap<String, Conflict>);

#[derive(Debug)]
struct Conflict {
    since: Instant,
    is_reported: bool,
}

impl QuotaConflicts {
    /// Compares the quotas of this instance with all that there are. Gives for each rule of this instance how many others
    /// there are, and the conflicts that have lasted for longer than a deployment, each once.
    pub(super) fn compare(
        &mut self,
        own: &Quotas,
        all: &Quotas,
        now: Instant,
    ) -> (Vec<(String, usize)>, Vec<LastingConflict>) {
        self.0.retain(|rule, _| own.contains_key(rule));
        let (mut counts, mut lasting) = (Vec::new(), Vec::new());
        for (rule, here) in own {
            let others = all.get(rule).map(|all| all.difference(here));
            let others: Vec<_> = others.into_iter().flatten().map(String::as_str).collect();
            counts.push((rule.clone(), others.len()));
            if others.is_empty() {
                self.0.remove(rule);
                continue;
            }
            let conflict = self.0.entry(rule.clone()).or_insert(Conflict {
                since: now,
                is_reported: false,
            });
            let since = now.duration_since(conflict.since);
            if since >= DEPLOYMENT && !conflict.is_reported {
                conflict.is_reported = true;
                let here: Vec<_> = here.iter().map(String::as_str).collect();
                lasting.push(LastingConflict {
                    rule: rule.clone(),
                    here: here.join(" and "),
                    elsewhere: others.join(" and "),
                    since,
                });
            }
        }
        (counts, lasting)
    }
}

/// Adds the quotas of a rule, if it has states of its own that it counts against.
pub(super) fn add(quotas: &mut Quotas, rule: &Rule) {
    if matches!(rule.mode(), Mode::Enforce | Mode::Shadow) {
        let names = quotas.entry(rule.name().to_owned()).or_default();
        names.insert(in_words(rule));
    }
}

/// A member of the set in Redis.
pub(super) fn member(rule: &str, quotas: &str) -> String {
    format!("{rule}\n{quotas}")
}

/// Reads the members of the set in Redis. What cannot be read was written by a version that says more.
pub(super) fn read<'a>(members: impl IntoIterator<Item = &'a str>) -> Quotas {
    let mut quotas = Quotas::new();
    for (rule, words) in members.into_iter().filter_map(|it| it.split_once('\n')) {
        let names = quotas.entry(rule.to_owned()).or_default();
        names.insert(words.to_owned());
    }
    quotas
}

/// All quotas of a rule in words, the same in each version: what states lie by is compared by them.
fn in_words(rule: &Rule) -> String {
    let mut words = quota_in_words(rule.quota());
    let mut plans: Vec<_> = (1..rule.quotas())
        .map(|plan| (rule.plan_name(plan).unwrap_or_default(), plan))
        .collect();
    plans.sort_unstable();
    for (name, plan) in plans {
        // Writing to a string does not fail.
        let _ = write!(words, ", {name} {}", quota_in_words(rule.quota_of(plan)));
    }
    words
}

fn quota_in_words(quota: &Quota) -> String {
    let (limit, rate, period) = (quota.limit(), quota.rate(), quota.period());
    match quota.algorithm() {
        _ if !quota.has_state() => quota.algorithm().name().to_owned(),
        _ if quota.calendar_of().is_some() => quota.to_string(),
        // Three names of one state.
        AlgorithmKind::TokenBucket | AlgorithmKind::Gcra | AlgorithmKind::LeakyBucket => {
            format!("bucket({rate} per {period:?}, {limit} at once)")
        }
        AlgorithmKind::SlidingBuckets => {
            let buckets = quota.bucket_count();
            format!("sliding_buckets({limit} per {period:?}, {buckets} buckets)")
        }
        AlgorithmKind::Concurrent => format!("concurrent({limit})"),
        window => format!("{window}({limit} per {period:?})"),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{HOUR, MINUTE, SECOND};

    use super::*;

    fn quotas(rules: &[Rule]) -> Quotas {
        let mut quotas = Quotas::new();
        rules.iter().for_each(|rule| add(&mut quotas, rule));
        quotas
    }

    fn both(one: &Quotas, other: &Quotas) -> Quotas {
        let members: Vec<_> = [one, other]
            .into_iter()
            .flatten()
            .flat_map(|(rule, quotas)| quotas.iter().map(move |words| member(rule, words)))
            .collect();
        read(members.iter().map(String::as_str))
    }

    fn per_ip(quota: Quota) -> Rule {
        Rule::new("per-ip", quota)
    }

    #[test]
    fn a_quota_conflict_is_counted_at_once_and_logged_once_after_ten_minutes() {
        let own = quotas(&[
            per_ip(Quota::gcra(5, HOUR)),
            Rule::new("search", Quota::gcra(5, HOUR)),
        ]);
        let all = both(&own, &quotas(&[per_ip(Quota::fixed_window(6_000, MINUTE))]));
        let (began, mut conflicts) = (Instant::now(), QuotaConflicts::default());
        for second in 0..600 {
            let now = began + Duration::from_secs(second);
            let (counts, lasting) = conflicts.compare(&own, &all, now);
            assert_eq!(counts, [("per-ip".into(), 1), ("search".into(), 0)]);
            assert_eq!(lasting, [], "after {second} s");
        }
        let (_, lasting) = conflicts.compare(&own, &all, began + DEPLOYMENT);
        let reported = LastingConflict {
            rule: "per-ip".into(),
            here: "bucket(5 per 3600s, 5 at once)".into(),
            elsewhere: "fixed_window(6000 per 60s)".into(),
            since: DEPLOYMENT,
        };
        assert_eq!(lasting, [reported]);
        let (_, lasting) = conflicts.compare(&own, &all, began + 2 * DEPLOYMENT);
        assert_eq!(lasting, []);
    }

    #[test]
    fn a_conflict_begins_when_there_is_one_and_ends_with_its_rule() {
        let own = quotas(&[per_ip(Quota::gcra(5, HOUR))]);
        let all = both(&own, &quotas(&[per_ip(Quota::gcra(6, HOUR))]));
        let none = Quotas::new();
        let (began, mut conflicts) = (Instant::now(), QuotaConflicts::default());
        let mut lasting = |own, all, deployments: u32| {
            let now = began + deployments * DEPLOYMENT;
            conflicts.compare(own, all, now).1.len()
        };
        assert_eq!(lasting(&own, &own, 0), 0);
        assert_eq!(lasting(&own, &all, 2), 0);
        assert_eq!(lasting(&own, &all, 3), 1);
        assert_eq!(lasting(&own, &all, 4), 0);
        // The rule was away in between.
        assert_eq!(lasting(&none, &all, 5), 0);
        assert_eq!(lasting(&own, &all, 6), 0);
        assert_eq!(lasting(&own, &all, 7), 1);
    }

    #[test]
    fn what_counts_the_same_is_the_same_and_all_else_differs() {
        let words = |rule: Rule| in_words(&rule);
        let bucket = words(per_ip(Quota::gcra(10, SECOND).burst(20)));
        let same = words(per_ip(Quota::token_bucket(20).refill(10, SECOND)));
        assert_eq!(bucket, same);
        let (free, pro) = (Quota::gcra(1, SECOND), Quota::unlimited());
        let rule = || per_ip(Quota::gcra(10, SECOND));
        let plans = words(rule().plan("free", free).plan("pro", pro));
        assert_eq!(plans, words(rule().plan("pro", pro).plan("free", free)));
        assert!(plans.ends_with(", pro unlimited"), "{plans}");
        let plan = |quota| per_ip(Quota::gcra(10, SECOND)).plan("pro", quota);
        let different = [
            bucket,
            words(per_ip(Quota::gcra(10, SECOND))),
            words(per_ip(Quota::gcra(10, MINUTE))),
            words(per_ip(Quota::fixed_window(10, SECOND))),
            words(per_ip(Quota::sliding_window(10, SECOND))),
            words(per_ip(Quota::sliding_buckets(10, SECOND))),
            words(per_ip(Quota::sliding_buckets(10, SECOND).buckets(5))),
            words(per_ip(Quota::unlimited())),
            words(plan(Quota::gcra(20, SECOND))),
            words(plan(Quota::gcra(30, SECOND))),
        ];
        let distinct: BTreeSet<_> = different.iter().collect();
        assert_eq!(distinct.len(), different.len(), "{different:?}");
    }
}
