//! What is logged: some of the denials, hot keys, blocks, and the begin and the end of store outages; and what is said on the span of a
//! request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::{Span, level_filters::LevelFilter};

use crate::{
    block::ActiveBlock,
    decision::{Decision, Verdict},
    hold::Source,
    key::Fingerprint,
    observe::top_keys::HotKey,
    rule::Rule,
    rule_set::RuleSet,
    time::wall_clock,
};

/// Chooses the denials that are logged: all of the first ten in a second, then one in ten, from the hundredth on one in a
/// hundred, and so on.
#[derive(Debug, Default)]
pub(super) struct DenialSampler {
    second: u64,
    denials: u64,
}

impl DenialSampler {
    /// A denial. `Some`: it is logged, and stands for this number of denials.
    pub(super) fn log(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            *self = Self { second, denials: 0 };
        }
        self.denials += 1;
        let mut one_in = 1;
        while self.denials > 10 * one_in {
            one_in *= 10;
        }
        self.denials.is_multiple_of(one_in).then_some(one_in)
    }
}

pub(super) fn is_denial_logged() -> bool {
    tracing::enabled!(target: "tollgate", tracing::Level::DEBUG)
}

/// Says on the span of the request what was decided, if the span has these fields.
pub(super) fn record_on_span(decision: &'static str, rule: Option<&str>, reason: Option<&str>) {
    if LevelFilter::current() == LevelFilter::OFF {
        return;
    }
    let span = Span::current();
    if span.has_field("tollgate.decision") {
        span.record("tollgate.decision", decision);
    }
    for (field, value) in [("tollgate.rule", rule), ("tollgate.reason", reason)] {
        if let Some(value) = value.filter(|_| span.has_field(field)) {
            span.record(field, value);
        }
    }
}

/// Logs a request that a rule rejected because it has no key.
pub(super) fn keyless(rule: &Rule, one_in: u64) {
    tracing::debug!(
        target: "tollgate",
        rule = rule.name(),
        one_in,
        "request rejected: it has no key"
    );
}

/// A key makes up much of its rule's traffic.
pub(super) fn hot_key(rule: &Rule, hot: &HotKey) {
    tracing::warn!(
        target: "tollgate",
        rule = rule.name(),
        key = %hot.key,
        label = hot.label.as_deref(),
        percent = hot.percent,
        "hot key: one key makes up much of the requests of this rule"
    );
}

/// A block of a key begins.
pub(super) fn blocked(rule: &Rule, key: Fingerprint, block: ActiveBlock) {
    tracing::info!(
        target: "tollgate",
        rule = rule.name(),
        key = %key.prefix(),
        level = block.level,
        seconds = block.micros / 1_000_000,
        shadow = !rule.is_enforced(),
        "key blocked"
    );
}

/// A block in force was evicted.
pub(super) fn block_evicted(rule: &Rule, evicted: u64) {
    tracing::warn!(
        target: "tollgate",
        rule = rule.name(),
        evicted,
        "blocks in force were evicted: as many keys are blocked as the memory of the rule has room for; give the store more bytes"
    );
}

/// An outage ends after this time without a failure.
const RECOVERY_SECONDS: u64 = 2;

/// Reports each outage of the store once when it begins and once when it ends.
#[derive(Debug, Default)]
pub(super) struct Outage {
    is_on: AtomicBool,
    last_failure: AtomicU64,
}

impl Outage {
    pub(super) fn decided(&self, rules: &RuleSet, decision: &Decision) {
        let (verdicts, rules) = (decision.verdicts(), rules.rules());
        let failed = |verdict: &&Verdict| verdict.source() == Source::Fallback;
        if let Some(verdict) = verdicts.iter().find(failed) {
            if self.begins(second()) {
                tracing::warn!(
                    target: "tollgate",
                    rule = rules.get(verdict.rule()).map_or("", Rule::name),
                    allowed = decision.is_allowed(),
                    "the store failed; each rule applies its on_store_error until the store responds again"
                );
            }
        } else if self.is_on.load(Ordering::Relaxed)
            && verdicts.iter().any(Verdict::has_numbers)
            && self.ends(second())
        {
            let rules: Vec<&str> = rules.iter().map(Rule::name).collect();
            tracing::info!(
                target: "tollgate",
                rules = rules.join(", "),
                "the store responds again to the limiter with these rules"
            );
        }
    }

    /// Whether the outage begins with this failure.
    fn begins(&self, second: u64) -> bool {
        self.last_failure.store(second, Ordering::Relaxed);
        !self.is_on.swap(true, Ordering::Relaxed)
    }

    /// Whether the outage ends with this success.
    fn ends(&self, second: u64) -> bool {
        let last = self.last_failure.load(Ordering::Relaxed);
        second.abs_diff(last) >= RECOVERY_SECONDS && self.is_on.swap(false, Ordering::Relaxed)
    }
}

/// The second by the system's clock.
pub(super) fn second() -> u64 {
    wall_clock() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_denials_are_all_logged_and_of_many_each_line_stands_for_as_many_as_it_says() {
        let mut sampler = DenialSampler::default();
        let lines: Vec<u64> = (0..10_000).filter_map(|_| sampler.log(7)).collect();
        assert_eq!(lines[..10], [1; 10]);
        assert_eq!(lines[10..19], [10; 9]);
        assert_eq!(lines.len(), 10 + 9 + 9 + 9);
        assert_eq!(lines.iter().sum::<u64>(), 10_000);
        // Another second begins anew.
        assert_eq!(sampler.log(8), Some(1));
    }

    #[test]
    fn an_outage_is_reported_once_when_it_begins_and_once_when_it_ends() {
        let outage = Outage::default();
        assert_eq!(
            [10, 10, 11].map(|at| outage.begins(at)),
            [true, false, false]
        );
        // Some requests succeed while others still fail.
        assert_eq!([11, 12].map(|at| outage.ends(at)), [false, false]);
        assert!(!outage.begins(12));
        assert_eq!([14, 14].map(|at| outage.ends(at)), [true, false]);
        assert!(outage.begins(15));
    }
}
