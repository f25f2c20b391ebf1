//! The local part in front of Redis: what of a request this process answers alone.
//!
//! First what earlier denials taught, then what this process holds, then Redis for the rest. A denial here asks nobody else.

use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Clock, Decision, Outcome, Retry, RuleSet, Source, Tick, Verdict,
};
use tollgate_prefilter::{Effective, LeaseTerms, ReportTerms};

use crate::prefilter::{
    deny::DenyCache,
    key_table::Miss,
    leases::Leases,
    plans::{Plan, Plans},
    reports::{Reports, SentAt},
    split::{Answer, IndexSet, Part, QueryExtras},
    store_time::StoreTime,
    table_key::{TableKey, check_of, table_key_of},
    wait::wait,
};

/// What a process answers alone about the rules of one rule set.
#[derive(Debug)]
pub(crate) struct Prefilter {
    pub(super) plans: Plans,
    pub(super) deny: Option<DenyCache>,
    pub(super) leases: Option<Leases>,
    pub(super) reports: Option<Reports>,
    clock: Clock,
    pub(super) store_time: StoreTime,
}

impl Prefilter {
    /// For a rule set, by this process's clock. `exact` says why the store cannot count a rule otherwise.
    pub(crate) fn new(
        rules: &RuleSet,
        clock: Clock,
        deny: Option<DenyCache>,
        exact: impl Fn(usize) -> Option<&'static str>,
    ) -> Self {
        let plans = Plans::new(rules, exact);
        Self {
            leases: plans
                .any(|effective| matches!(effective, Effective::Leased(_)))
                .then(Leases::new),
            reports: plans
                .any(|effective| matches!(effective, Effective::Eventual(_)))
                .then(Reports::new),
            deny,
            clock,
            store_time: StoreTime::default(),
            plans,
        }
    }

    /// How the quotas of a rule are counted: its own, then those of its plans. `None` is without a limit.
    pub(crate) fn effective(&self, rule: usize) -> impl Iterator<Item = Option<Effective>> {
        self.plans.effective(rule)
    }

    /// The time by this process's clock.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// The time at which something is sent.
    #[inline]
    pub(crate) fn sent(&self) -> SentAt {
        let at = self.now();
        let place = |reports: &Reports| reports.place(at);
        SentAt {
            at,
            place: self.reports.as_ref().map_or(at, place),
        }
    }

    /// The time by the store's clock, as far as this process knows it.
    pub(crate) fn store_now(&self) -> Tick {
        self.store_time.at(self.now())
    }

    #[inline]
    pub(super) fn plan(&self, check: &Check) -> Option<&Plan> {
        self.plans.of(check)
    }

    /// On what terms the check's quota is granted.
    pub(crate) fn lease_terms(&self, check: &Check) -> Option<&LeaseTerms> {
        match &self.plan(check)?.effective {
            Effective::Leased(terms) => Some(terms),
            _ => None,
        }
    }

    /// Whether the check's quota is granted, and counts in windows.
    pub(crate) fn grants_windows(&self, check: &Check) -> bool {
        self.plan(check).is_some_and(|plan| plan.windows.is_some())
    }

    pub(super) fn report_terms(&self, slot: TableKey) -> Option<&ReportTerms> {
        match &self.plan(&check_of(slot))?.effective {
            Effective::Eventual(terms) => Some(terms),
            _ => None,
        }
    }

    pub(crate) fn reports(&self) -> Option<&Reports> {
        self.reports.as_ref()
    }

    /// Answers what can be answered here.
    #[inline]
    pub(crate) fn answer(&self, rules: &RuleSet, checks: &[Check]) -> Answer {
        let now = self.now();
        let [check] = checks else {
            return self.answer_several(rules, checks, now);
        };
        // What is held has been taken already, and is there whatever the store would say.
        let miss = match self.hold(check, now) {
            Ok(verdict) => return self.here(rules, verdict, now),
            Err(miss) => miss,
        };
        if let Some(verdict) = self.deny(check, now) {
            return self.here(rules, verdict, now);
        }
        let mut uncached = IndexSet::default();
        if miss.is_new {
            uncached.insert(0);
        }
        Answer::LeaseQuery(self.query(checks, uncached, now))
    }

    #[inline]
    fn here(&self, rules: &RuleSet, verdict: Verdict, now: Tick) -> Answer {
        let enforced = rules.enforces(verdict.rule());
        Answer::Here(Decision::of_one(self.store_time.at(now), verdict, enforced))
    }

    #[inline(never)]
    fn answer_several(&self, rules: &RuleSet, checks: &[Check], now: Tick) -> Answer {
        if let Some(decision) = self.deny_several(rules, checks, now) {
            return Answer::Here(decision);
        }
        if self.leases.is_none() && self.reports.is_none() {
            return Answer::LeaseQuery(QueryExtras::default());
        }
        if has_twins(checks) {
            // They are one check for the store. Of a key that comes only so nothing could be answered here.
            let mut extras = QueryExtras::default();
            for (place, check) in checks.iter().enumerate() {
                let slot = table_key_of(check);
                if let (Some(_), Some(reports)) = (self.report_terms(slot), &self.reports)
                    && !reports.keeps(slot)
                {
                    extras.uncached.insert(place);
                }
            }
            return Answer::LeaseQuery(extras);
        }
        let mut part = Part {
            checks: Checks::new(),
            extras: QueryExtras::default(),
            places: SmallVec::new(),
            at: now,
            store_at: self.store_time.at(now),
            held: SmallVec::new(),
        };
        let mut uncached = IndexSet::default();
        for (place, check) in (0..).zip(checks) {
            match self.hold_beside(rules, checks, check, now) {
                Ok(verdict) => part.held.push((place, *check, verdict)),
                Err(miss) => {
                    if miss.is_new {
                        uncached.insert(part.places.len());
                    }
                    part.places.push(place);
                    part.checks.push(*check);
                }
            }
        }
        if part.checks.is_empty() {
            let verdicts = part.held.iter().map(|(_, _, verdict)| *verdict);
            return Answer::Here(self.decide(rules, verdicts, now));
        }
        part.extras = self.query(&part.checks, uncached, now);
        if part.held.is_empty() {
            return Answer::LeaseQuery(part.extras);
        }
        Answer::Part(Box::new(part))
    }

    #[inline]
    fn deny(&self, check: &Check, now: Tick) -> Option<Verdict> {
        let plan = self.plan(check)?;
        let slot = TableKey::new(check.rule(), check.plan(), check.key());
        let (mut denied, knows_left) =
            self.deny
                .as_ref()?
                .deny(&plan.denials, slot, now, check.cost())?;
        if let Effective::Leased(terms) = &plan.effective
            && terms.schedule().is_some()
        {
            denied = self.unless_due(slot, now, check.cost(), denied);
        }
        let verdict = Verdict::new(check.rule(), check.plan(), denied, Source::DenyCache);
        Some(if knows_left {
            verdict
        } else {
            verdict.with_remaining_unknown()
        })
    }

    /// Denies a request of several checks, if any of them is denied here. The others are not asked.
    ///
    /// A shadow counts what is denied as well, and a threshold tells of it. So a request that has one goes to the store.
    fn deny_several(&self, rules: &RuleSet, checks: &[Check], now: Tick) -> Option<Decision> {
        let enforced = |check: &Check| rules.enforces(usize::from(check.rule()));
        if !checks.iter().all(enforced) {
            return None;
        }
        let answers = checks.iter().map(|check| {
            let slot = table_key_of(check);
            let held = self
                .leases
                .as_ref()
                .map_or(0, |leases| leases.left(slot, now));
            // What is held has been taken already.
            self.deny(check, now).filter(|_| held < check.cost())
        });
        let answers: SmallVec<[_; 4]> = answers.collect();
        if answers.iter().all(Option::is_none) {
            return None;
        }
        let verdicts = checks.iter().zip(answers).map(|(check, answer)| {
            let (rule, plan) = (check.rule(), check.plan());
            answer.unwrap_or_else(|| Verdict::unanswered(rule, plan, Outcome::NotAsked))
        });
        Some(self.decide(rules, verdicts, now))
    }

    /// Takes what a check costs from what this process holds.
    #[inline]
    pub(super) fn hold(&self, check: &Check, now: Tick) -> Result<Verdict, Miss> {
        let slot = table_key_of(check);
        let effective = self.plan(check).map(|plan| &plan.effective);
        let (mut answer, source) = match (effective, &self.leases, &self.reports) {
            (Some(Effective::Leased(_)), Some(leases), _) => {
                let weighs = |window| {
                    let windows = self.plan(check).and_then(|plan| plan.windows);
                    let until = windows.map_or(0, |windows| windows.weigh_until(window));
                    until.saturating_sub(self.store_time.at(now))
                };
                let answer = leases.spend(slot, now, check.cost(), weighs)?;
                (answer, Source::Lease)
            }
            (Some(Effective::Eventual(terms)), _, Some(reports)) => {
                let answer = reports.spend(slot, now, check.cost(), terms)?;
                // What a denial told is not left any more.
                self.unlearn(check.key());
                (answer, Source::Local)
            }
            _ => return Err(Miss { is_new: true }),
        };
        if answer.remaining < check.cost() {
            answer.retry = self.wait(check, answer.remaining, now);
        }
        Ok(Verdict::new(check.rule(), check.plan(), answer, source))
    }

    /// When what a check costs fits again, of which only `left` units are there.
    #[cold]
    fn wait(&self, check: &Check, left: u64, now: Tick) -> Retry {
        let Some(plan) = self.plan(check) else {
            return Retry::Now;
        };
        let leases = self.leases.as_ref();
        let due =
            leases.and_then(|leases| leases.due_after(table_key_of(check), now, check.cost()));
        wait(plan, self.store_time.at(now), (check.cost(), left), due)
    }

    /// The same for one of several checks. What a threshold of the request reads is left to the store, which is asked anyway.
    fn hold_beside(
        &self,
        rules: &RuleSet,
        checks: &[Check],
        check: &Check,
        now: Tick,
    ) -> Result<Verdict, Miss> {
        if rules.has_thresholds()
            && let Some(reports) = &self.reports
            && self.report_terms(table_key_of(check)).is_some()
            && has_threshold(rules, checks, check)
        {
            return Err(reports.see(table_key_of(check)));
        }
        self.hold(check, now)
    }

    /// What goes to the store with these checks.
    #[inline(never)]
    fn query(&self, checks: &[Check], uncached: IndexSet, now: Tick) -> QueryExtras {
        let mut extras = QueryExtras {
            grants: SmallVec::new(),
            uncached,
        };
        let Some(leases) = &self.leases else {
            return extras;
        };
        for (place, check) in (0..).zip(checks) {
            if uncached.contains(usize::from(place)) {
                continue;
            }
            let Some(Effective::Leased(terms)) = self.plan(check).map(|plan| &plan.effective)
            else {
                continue;
            };
            let query = leases.query(table_key_of(check), now, check.cost(), terms);
            if !query.is_empty() {
                extras.grants.push((place, query));
            }
        }
        extras
    }

    fn decide(
        &self,
        rules: &RuleSet,
        verdicts: impl IntoIterator<Item = Verdict>,
        now: Tick,
    ) -> Decision {
        Decision::new(self.store_time.at(now), verdicts, |verdict| {
            rules.enforces(verdict.rule())
        })
    }
}

/// Whether a threshold of a request reads the state of one of its checks.
fn has_threshold(rules: &RuleSet, checks: &[Check], check: &Check) -> bool {
    let mut thresholds = rules.thresholds_of(usize::from(check.rule()));
    thresholds.any(|threshold| {
        checks
            .iter()
            .any(|other| usize::from(other.rule()) == threshold)
    })
}

/// Whether two checks are on one state.
pub(super) fn has_twins(checks: &[Check]) -> bool {
    checks.iter().enumerate().any(|(place, check)| {
        let mut before = checks[..place].iter();
        before.any(|other| other.rule() == check.rule() && other.key() == check.key())
    })
}
