//! Events: denials at debug level, the begin and end of store outages, set-up mistakes once. Never a key.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use tollgate_core::{Decision, Rule, RuleError, RuleErrorKind, RuleSet, UnknownName};
#[cfg(feature = "tracing")]
use tollgate_core::{Reason, Verdict};

use crate::{diagnostics, observe::reported_names::ReportedNames};

/// This many requests without a key, and none with one, indicate a set-up mistake.
const KEYLESS_WARNING: u32 = 100;

#[derive(Debug)]
pub(crate) struct Events {
    rules: Box<[Arc<RuleEvents>]>,
    wrong_name: AtomicBool,
    applied_twice: AtomicBool,
    untranslated_grpc_web: AtomicBool,
    #[cfg(feature = "tracing")]
    outage: outage::Outage,
}

/// A rule's name, and which of its mistakes were reported.
#[derive(Debug)]
struct RuleEvents {
    name: Arc<str>,
    #[cfg(feature = "tracing")]
    enforced: bool,
    misconfigured: AtomicBool,
    unknown_plans: ReportedNames,
    quota_refused: AtomicBool,
    too_many_quotas: AtomicBool,
    cost_above_limit: AtomicBool,
    look_up_failed: AtomicBool,
    /// Whether any request had a key.
    keyed: AtomicBool,
    /// The number of requests without a key before the first with one.
    keyless: AtomicU32,
}

impl RuleEvents {
    fn new(rule: &Rule) -> Self {
        Self {
            name: Arc::clone(rule.shared_name()),
            #[cfg(feature = "tracing")]
            enforced: rule.is_enforced(),
            misconfigured: AtomicBool::new(false),
            unknown_plans: ReportedNames::default(),
            quota_refused: AtomicBool::new(false),
            too_many_quotas: AtomicBool::new(false),
            cost_above_limit: AtomicBool::new(false),
            look_up_failed: AtomicBool::new(false),
            keyed: AtomicBool::new(false),
            keyless: AtomicU32::new(0),
        }
    }
}

fn again(reported: &AtomicBool) -> AtomicBool {
    AtomicBool::new(reported.load(Ordering::Relaxed))
}

/// Whether this is the first time. Reads before it writes: the many later calls must not share a write.
fn is_first(reported: &AtomicBool) -> bool {
    !reported.load(Ordering::Relaxed) && !reported.swap(true, Ordering::Relaxed)
}

impl Events {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        Self {
            rules: rules
                .rules()
                .iter()
                .map(|rule| Arc::new(RuleEvents::new(rule)))
                .collect(),
            wrong_name: AtomicBool::new(false),
            applied_twice: AtomicBool::new(false),
            untranslated_grpc_web: AtomicBool::new(false),
            #[cfg(feature = "tracing")]
            outage: outage::Outage::default(),
        }
    }

    /// Of rules that take the place of `replaced`.
    pub(crate) fn succeeding(rules: &RuleSet, before: &Self, replaced: &RuleSet) -> Self {
        let events = |(index, rule): (usize, &Rule)| {
            let unchanged = rules.unchanged_in(index, replaced);
            let unchanged = unchanged.and_then(|there| before.rules.get(there));
            unchanged.map_or_else(|| Arc::new(RuleEvents::new(rule)), Arc::clone)
        };
        Self {
            rules: rules.rules().iter().enumerate().map(events).collect(),
            wrong_name: again(&before.wrong_name),
            applied_twice: again(&before.applied_twice),
            untranslated_grpc_web: again(&before.untranslated_grpc_web),
            #[cfg(feature = "tracing")]
            outage: before.outage.again(),
        }
    }

    #[cfg(feature = "tracing")]
    fn name(&self, rule: usize) -> &str {
        self.rules.get(rule).map_or("", |rule| &rule.name)
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    pub(crate) fn decided(&self, _decision: &Decision) {}

    /// Reports denials, and the begin and the end of a store outage.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        use tollgate_core::Source;
        let failed = |verdict: &Verdict| verdict.source() == Source::Fallback;
        if !decision.is_allowed() {
            self.denied(decision);
        }
        if let Some(verdict) = decision.verdicts().iter().find(|verdict| failed(verdict)) {
            self.store_failed(decision, verdict);
        } else if self.outage.is_on() && decision.verdicts().iter().any(Verdict::has_numbers) {
            self.store_recovered();
        }
    }

    #[cfg(feature = "tracing")]
    fn denied(&self, decision: &Decision) {
        use tollgate_core::Outcome;
        if !tracing::enabled!(target: "tollgate", tracing::Level::DEBUG) {
            return;
        }
        let retry_after_ms = decision.retry_after().map(|delay| delay.as_millis() as u64);
        for verdict in decision.verdicts() {
            // A shadow or a threshold denies nothing.
            let enforced = self
                .rules
                .get(verdict.rule())
                .is_some_and(|rule| rule.enforced);
            if enforced && verdict.outcome() == Outcome::Deny {
                tracing::debug!(
                    target: "tollgate",
                    rule = self.name(verdict.rule()),
                    reason = decision.reason().map(Reason::as_str),
                    source = verdict.source().as_str(),
                    retry_after_ms,
                    "request denied"
                );
            }
        }
    }

    #[cfg(feature = "tracing")]
    #[cold]
    fn store_failed(&self, decision: &Decision, verdict: &Verdict) {
        if self.outage.failed(second()) {
            tracing::warn!(
                target: "tollgate",
                rule = self.name(verdict.rule()),
                allowed = decision.is_allowed(),
                "the store failed; each rule applies its on_store_error until the store responds again"
            );
        }
    }

    #[cfg(feature = "tracing")]
    #[cold]
    fn store_recovered(&self) {
        if self.outage.succeeded(second()) {
            let rules: Vec<&str> = self.rules.iter().map(|rule| &*rule.name).collect();
            tracing::info!(
                target: "tollgate",
                rules = rules.join(", "),
                "the store responds again to the layer with these rules"
            );
        }
    }

    pub(crate) fn no_key(&self, rule: u16) {
        #[cfg(feature = "tracing")]
        tracing::debug!(
            target: "tollgate",
            rule = self.name(usize::from(rule)),
            "request rejected: it has no key"
        );
        #[cfg(not(feature = "tracing"))]
        let _ = rule;
    }

    fn once(
        &self,
        rule: u16,
        reported: impl Fn(&RuleEvents) -> &AtomicBool,
        report: impl FnOnce(&str),
    ) {
        if let Some(rule_events) = self.rules.get(usize::from(rule))
            && is_first(reported(rule_events))
        {
            report(&rule_events.name);
        }
    }

    /// Reports once per rule.
    pub(crate) fn misconfigured(&self, rule: u16, what: &str) {
        self.once(
            rule,
            |rule| &rule.misconfigured,
            |name| diagnostics::error(&format!("rule {name:?} finds no key: {what}")),
        );
    }

    /// A request had a key.
    #[inline]
    pub(crate) fn keyed(&self, rule: u16) {
        if let Some(rule) = self.rules.get(usize::from(rule))
            && !rule.keyed.load(Ordering::Relaxed)
        {
            rule.keyed.store(true, Ordering::Relaxed);
        }
    }

    /// A request had no key. `outcome` describes what the rule does with such requests.
    pub(crate) fn keyless(&self, rule: u16, outcome: &str) {
        let Some(rule) = self.rules.get(usize::from(rule)) else {
            return;
        };
        // `misconfigured` has reported the mistake already, with the remedy.
        if rule.keyed.load(Ordering::Relaxed)
            || rule.misconfigured.load(Ordering::Relaxed)
            || rule.keyless.load(Ordering::Relaxed) >= KEYLESS_WARNING
        {
            return;
        }
        if rule.keyless.fetch_add(1, Ordering::Relaxed) + 1 == KEYLESS_WARNING {
            diagnostics::warn(&format!(
                "rule {:?}: none of its first {KEYLESS_WARNING} requests had a key, and {outcome}; is the layer outside of the \
                 middleware that identifies clients, or is the name of a header misspelt?",
                rule.name
            ));
        }
    }

    /// A look-up failed. Reports once per rule.
    pub(crate) fn look_up_failed(&self, rule: u16, outcome: &str) {
        self.once(
            rule,
            |rule| &rule.look_up_failed,
            |name| {
                diagnostics::warn(&format!(
                    "rule {name:?}: a key was not looked up within the layer's look_up_deadline, and {outcome}"
                ));
            },
        );
    }

    /// Reports each name once, and a few names per rule.
    pub(crate) fn unknown_plan(
        &self,
        rule: u16,
        plan: &str,
        unknown: impl FnOnce() -> UnknownName,
    ) {
        if let Some(rule) = self.rules.get(usize::from(rule))
            && rule.unknown_plans.is_first(plan)
        {
            diagnostics::warn(&format!(
                "rule {:?}: {}; the request counts against the rule's own quota, as with None",
                rule.name,
                unknown()
            ));
        }
    }

    /// Reports once per rule that a quota cannot be counted, and once that there are too many.
    pub(crate) fn quota_refused(&self, rule: u16, error: &RuleError) {
        let Some(rule) = self.rules.get(usize::from(rule)) else {
            return;
        };
        let reported = match error.kind() {
            RuleErrorKind::TooManyQuotas => &rule.too_many_quotas,
            _ => &rule.quota_refused,
        };
        if is_first(reported) {
            diagnostics::error(&format!("quota_by: {error}; the rule's own quota applies"));
        }
    }

    /// Reports once per rule.
    pub(crate) fn cost_above_limit(&self, rule: u16, cost: u64, limit: u64) {
        self.once(
            rule,
            |rule| &rule.cost_above_limit,
            |name| {
                diagnostics::warn(&format!(
                    "rule {name:?}: cost_by returns {cost} units for a request, and the quota allows at most {limit} at \
                     once, so the request is always denied; cap the cost at {limit}, or use a limit or burst of at least {cost}"
                ));
            },
        );
    }

    /// Reports once.
    pub(crate) fn applied_twice(&self) {
        if is_first(&self.applied_twice) {
            let names: Vec<_> = self
                .rules
                .iter()
                .map(|rule| format!("{:?}", rule.name))
                .collect();
            diagnostics::warn(&format!(
                "the layer with the rules {} is applied twice to one request, which is counted twice; apply it once, around \
                 the routes or around the router",
                names.join(", ")
            ));
        }
    }

    /// Reports once.
    pub(crate) fn untranslated_grpc_web(&self) {
        if is_first(&self.untranslated_grpc_web) {
            diagnostics::error(
                "a MessageLimitLayer got a request in gRPC-Web and rejected it: put tonic_web::GrpcWebLayer outside of it, which \
                 translates such requests to gRPC",
            );
        }
    }

    /// Reports once.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        if is_first(&self.wrong_name) {
            diagnostics::error(&unknown.to_string());
        }
    }
}

#[cfg(feature = "tracing")]
fn second() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    #[expect(clippy::disallowed_methods, reason = "it only times events")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Reports each outage of the store once when it begins and once when it ends.
#[cfg(feature = "tracing")]
mod outage {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// An outage ends after this time without a failure.
    const RECOVERY_SECONDS: u64 = 2;

    #[derive(Debug, Default)]
    pub(super) struct Outage {
        is_on: AtomicBool,
        last_failure: AtomicU64,
    }

    impl Outage {
        /// The same outage, of other rules on the store.
        pub(super) fn again(&self) -> Self {
            Self {
                is_on: AtomicBool::new(self.is_on.load(Ordering::Relaxed)),
                last_failure: AtomicU64::new(self.last_failure.load(Ordering::Relaxed)),
            }
        }

        #[inline]
        pub(super) fn is_on(&self) -> bool {
            self.is_on.load(Ordering::Relaxed)
        }

        /// Whether the outage begins with this failure.
        pub(super) fn failed(&self, second: u64) -> bool {
            self.last_failure.store(second, Ordering::Relaxed);
            !self.is_on.swap(true, Ordering::Relaxed)
        }

        /// Whether the outage ends with this success.
        pub(super) fn succeeded(&self, second: u64) -> bool {
            let last = self.last_failure.load(Ordering::Relaxed);
            second.abs_diff(last) >= RECOVERY_SECONDS && self.is_on.swap(false, Ordering::Relaxed)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_outage_is_reported_once_when_it_begins_and_once_when_it_ends() {
            let outage = Outage::default();
            assert_eq!(
                [outage.failed(10), outage.failed(10), outage.failed(11)],
                [true, false, false]
            );
            // Some requests succeed while others still fail.
            assert_eq!([outage.succeeded(11), outage.succeeded(12)], [false, false]);
            assert!(!outage.failed(12));
            assert_eq!([outage.succeeded(14), outage.succeeded(14)], [true, false]);
            assert!(!outage.is_on());
            assert!(outage.failed(15));
        }
    }
}
