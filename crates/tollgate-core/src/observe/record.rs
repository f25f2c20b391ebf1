//! A decision as records.

use crate::{
    check::Check,
    decision::{Decision, Outcome, Reason, Verdict},
    key::KeyPrefix,
    observe::shown::shown,
    rule::Rule,
    rule_set::RuleSet,
    time::millis,
};

/// One rule's part of a decision, in words and numbers: for an access log, an audit, an event on a queue. With the feature
/// `serde` it can be serialised. It holds no key.
///
/// ```
/// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
///
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("api", Quota::gcra(60, MINUTE))])?;
/// let checks = [limiter.check("api", &Key::of("account-7"))?];
/// let decision = limiter.acquire(&checks).ready().expect("memory answers at once");
/// let record = decision.records(limiter.rules(), &checks).next().expect("one rule");
/// assert_eq!((record.rule.as_str(), record.algorithm, record.decision), ("api", "gcra", "allowed"));
/// assert_eq!((record.limit, record.remaining), (Some(60), Some(59)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DecisionRecord {
    /// The [time](Decision::at) of the decision, in ms since the Unix epoch.
    pub at_ms: u64,
    /// The name of the rule.
    pub rule: String,
    /// The first letters of what stands for the key in the store.
    pub key: Option<KeyPrefix>,
    /// The algorithm: `gcra`, `fixed_window`, …
    pub algorithm: &'static str,
    /// The plan of the request; `None` for the rule's own quota.
    pub plan: Option<String>,
    /// `allowed`, `repeated` or `denied` of an enforced rule, `shadow_allowed` or `shadow_denied` of another; `degraded` if it passed because
    /// the store failed, and `undecided` if another rule had denied the request before.
    pub decision: &'static str,
    /// Why the request was denied: `quota`, `never`, `blocked`, … as [`Reason::as_str`] says it.
    pub reason: Option<&'static str>,
    /// Who answered: `store`, `credits`, `deny_cache`, `lease`, `local` or `fallback`.
    pub source: &'static str,
    /// The units that the request costs.
    pub cost: Option<u64>,
    /// The limit in units; `None` if there is none.
    pub limit: Option<u64>,
    /// The units left; `None` if it is not known.
    pub remaining: Option<u64>,
    /// The units [owed](Verdict::debt); `None` if there are none, or it is not known.
    pub debt: Option<u64>,
    /// The time until the state equals a fresh one, in ms, rounded up.
    pub reset_after_ms: Option<u64>,
    /// When the same cost fits, in ms, rounded up as in the answer to the client; `None` if it fits now, never, or if it is not known.
    pub retry_after_ms: Option<u64>,
}

impl Decision {
    /// A record for each verdict, in their order. `rules` are those of the limiter that has decided, and `checks` those that it has
    /// decided.
    pub fn records<'a>(
        &'a self,
        rules: &'a RuleSet,
        checks: &'a [Check],
    ) -> impl Iterator<Item = DecisionRecord> + 'a {
        let record = move |(index, verdict): (usize, &Verdict)| {
            let rule = rules.rules().get(verdict.rule())?;
            Some(self.record(rule, verdict, checks.get(index)))
        };
        self.verdicts().iter().enumerate().filter_map(record)
    }

    fn record(&self, rule: &Rule, verdict: &Verdict, check: Option<&Check>) -> DecisionRecord {
        let is_enforced = rule.is_enforced();
        let numbers = verdict.has_numbers();
        let is_denied = is_enforced && verdict.outcome() == Outcome::Deny;
        DecisionRecord {
            at_ms: self.at() / 1_000,
            rule: rule.name().to_owned(),
            key: check.map(|check| check.key().prefix()),
            algorithm: rule.quota().algorithm().name(),
            plan: rule.plan_name(verdict.plan()).map(shown),
            decision: match verdict.outcome() {
                Outcome::Allow if verdict.is_degraded() => "degraded",
                Outcome::Allow if is_enforced && verdict.is_repeat() => "repeated",
                Outcome::Allow if is_enforced => "allowed",
                Outcome::Allow => "shadow_allowed",
                Outcome::Deny if is_enforced => "denied",
                Outcome::Deny => "shadow_denied",
                Outcome::Failed | Outcome::NotDecided => "undecided",
            },
            reason: self.reason().filter(|_| is_denied).map(Reason::as_str),
            source: verdict.source().as_str(),
            cost: check.map(|check| if verdict.is_repeat() { 0 } else { check.cost() }),
            limit: rule.limit_under(verdict.plan()),
            remaining: (numbers && verdict.knows_remaining()).then(|| verdict.remaining()),
            debt: Some(verdict.debt()).filter(|owed| *owed > 0),
            reset_after_ms: numbers.then(|| millis(verdict.reset_after())),
            retry_after_ms: verdict.retry().delay().map(millis),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        algorithm::{Assessment, Retry},
        key::Fingerprint,
        memory::MemoryStore,
        quota::Quota,
        source::Source,
        store::rule_store::Store,
        time::{MINUTE, ManualClock},
    };

    /// 36.543211 seconds before the end of a minute.
    const NOW: u64 = 1_700_000_123_456_789;

    fn rules() -> RuleSet {
        let quota = Quota::fixed_window(1, MINUTE);
        let rules = [Rule::new("api", quota), Rule::new("trial", quota).shadow()];
        RuleSet::new(rules).expect("valid rules")
    }

    #[test]
    fn a_record_says_what_a_rule_decided_and_a_shadow_denies_for_no_reason() {
        let store = MemoryStore::builder().clock(ManualClock::new(NOW)).build();
        let store = store.bind(Arc::new(rules())).expect("free names");
        let checks = [0, 1].map(|rule| Check::new(rule, Fingerprint::from_bits(7), 1));
        let records = || -> Vec<DecisionRecord> {
            let decision = store.acquire(&checks).ready().expect("at once");
            decision.records(store.rules(), &checks).collect()
        };
        let decisions = |records: &[DecisionRecord]| {
            let of = |record: &DecisionRecord| (record.decision, record.reason);
            records.iter().map(of).collect::<Vec<_>>()
        };
        let first = records();
        assert_eq!(
            decisions(&first),
            [("allowed", None), ("shadow_allowed", None)]
        );
        let second = records();
        assert_eq!(
            decisions(&second),
            [("denied", Some("quota")), ("shadow_denied", None)]
        );
        for record in first.into_iter().chain(second) {
            assert_eq!(record.at_ms, 1_700_000_123_456);
            assert_eq!(record.remaining, Some(0));
            assert_eq!(record.reset_after_ms, Some(36_544));
            assert_eq!(record.retry_after_ms, Some(36_544));
        }
    }

    #[test]
    fn a_record_of_what_was_not_counted_has_no_numbers() {
        let rules = rules();
        let mut degraded = Verdict::unanswered(0, 0, Outcome::Failed);
        degraded.pass_degraded();
        let undecided = Verdict::unanswered(1, 0, Outcome::NotDecided);
        let decision = Decision::new(NOW, [degraded, undecided], |_| true);
        let records: Vec<_> = decision.records(&rules, &[]).collect();
        for (record, says) in records.iter().zip(["degraded", "undecided"]) {
            assert_eq!(record.decision, says);
            assert_eq!((record.remaining, record.reset_after_ms), (None, None));
        }
        let answer = Assessment::new(true, 3, 0, Retry::Now);
        let leased = Verdict::new(0, 0, answer, Source::Lease).with_remaining_unknown();
        let decision = Decision::new(NOW, [leased], |_| true);
        let record = decision.records(&rules, &[]).next().expect("one rule");
        assert_eq!((record.remaining, record.source), (None, "lease"));
        let answer = Assessment::new(true, 0, 0, Retry::Now);
        let owing = Verdict::new(0, 0, answer, Source::Store).with_debt(7);
        let decision = Decision::new(NOW, [owing], |_| true);
        let record = decision.records(&rules, &[]).next().expect("one rule");
        assert_eq!((record.remaining, record.debt), (Some(0), Some(7)));
    }
}
