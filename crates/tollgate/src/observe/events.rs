//! Events: denials at debug level, an outage of the store when it begins and when it is over, mistakes of the set-up once. Never a key.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use tollgate_core::{Decision, Rule, RuleSet, UnknownName};
#[cfg(feature = "tracing")]
use tollgate_core::{Reason, Verdict};

use crate::notice;

/// So many requests without a key, and none with one, are taken for a mistake of the set-up.
const SUSPICIOUS: u32 = 100;

#[derive(Debug)]
pub(crate) struct Events {
    rules: Box<[Told]>,
    wrong_name: AtomicBool,
    applied_twice: AtomicBool,
    #[cfg(feature = "tracing")]
    outage: outage::Outage,
}

/// A rule's name, and which of its mistakes were told already.
#[derive(Debug)]
struct Told {
    name: Arc<str>,
    #[cfg(feature = "tracing")]
    enforced: bool,
    misconfigured: AtomicBool,
    unknown_plan: AtomicBool,
    cost_above_limit: AtomicBool,
    look_up_failed: AtomicBool,
    /// Whether any request had a key.
    keyed: AtomicBool,
    /// The requests without a key, as long as none had one.
    keyless: AtomicU32,
}

impl Told {
    fn new(rule: &Rule) -> Self {
        Self {
            name: Arc::clone(rule.shared_name()),
            #[cfg(feature = "tracing")]
            enforced: rule.is_enforced(),
            misconfigured: AtomicBool::new(false),
            unknown_plan: AtomicBool::new(false),
            cost_above_limit: AtomicBool::new(false),
            look_up_failed: AtomicBool::new(false),
            keyed: AtomicBool::new(false),
            keyless: AtomicU32::new(0),
        }
    }
}

/// Whether it is the first time. Read before it is written: later times are many, and must not share a write.
fn first(told: &AtomicBool) -> bool {
    !told.load(Ordering::Relaxed) && !told.swap(true, Ordering::Relaxed)
}

impl Events {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        Self {
            rules: rules.rules().iter().map(Told::new).collect(),
            wrong_name: AtomicBool::new(false),
            applied_twice: AtomicBool::new(false),
            #[cfg(feature = "tracing")]
            outage: outage::Outage::default(),
        }
    }

    #[cfg(feature = "tracing")]
    fn name(&self, rule: usize) -> &str {
        self.rules.get(rule).map_or("", |told| &told.name)
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    pub(crate) fn decided(&self, _decision: &Decision) {}

    /// Tells of denials, of the first failure of a store, whatever came of it, and of its return.
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
            self.store_answered();
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
            // A shadow or a threshold that would deny has denied nothing.
            let enforced = self
                .rules
                .get(verdict.rule())
                .is_some_and(|told| told.enforced);
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
                "the store failed; each rule answers as it says for that, until the store answers again"
            );
        }
    }

    #[cfg(feature = "tracing")]
    #[cold]
    fn store_answered(&self) {
        if self.outage.answered(second()) {
            tracing::info!(target: "tollgate", "the store answers again");
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

    fn once(&self, rule: u16, told: impl Fn(&Told) -> &AtomicBool, tell: impl FnOnce(&str)) {
        if let Some(of_rule) = self.rules.get(usize::from(rule))
            && first(told(of_rule))
        {
            tell(&of_rule.name);
        }
    }

    /// Tells once per rule: the service goes on, and every request would say the same.
    pub(crate) fn misconfigured(&self, rule: u16, what: &str) {
        self.once(
            rule,
            |told| &told.misconfigured,
            |name| notice::error(&format!("rule {name:?} finds no key: {what}")),
        );
    }

    /// A request had a key.
    #[inline]
    pub(crate) fn keyed(&self, rule: u16) {
        if let Some(told) = self.rules.get(usize::from(rule))
            && !told.keyed.load(Ordering::Relaxed)
        {
            told.keyed.store(true, Ordering::Relaxed);
        }
    }

    /// A request had no key. `outcome` says in words what the rule does with all that have none.
    pub(crate) fn keyless(&self, rule: u16, outcome: &str) {
        let Some(told) = self.rules.get(usize::from(rule)) else {
            return;
        };
        // A set-up that cannot work was told of already, with the remedy.
        if told.keyed.load(Ordering::Relaxed)
            || told.misconfigured.load(Ordering::Relaxed)
            || told.keyless.load(Ordering::Relaxed) >= SUSPICIOUS
        {
            return;
        }
        if told.keyless.fetch_add(1, Ordering::Relaxed) + 1 == SUSPICIOUS {
            notice::warn(&format!(
                "rule {:?}: none of its first {SUSPICIOUS} requests had a key, and {outcome}; is the layer outside of the \
                 middleware that finds out who is asking, or the name of a header misspelt?",
                told.name
            ));
        }
    }

    /// A key was not looked up. Tells once per rule.
    pub(crate) fn look_up_failed(&self, rule: u16, outcome: &str) {
        self.once(
            rule,
            |told| &told.look_up_failed,
            |name| {
                notice::warn(&format!(
                    "rule {name:?}: a key was not looked up within the layer's look_up_deadline, and {outcome}"
                ));
            },
        );
    }

    /// Tells once per rule: such requests count against the rule's own quota.
    pub(crate) fn unknown_plan(&self, rule: u16, unknown: impl FnOnce() -> UnknownName) {
        self.once(
            rule,
            |told| &told.unknown_plan,
            |name| {
                notice::warn(&format!(
                    "rule {name:?}: {}; the request counts against the rule's own quota, as with None",
                    unknown()
                ));
            },
        );
    }

    /// Tells once per rule: such requests can never pass.
    pub(crate) fn cost_above_limit(&self, rule: u16, cost: u64, limit: u64) {
        self.once(
            rule,
            |told| &told.cost_above_limit,
            |name| {
                notice::warn(&format!(
                    "rule {name:?}: cost_by gives a request {cost} units, and the quota never lets more than {limit} pass at \
                     once, so that it is always denied; cap the cost at {limit}, or take a limit or burst of at least {cost}"
                ));
            },
        );
    }

    /// Tells once: every request would say the same.
    pub(crate) fn applied_twice(&self) {
        if first(&self.applied_twice) {
            let names: Vec<_> = self
                .rules
                .iter()
                .map(|told| format!("{:?}", told.name))
                .collect();
            notice::warn(&format!(
                "the layer with the rules {} is applied twice to one request, which is counted twice; apply it once, around \
                 the routes or around the router",
                names.join(", ")
            ));
        }
    }

    /// Tells once: every request would say the same.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        if first(&self.wrong_name) {
            notice::error(&unknown.to_string());
        }
    }
}

#[cfg(feature = "tracing")]
fn second() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    #[expect(
        clippy::disallowed_methods,
        reason = "when an outage is told decides nothing"
    )]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Whether the store fails, so that each outage is told once when it begins and once when it is over.
#[cfg(feature = "tracing")]
mod outage {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// A store that fails now and then is not back yet.
    const QUIET_SECONDS: u64 = 2;

    #[derive(Debug, Default)]
    pub(super) struct Outage {
        is_on: AtomicBool,
        last_failure: AtomicU64,
    }

    impl Outage {
        #[inline]
        pub(super) fn is_on(&self) -> bool {
            self.is_on.load(Ordering::Relaxed)
        }

        /// Whether that is the beginning.
        pub(super) fn failed(&self, second: u64) -> bool {
            self.last_failure.store(second, Ordering::Relaxed);
            !self.is_on.swap(true, Ordering::Relaxed)
        }

        /// Whether that is the end.
        pub(super) fn answered(&self, second: u64) -> bool {
            let last = self.last_failure.load(Ordering::Relaxed);
            second.abs_diff(last) >= QUIET_SECONDS && self.is_on.swap(false, Ordering::Relaxed)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_outage_is_told_once_when_it_begins_and_once_when_it_is_over() {
            let outage = Outage::default();
            assert_eq!(
                [outage.failed(10), outage.failed(10), outage.failed(11)],
                [true, false, false]
            );
            // Some answer while others still fail.
            assert_eq!([outage.answered(11), outage.answered(12)], [false, false]);
            assert!(!outage.failed(12));
            assert_eq!([outage.answered(14), outage.answered(14)], [true, false]);
            assert!(!outage.is_on());
            assert!(outage.failed(15));
        }
    }
}
