//! The local part in front of Redis: what of a request this process answers alone.
//!
//! First what earlier denials taught, then what this process holds, then Redis for the rest. A denial here asks nobody else.

use smallvec::SmallVec;
use tollgate_core::{
    AlgorithmKind, Check, Checks, Clock, Consistency, Decision, Fingerprint, Holding, Outcome,
    Quota, Retry, RuleSet, Settlement, Source, Tick, Verdict,
    algorithm::{Algorithm, Assessment, FixedWindow, SlidingBuckets, SlidingWindow, Taken},
};
use tollgate_prefilter::{Ask, Closed, InForce, LeaseTerms, Lot, ReportTerms, WhyExact};

use crate::prefilter::{
    deny::{Denials, DenyCache},
    keyed::Slot,
    leases::Leases,
    reports::Reports,
    store_time::StoreTime,
};

/// What a process answers alone about the rules of one rule set.
#[derive(Debug)]
pub(crate) struct Prefilter {
    /// By rule and plan; `None` is without a limit, or nothing that is answered here.
    plans: Box<[Box<[Option<Plan>]>]>,
    deny: Option<DenyCache>,
    leases: Option<Leases>,
    reports: Option<Reports>,
    clock: Clock,
    store_time: StoreTime,
}

/// A quota of a rule.
#[derive(Debug)]
struct Plan {
    quota: Quota,
    denials: Denials,
    in_force: InForce,
}

/// What became of a request here.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is decided.
    Here(Decision),
    /// The store is to be asked about all of it.
    Ask(Asking),
    /// The store is to be asked about the rest of it.
    Part(Box<Part>),
}

/// What goes to the store beside checks: by the place of the check among them.
pub(crate) type Asking = SmallVec<[(u16, Ask); 1]>;

/// A request of which a part is held here.
#[derive(Debug)]
pub(crate) struct Part {
    /// What the store is to be asked about.
    pub(crate) checks: Checks,
    pub(crate) asking: Asking,
    /// The places of those checks in the request.
    places: SmallVec<[u16; 4]>,
    /// When this was.
    at: Tick,
    /// What is held here, with its place.
    held: SmallVec<[(u16, Check, Verdict); 2]>,
}

/// What was held here and has to go back to the store: so many units of each.
pub(crate) type Back = SmallVec<[(Holding, u64); 1]>;

impl Part {
    /// The answers about what is held here.
    pub(crate) fn held(&self) -> impl IntoIterator<Item = &Verdict> {
        self.held.iter().map(|(_, _, verdict)| verdict)
    }
}

impl Prefilter {
    /// For a rule set, by this process's clock. `exact` says why the store cannot count a rule otherwise.
    pub(crate) fn new(
        rules: &RuleSet,
        clock: Clock,
        deny: Option<DenyCache>,
        exact: impl Fn(usize) -> Option<&'static str>,
    ) -> Self {
        let plans: Box<[Box<[_]>]> = rules
            .rules()
            .iter()
            .enumerate()
            .map(|(place, rule)| {
                let quotas = (0..rule.quotas()).map(|plan| rule.quota_of(plan));
                let in_force = |quota: &Quota| match exact(place) {
                    Some(why) if rule.consistency_of() != Consistency::Exact => {
                        InForce::Exact(Some(WhyExact::Store(why)))
                    }
                    _ => InForce::new(quota, rule.consistency_of()),
                };
                let plan = |quota: &Quota| {
                    (rules.enforces(place) && !quota.is_unlimited()).then(|| Plan {
                        quota: *quota,
                        denials: Denials::of(quota),
                        in_force: in_force(quota),
                    })
                };
                quotas.map(plan).collect()
            })
            .collect();
        let has = |which: fn(&InForce) -> bool| {
            let mut plans = plans.iter().flat_map(|plans| plans.iter().flatten());
            plans.any(|plan| which(&plan.in_force))
        };
        Self {
            leases: has(|in_force| matches!(in_force, InForce::Leased(_))).then(Leases::new),
            reports: has(|in_force| matches!(in_force, InForce::Eventual(_))).then(Reports::new),
            deny,
            clock,
            store_time: StoreTime::default(),
            plans,
        }
    }

    /// How the quotas of a rule are counted: its own, then those of its plans. `None` is without a limit.
    pub(crate) fn in_force(&self, rule: usize) -> impl Iterator<Item = Option<InForce>> {
        let plans = self.plans.get(rule).into_iter().flatten();
        plans.map(|plan| plan.as_ref().map(|plan| plan.in_force))
    }

    /// The time by this process's clock.
    #[inline]
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// The time by the store's clock, as far as this process knows it.
    pub(crate) fn store_now(&self) -> Tick {
        self.store_time.at(self.now())
    }

    #[inline]
    fn plan(&self, check: &Check) -> Option<&Plan> {
        let plans = self.plans.get(usize::from(check.rule()))?;
        let plan = plans.get(usize::from(check.plan()));
        plan.or_else(|| plans.first())?.as_ref()
    }

    /// On what terms the check's quota is lent.
    pub(crate) fn lease_terms(&self, check: &Check) -> Option<&LeaseTerms> {
        match &self.plan(check)?.in_force {
            InForce::Leased(terms) => Some(terms),
            _ => None,
        }
    }

    fn report_terms(&self, slot: Slot) -> Option<&ReportTerms> {
        match &self.plan(&check_of(slot))?.in_force {
            InForce::Eventual(terms) => Some(terms),
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
        let deny = || {
            let (rule, plan) = (check.rule(), check.plan());
            let answer = self.deny(check, now)?;
            Some(Verdict::new(rule, plan, answer, Source::LearnedBound))
        };
        // What is held has been taken already, and is there whatever the store would say.
        match self.hold(check, now).or_else(deny) {
            Some(verdict) => {
                let enforced = rules.enforces(verdict.rule());
                Answer::Here(Decision::of_one(self.store_time.at(now), verdict, enforced))
            }
            None => Answer::Ask(self.ask(checks, now)),
        }
    }

    #[inline(never)]
    fn answer_several(&self, rules: &RuleSet, checks: &[Check], now: Tick) -> Answer {
        if let Some(decision) = self.deny_several(rules, checks, now) {
            return Answer::Here(decision);
        }
        if self.leases.is_none() && self.reports.is_none() {
            return Answer::Ask(Asking::new());
        }
        if has_twins(checks) {
            // They are one check for the store.
            return Answer::Ask(Asking::new());
        }
        let mut part = Part {
            checks: Checks::new(),
            asking: Asking::new(),
            places: SmallVec::new(),
            at: now,
            held: SmallVec::new(),
        };
        for (place, check) in (0..).zip(checks) {
            match self.hold(check, now) {
                Some(verdict) => part.held.push((place, *check, verdict)),
                None => {
                    part.places.push(place);
                    part.checks.push(*check);
                }
            }
        }
        if part.checks.is_empty() {
            let verdicts = part.held.iter().map(|(_, _, verdict)| *verdict);
            return Answer::Here(self.decide(rules, verdicts, now));
        }
        part.asking = self.ask(&part.checks, now);
        if part.held.is_empty() {
            return Answer::Ask(part.asking);
        }
        Answer::Part(Box::new(part))
    }

    #[inline]
    fn deny(&self, check: &Check, now: Tick) -> Option<Assessment> {
        let plan = self.plan(check)?;
        let slot = Slot::new(check.rule(), check.plan(), check.key());
        self.deny
            .as_ref()?
            .deny(&plan.denials, slot, now, check.cost())
    }

    /// Denies a request of several checks, if any of them is denied here. The others are not asked.
    ///
    /// A shadow counts what is denied as well, and a mark tells of it. So a request that has one goes to the store.
    fn deny_several(&self, rules: &RuleSet, checks: &[Check], now: Tick) -> Option<Decision> {
        let enforced = |check: &Check| rules.enforces(usize::from(check.rule()));
        if !checks.iter().all(enforced) {
            return None;
        }
        let answers = checks.iter().map(|check| {
            let slot = slot_of(check);
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
            match answer {
                Some(answer) => Verdict::new(rule, plan, answer, Source::LearnedBound),
                None => Verdict::unanswered(rule, plan, Outcome::NotAsked),
            }
        });
        Some(self.decide(rules, verdicts, now))
    }

    /// Takes what a check costs from what this process holds.
    #[inline]
    fn hold(&self, check: &Check, now: Tick) -> Option<Verdict> {
        let slot = slot_of(check);
        let (answer, source) = match &self.plan(check)?.in_force {
            InForce::Leased(_) => {
                let leases = self.leases.as_ref()?;
                (leases.spend(slot, now, check.cost())?, Source::Lease)
            }
            InForce::Eventual(terms) => {
                let reports = self.reports.as_ref()?;
                let answer = reports.spend(slot, now, check.cost(), terms)?;
                (answer, Source::Eventual)
            }
            _ => return None,
        };
        Some(Verdict::new(check.rule(), check.plan(), answer, source))
    }

    /// What goes to the store with these checks.
    #[inline(never)]
    fn ask(&self, checks: &[Check], now: Tick) -> Asking {
        let mut asking = Asking::new();
        let Some(leases) = &self.leases else {
            return asking;
        };
        for (place, check) in (0..).zip(checks) {
            let Some(InForce::Leased(terms)) = self.plan(check).map(|plan| &plan.in_force) else {
                continue;
            };
            let ask = leases.ask(slot_of(check), now, check.cost(), terms);
            if !ask.is_nothing() {
                asking.push((place, ask));
            }
        }
        asking
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

    /// The store has decided about checks that were sent at `sent`.
    ///
    /// `of_others` says of a rule's place that its answer was about a state that the client shares with others.
    pub(crate) fn learn(
        &self,
        checks: &[Check],
        decision: &Decision,
        sent: Tick,
        of_others: impl Fn(u16) -> bool,
    ) {
        self.store_time.told((sent, self.now()), decision.at());
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            let Some(plan) = self.plan(check) else {
                continue;
            };
            let slot = slot_of(check);
            let decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
            if !decided || verdict.source() != Source::Store {
                continue;
            }
            if verdict.outcome() == Outcome::Allow && check.cost() > 0 {
                self.unlearn(check.key());
            }
            if verdict.outcome() == Outcome::Deny && !has_twins(checks) && !of_others(check.rule())
            {
                let times = (sent, self.now());
                if let Some(deny) = &self.deny {
                    deny.learn(&plan.denials, slot, times, check.cost(), verdict);
                }
            }
            if let (InForce::Leased(_), Some(leases)) = (&plan.in_force, &self.leases) {
                leases.told(slot, sent, verdict);
            }
            if let (InForce::Eventual(_), Some(reports)) = (&plan.in_force, &self.reports) {
                let lasts = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
                reports.learned(slot, (sent, self.now()), verdict.remaining(), lasts);
            }
        }
    }

    /// What the store said about checks that take nothing, with what this process holds and has not reported.
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
        let slot = slot_of(check);
        let decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
        let held = self
            .leases
            .as_ref()
            .map_or(0, |leases| leases.left(slot, now));
        let owed = self
            .reports
            .as_ref()
            .map_or(0, |reports| reports.owed(slot));
        if !decided || held + owed == 0 {
            return verdict;
        }
        let remaining = (verdict.remaining() + held).saturating_sub(owed);
        let fits = check.cost() <= remaining;
        let reset_after = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
        let retry = match verdict.retry() {
            _ if fits => Retry::Now,
            // It would have fit, but for what is not reported yet.
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

    /// The store has answered what was asked beside checks; `None`: nobody knows what became of it.
    pub(crate) fn answered(&self, check: &Check, times: (Tick, Tick), lot: Option<Option<Lot>>) {
        let slot = slot_of(check);
        let (Some(leases), Some(terms)) = (&self.leases, self.lease_terms(check)) else {
            return;
        };
        match lot {
            Some(lot) => leases.answered(slot, times, lot, terms),
            None => leases.lost(slot),
        }
    }

    /// Puts the decision about a part of a request together with what is held here. What is held goes back if the store
    /// has denied: here, and what was reported meanwhile as the second of what this gives.
    pub(crate) fn conclude(
        &self,
        rules: &RuleSet,
        part: &Part,
        decision: &Decision,
    ) -> (Decision, Back) {
        let mut back = Back::new();
        if decision.outcome() == Outcome::Deny {
            let now = self.now();
            for (_, check, verdict) in &part.held {
                let times = (now, part.at);
                let rest = self.give_back(check, verdict.source(), times, check.cost());
                if rest > 0 {
                    let at = self.store_time.at(part.at);
                    back.push((self.as_reported(&holding(check, verdict, at)), rest));
                }
            }
        }
        let mut verdicts: SmallVec<[(u16, Verdict); 4]> = SmallVec::new();
        verdicts.extend(
            part.held
                .iter()
                .map(|(place, _, verdict)| (*place, *verdict)),
        );
        let asked = part.places.iter().copied();
        verdicts.extend(asked.zip(decision.verdicts().iter().copied()));
        verdicts.sort_unstable_by_key(|(place, _)| *place);
        let verdicts = verdicts.into_iter().map(|(_, verdict)| verdict);
        let decision = Decision::new(decision.at(), verdicts, |verdict| {
            rules.enforces(verdict.rule())
        });
        (decision, back)
    }

    /// Gives units that were spent at `spent` back to where they came from. Gives those that have to go back to the store.
    fn give_back(
        &self,
        check: &Check,
        source: Source,
        (now, spent): (Tick, Tick),
        units: u64,
    ) -> u64 {
        let slot = slot_of(check);
        match (source, &self.leases, &self.reports) {
            (Source::Lease, Some(leases), _) => {
                leases.give_back(slot, now, spent, units);
                0
            }
            (Source::Eventual, _, Some(reports)) => units - reports.give_back(slot, units),
            _ => units,
        }
    }

    /// Settles what was held here. Gives what the store has to settle, and how.
    pub(crate) fn settle(
        &self,
        holding: &Holding,
        how: Settlement,
    ) -> Option<(Holding, Settlement)> {
        let check = &holding.check;
        let now = self.now();
        let back = match how {
            Settlement::Refund(units) => units.min(check.cost()),
            Settlement::Cancel => check.cost(),
            Settlement::Charge(units) => {
                // What this process holds is as good as what the store has.
                let more = check.with_cost(units);
                return match self.hold(&more, now) {
                    Some(_) => None,
                    None => Some((*holding, how)),
                };
            }
            _ => return None,
        };
        self.unlearn(check.key());
        if !matches!(holding.source, Source::Lease | Source::Eventual) {
            // As it is: a ticket is settled as a whole where one of its rules says where the states of the others are.
            return Some((*holding, how));
        }
        let times = (now, self.store_time.local(holding.taken.at));
        match self.give_back(check, holding.source, times, back) {
            0 => None,
            rest => Some((self.as_reported(holding), Settlement::Refund(rest))),
        }
    }

    /// What was counted here as the store has it, which was told of it in a report.
    fn as_reported(&self, holding: &Holding) -> Holding {
        let mut holding = *holding;
        if let Some(plan) = self.plan(&holding.check) {
            holding.taken.fresh_at = weighs_until(&plan.quota, &holding);
        }
        holding
    }

    /// Forgets what is known of a key: what it has used is about to be forgotten.
    pub(crate) fn forget(&self, rule: u16, key: Fingerprint) {
        self.unlearn(key);
        let plans = self.plans.get(usize::from(rule));
        // A rule has fewer than 65 535 plans.
        for plan in 0..plans.map_or(0, |plans| plans.len()) as u16 {
            let slot = Slot::new(rule, plan, key);
            if let Some(leases) = &self.leases {
                leases.forget(slot);
            }
            if let Some(reports) = &self.reports {
                reports.forget(slot);
            }
        }
    }

    /// Forgets what denials have taught of a key: more of it may be left by now.
    pub(crate) fn unlearn(&self, key: Fingerprint) {
        if let Some(deny) = &self.deny {
            deny.forget(key);
        }
    }

    /// Lots that are not needed, taken out to be handed back. About once a second.
    pub(crate) fn sweep(&self) -> Vec<(Slot, Closed)> {
        let leases = self.leases.as_ref();
        leases.map_or_else(Vec::new, |leases| leases.sweep(self.now()))
    }

    /// All lots, taken out to be handed back.
    pub(crate) fn hand_back(&self) -> Vec<(Slot, Closed)> {
        let leases = self.leases.as_ref();
        leases.map_or_else(Vec::new, |leases| leases.hand_back(self.now()))
    }

    /// It is known what became of a lot that was handed back, as far as it ever will be.
    pub(crate) fn handed_back(&self, slot: Slot) {
        self.unlearn(slot.key());
        if let Some(leases) = &self.leases {
            leases.lost(slot);
        }
    }

    /// What is to be reported by now, of at most so many keys.
    pub(crate) fn due(&self, most: usize) -> Vec<(Slot, u64)> {
        let terms = |slot| self.report_terms(slot).copied();
        let reports = self.reports.as_ref();
        reports.map_or_else(Vec::new, |reports| reports.due_by(self.now(), terms, most))
    }

    /// All that is not reported yet.
    pub(crate) fn all_due(&self) -> Vec<(Slot, u64)> {
        let terms = |slot| self.report_terms(slot).copied();
        let reports = self.reports.as_ref();
        reports.map_or_else(Vec::new, |reports| {
            reports.due_by(Tick::MAX, terms, usize::MAX)
        })
    }

    /// How often it is to be looked after; `None`: there is nothing to look after.
    pub(crate) fn pause(&self) -> Option<Tick> {
        const LEASES: Tick = 1_000_000;
        const SHORTEST: Tick = 5_000;
        let plans = self.plans.iter().flat_map(|plans| plans.iter().flatten());
        let pauses = plans.filter_map(|plan| match &plan.in_force {
            InForce::Leased(_) => Some(LEASES),
            InForce::Eventual(terms) => Some((terms.interval() / 2).clamp(SHORTEST, LEASES)),
            _ => None,
        });
        pauses.min()
    }

    /// The units that this process holds in lots.
    pub(crate) fn units_on_lease(&self) -> u64 {
        let leases = self.leases.as_ref();
        leases.map_or(0, |leases| leases.units(self.now()))
    }

    /// The units that this process has admitted and the store does not know of.
    pub(crate) fn units_unreported(&self) -> u64 {
        self.reports.as_ref().map_or(0, Reports::unreported)
    }
}

/// Until when units weigh that were counted here and reported: what was told with them is what the store said earlier, and
/// it gives nothing back to a window whose end is another.
fn weighs_until(quota: &Quota, holding: &Holding) -> Tick {
    let taken = holding.taken;
    let until = match quota.algorithm() {
        AlgorithmKind::FixedWindow => fresh_at::<FixedWindow>(quota, taken.at),
        AlgorithmKind::SlidingWindow => fresh_at::<SlidingWindow>(quota, taken.at),
        AlgorithmKind::SlidingBuckets => fresh_at::<SlidingBuckets>(quota, taken.at),
        _ => None,
    };
    until.unwrap_or(taken.fresh_at)
}

/// When a state is fresh of which a unit was taken at `at`.
fn fresh_at<A: Algorithm>(quota: &Quota, at: Tick) -> Option<Tick> {
    let quota = A::new(quota)?;
    let mut state = A::State::default();
    quota.take(&mut state, at, 1);
    Some(quota.fresh_at(&state))
}

fn slot_of(check: &Check) -> Slot {
    Slot::new(check.rule(), check.plan(), check.key())
}

/// What was taken for a check at a time by the store's clock.
fn holding(check: &Check, verdict: &Verdict, at: Tick) -> Holding {
    let lasts = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
    Holding {
        check: *check,
        taken: Taken {
            at,
            fresh_at: at.saturating_add(lasts),
        },
        source: verdict.source(),
    }
}

/// The check of nothing that a slot stands for.
pub(crate) fn check_of(slot: Slot) -> Check {
    Check::new(slot.rule(), slot.key(), 0).with_plan(slot.plan())
}

/// Whether two checks are on one state.
fn has_twins(checks: &[Check]) -> bool {
    checks.iter().enumerate().any(|(place, check)| {
        let mut before = checks[..place].iter();
        before.any(|other| other.rule() == check.rule() && other.key() == check.key())
    })
}
