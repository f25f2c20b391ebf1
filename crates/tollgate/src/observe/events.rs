//! Events: denials at debug level, an outage of the store when it begins and when it is over, mistakes of the set-up once. Never a key.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

#[cfg(feature = "tracing")]
use tollgate_core::Verdict;
use tollgate_core::{Decision, RuleSet, UnknownName};

#[derive(Debug)]
pub(crate) struct Events {
    rules: Box<[Told]>,
    wrong_name: AtomicBool,
    #[cfg(feature = "tracing")]
    outage: outage::Outage,
}

/// A rule's name, and whether its mistake was told already.
#[derive(Debug)]
struct Told {
    name: Arc<str>,
    #[cfg(feature = "tracing")]
    enforced: bool,
    misconfigured: AtomicBool,
}

impl Events {
    pub(crate) fn new(rules: &RuleSet) -> Self {
        Self {
            rules: rules
                .rules()
                .iter()
                .map(|rule| Told {
                    name: Arc::clone(rule.shared_name()),
                    #[cfg(feature = "tracing")]
                    enforced: rule.is_enforced(),
                    misconfigured: AtomicBool::new(false),
                })
                .collect(),
            wrong_name: AtomicBool::new(false),
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
            // A shadow or a mark that would deny has denied nothing.
            let enforced = self
                .rules
                .get(verdict.rule())
                .is_some_and(|told| told.enforced);
            if enforced && verdict.outcome() == Outcome::Deny {
                tracing::debug!(
                    target: "tollgate",
                    rule = self.name(verdict.rule()),
                    reason = ?decision.reason(),
                    source = ?verdict.source(),
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

    /// Tells once per rule: the service goes on, and every request would say the same.
    pub(crate) fn misconfigured(&self, rule: u16, what: &str) {
        let Some(told) = self.rules.get(usize::from(rule)) else {
            return;
        };
        if !told.misconfigured.swap(true, Ordering::Relaxed) {
            say(&format!("rule {:?} finds no key: {what}", told.name));
        }
    }

    /// Tells once: every request would say the same.
    pub(crate) fn wrong_name(&self, unknown: &UnknownName) {
        if !self.wrong_name.swap(true, Ordering::Relaxed) {
            say(&unknown.to_string());
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

/// A mistake in the set-up that only shows when a request comes. It is not silent where nobody listens to events: all
/// clients may share one budget.
fn say(what: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "tollgate", "{what}");
    #[cfg(feature = "tracing")]
    let heard = tracing::dispatcher::has_been_set();
    #[cfg(not(feature = "tracing"))]
    let heard = false;
    if !heard {
        // Standard error may be closed; a request must not fail for that.
        let _ = writeln!(std::io::stderr(), "tollgate: {what}");
    }
}
