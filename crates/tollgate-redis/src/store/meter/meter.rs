//! The meter of a rule set.

use std::{fmt, sync::Arc};

use tollgate_core::{
    Check, Decision, Outcome, RuleError, RuleSet, Source, Tick, Verdict,
    store::{Receipt, Settlement},
};
use tollgate_prefilter::RequestEvents;

use crate::{
    observe::RuleCounts,
    store::{
        meter::{
            event_queue::{Entry, Event},
            event_sender::EventSender,
            reference::Reference,
        },
        shared::Shared,
    },
};

/// Compares the decisions about sampled keys of a rule set with a reference. The engine tells it what happens to requests.
pub(in crate::store) struct Meter {
    one_in: u64,
    reference: Arc<Reference>,
}

impl Meter {
    /// For one key in `one_in` of a rule set. `counts` has what is counted of each quota, `None` where a rule has states
    /// that a client alone does not find.
    pub(in crate::store) fn new(
        one_in: u64,
        shared: &Arc<Shared>,
        rules: &Arc<RuleSet>,
        counts: impl Fn(usize, usize) -> Option<Arc<RuleCounts>>,
    ) -> Result<Self, RuleError> {
        let reference = Arc::new(Reference::new(shared, rules, counts)?);
        Ok(Self { one_in, reference })
    }

    /// A request was decided by its rules' fallbacks. The engine does not make these decisions, so they are no events of
    /// its own: the limiter makes them when all checks of a request are decided or have failed.
    pub(in crate::store) fn on_fallback(&self, checks: &[Check], decision: &Decision, now: Tick) {
        if self.samples_any(checks) {
            let is_fallback = |verdict: &Verdict| verdict.source() == Source::Fallback;
            self.on_decision(checks, decision, now, is_fallback);
        }
    }

    #[inline]
    fn samples(&self, check: &Check) -> bool {
        // Bits that no table of keys is spread by, and the same in every process.
        ((check.key().bits() >> 64) as u64).is_multiple_of(self.one_in)
    }

    #[inline]
    fn samples_any(&self, checks: &[Check]) -> bool {
        checks.iter().any(|check| self.samples(check))
    }

    /// Whether what happens to a check is followed.
    fn follows(&self, check: &Check) -> bool {
        self.samples(check) && self.reference.plan(check).is_some()
    }

    #[cold]
    fn on_decision(
        &self,
        checks: &[Check],
        decision: &Decision,
        now: Tick,
        which: impl Fn(&Verdict) -> bool,
    ) {
        let at = match decision.at() {
            0 => self.store_at(now),
            at => at,
        };
        let verdicts = decision.verdicts().iter();
        for (index, (check, verdict)) in checks.iter().zip(verdicts).enumerate() {
            let same = |other: &&Check| other.rule() == check.rule() && other.key() == check.key();
            if !which(verdict)
                || !self.follows(check)
                // Checks on one state are one check.
                || checks[..index].iter().any(|other| same(&other))
            {
                continue;
            }
            let costs = checks.iter().filter(same).map(Check::cost);
            let cost = costs.fold(0, u64::saturating_add);
            let check = check.with_cost(cost);
            let event = match verdict.outcome() {
                _ if cost == 0 => continue,
                Outcome::Allow if decision.outcome() != Outcome::Deny => Event::Admitted(check, 1),
                Outcome::Deny => Event::Refused(check, 1),
                _ => continue,
            };
            self.push((at, now), event);
        }
    }

    fn push(&self, (at, since): (Tick, Tick), event: Event) {
        EventSender::push(&self.reference, Entry { at, since, event });
    }

    fn store_at(&self, now: Tick) -> Tick {
        self.reference.shared.engine.store_now(now)
    }
}

impl RequestEvents for Meter {
    fn decided(&self, checks: &[Check], decision: &Decision, now: Tick) {
        if self.samples_any(checks) {
            self.on_decision(checks, decision, now, |_| true);
        }
    }

    fn settled(&self, receipts: &[Receipt], how: Settlement, now: Tick) {
        let settled = receipts.iter().filter(|it| it.check.cost() > 0);
        for receipt in settled.filter(|it| self.follows(&it.check)) {
            self.push((self.store_at(now), now), Event::Settled(*receipt, how));
        }
    }

    fn reset(&self, check: &Check, now: Tick) {
        if self.follows(check) {
            self.push((self.store_at(now), now), Event::Forgotten(*check));
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("one_in", &self.one_in)
            .finish_non_exhaustive()
    }
}
