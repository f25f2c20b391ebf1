//! Events: denials at debug level, failures sampled, mistakes of the set-up once. Never a key.

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
    last_failure: std::sync::atomic::AtomicU64,
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
            last_failure: std::sync::atomic::AtomicU64::new(0),
        }
    }

    #[cfg(feature = "tracing")]
    fn name(&self, rule: usize) -> &str {
        self.rules.get(rule).map_or("", |told| &told.name)
    }

    #[cfg(not(feature = "tracing"))]
    #[inline]
    pub(crate) fn decided(&self, _decision: &Decision) {}

    /// Tells of denials, and of a store that failed, whatever came of that.
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
        if self.first_of_a_second() {
            tracing::warn!(
                target: "tollgate",
                rule = self.name(verdict.rule()),
                allowed = decision.is_allowed(),
                "the store failed; the rule's own answer applies (told at most once a second)"
            );
        }
    }

    /// Whether no failure was told in this second yet. Failures of a busy service would drown its log.
    #[cfg(feature = "tracing")]
    fn first_of_a_second(&self) -> bool {
        use std::time::{SystemTime, UNIX_EPOCH};
        #[expect(
            clippy::disallowed_methods,
            reason = "a sample of a log decides nothing"
        )]
        let second = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.last_failure.swap(second, Ordering::Relaxed) != second
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
