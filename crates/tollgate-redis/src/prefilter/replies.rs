//! What the store said.

use tollgate_core::{
    Check, Decision, Outcome, Retry, RuleSet, Source, Tick, Verdict, algorithm::Assessment,
};
use tollgate_prefilter::{Effective, Grant, ReturnedLease};

use crate::prefilter::{
    filter::{Prefilter, has_twins},
    reports::SentAt,
    split::IndexSet,
    table_key::{TableKey, table_key_of},
};

impl Prefilter {
    /// The store has decided about checks that were sent at `sent`. What was reported with them is heard first.
    ///
    /// Of `unkept` ones no count is begun. `of_others` says of a rule's place that its answer was about a state that the client
    /// shares with others.
    pub(crate) fn learn(
        &self,
        checks: &[Check],
        decision: &Decision,
        (sent, uncached): (SentAt, IndexSet),
        of_others: impl Fn(u16) -> bool,
    ) {
        let (at, now) = (sent.at, self.now());
        self.store_time.told((at, now), decision.at());
        for (place, (check, verdict)) in checks.iter().zip(decision.verdicts()).enumerate() {
            let Some(plan) = self.plan(check) else {
                continue;
            };
            let slot = table_key_of(check);
            let decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
            if !decided || verdict.source() != Source::Store {
                continue;
            }
            if verdict.outcome() == Outcome::Allow && check.cost() > 0 {
                self.unlearn(check.key());
            }
            if verdict.outcome() == Outcome::Deny
                && !has_twins(checks)
                && !of_others(check.rule())
                && let Some(deny) = &self.deny
            {
                let (times, has_plans) = ((at, now), self.plans.count(check.rule()) > 1);
                deny.learn(&plan.denials, slot, times, check.cost(), verdict, has_plans);
            }
            if let (Effective::Leased(_), Some(leases)) = (&plan.effective, &self.leases) {
                leases.told(slot, at, verdict);
            }
            if let (Effective::Eventual(terms), Some(reports)) = (&plan.effective, &self.reports) {
                let lasts = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
                let said = (verdict.remaining(), lasts);
                reports.learned(slot, (sent, now), said, (terms, uncached.contains(place)));
            }
        }
    }

    /// The same decision, with what this process holds of the keys of checks that cost nothing.
    pub(crate) fn with_held(
        &self,
        rules: &RuleSet,
        checks: &[Check],
        decision: Decision,
    ) -> Decision {
        let is_leased = |check: &Check| check.cost() == 0 && self.lease_terms(check).is_some();
        if self.leases.is_none() || !checks.iter().any(is_leased) {
            return decision;
        }
        let now = self.now();
        let verdicts = checks.iter().zip(decision.verdicts());
        let verdicts = verdicts.map(|(check, verdict)| match is_leased(check) {
            true => self.with_local(check, *verdict, now),
            false => *verdict,
        });
        Decision::new(decision.at(), verdicts, |verdict| {
            rules.enforces(verdict.rule())
        })
    }

    /// What the store said about checks that take nothing, with what this process holds, and what it has counted since it
    /// asked: what it had counted before was reported with them, or before them.
    pub(crate) fn looked(&self, rules: &RuleSet, checks: &[Check], decision: Decision) -> Decision {
        if self.leases.is_none() && self.reports.is_none() {
            return decision;
        }
        let now = self.now();
        let verdicts = checks.iter().zip(decision.verdicts());
        let verdicts = verdicts.map(|(check, verdict)| self.with_local(check, *verdict, now));
        Decision::new(decision.at(), verdicts, |verdict| {
            rules.enforces(verdict.rule())
        })
    }

    fn with_local(&self, check: &Check, verdict: Verdict, now: Tick) -> Verdict {
        let slot = table_key_of(check);
        let decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
        let held = self
            .leases
            .as_ref()
            .map_or(0, |leases| leases.left(slot, now));
        let owed = self
            .reports
            .as_ref()
            .map_or(0, |reports| reports.unsent(slot));
        if !decided || held + owed == 0 {
            return verdict;
        }
        let remaining = (verdict.remaining() + held).saturating_sub(owed);
        let fits = check.cost() <= remaining;
        let reset_after = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
        let retry = match verdict.retry() {
            _ if fits && remaining >= check.cost().max(1) => Retry::Now,
            // It would have fit, but for what is not reported yet.
            _ if !fits && verdict.outcome() == Outcome::Allow => {
                Retry::after_micros(reset_after.max(1))
            }
            Retry::Now => Retry::after_micros(reset_after.max(1)),
            retry => retry,
        };
        let answer = Assessment {
            fits,
            remaining,
            reset_after,
            retry,
        };
        Verdict::new(check.rule(), check.plan(), answer, verdict.source())
    }

    /// What was to be asked beside a check certainly did not reach the store: a lease that was to go back is here again.
    pub(crate) fn on_not_sent(&self, check: &Check, returned: Option<ReturnedLease>) {
        if let Some(leases) = &self.leases {
            leases.on_not_sent(table_key_of(check), returned);
        }
    }

    /// The store has answered what was asked beside checks; `None`: nobody knows what became of it. Gives what is left of the
    /// window before, where it still weighs.
    pub(crate) fn on_reply(
        &self,
        check: &Check,
        times: (Tick, Tick),
        grant: Option<Option<Grant>>,
    ) -> Option<(TableKey, ReturnedLease)> {
        let slot = table_key_of(check);
        let (leases, terms) = (self.leases.as_ref()?, self.lease_terms(check)?);
        match grant {
            Some(grant) => {
                let (sent, at) = times;
                let now = self.now();
                let left = leases.on_reply(slot, (sent, now), at, grant, terms);
                if let Some(Grant::Scheduled { units, after }) = grant {
                    self.learn_scheduled(check, (sent, now), units, after);
                }
                let windows = self.plan(check)?.windows?;
                let left = left.filter(|_| windows.slide())?;
                Some((slot, left))
            }
            None => {
                leases.lost(slot);
                None
            }
        }
    }
}
