//! A rule set bound to an engine, and the sources of this process for one check: what it may deny, reserve and release without the store.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{
    Check, Decision, Outcome, Retry, Rule, RuleSet, Source, Tick, Verdict, algorithm::Assessment,
    micros, store::Fingerprint,
};

use crate::{
    denials::KeyBlock,
    engine::{
        engine::{Engine, EngineUsage},
        entry::{Entry, Lease},
        limit::{Effective, Limit, LimitTerms, number_of, wait},
    },
    local_usage::LocalUsage,
    slots::StateSlots,
    sync::{AtomicBool, Ordering},
    table::TableKey,
};

/// A rule set on an [`Engine`], as its requests and its maintenance share it.
pub struct LocalRules {
    pub(crate) engine: Arc<Engine>,
    pub(crate) rules: Arc<RuleSet>,
    /// By rule and plan. `None`: nothing that a process may decide locally, because the rule is not enforced or the quota has no limit.
    limits: Box<[Plans]>,
    /// Where its states lie.
    pub places: Places,
    /// The numbers of the rules, by which their states are found.
    numbers: Box<[u32]>,
    /// How often something may be due, in µs; `None`: only the deny cache decides locally.
    pub(crate) pause: Option<Tick>,
    is_retired: AtomicBool,
}

/// The limits of a rule, by plan.
type Plans = Box<[Option<Arc<Limit>>]>;

impl LocalRules {
    /// Binds a rule set, which is in use until it is [retired](Self::retire). Bind a rule set before you retire the one
    /// that it replaces, and it keeps the leases and denials of the rules that have not changed. `exact` says why a rule can only be
    /// exact for the store, whatever its consistency and quota are.
    pub fn new(
        engine: &Arc<Engine>,
        rules: Arc<RuleSet>,
        places: Places,
        exact: impl Fn(&Rule) -> Option<&'static str>,
    ) -> Arc<Self> {
        let limits = rules.rules().iter().enumerate().map(|(index, rule)| {
            let exact = exact(rule);
            let plans = (0..rule.quotas()).map(|plan| {
                let quota = rule.quota_of(plan);
                let is_limited = rules.enforces(index) && quota.has_state();
                let terms = || LimitTerms::new(rule, *quota, Effective::of(rule, plan, exact));
                is_limited.then(|| engine.limit(rule.shared_name(), terms()))
            });
            plans.collect()
        });
        let limits: Box<[Plans]> = limits.collect();
        let pauses = limits.iter().flatten().flatten();
        let names = rules.rules().iter().map(Rule::name);
        Arc::new(Self {
            numbers: names.map(number_of).collect(),
            pause: pauses.filter_map(|limit| limit.pause()).min(),
            engine: Arc::clone(engine),
            rules,
            limits,
            places,
            is_retired: AtomicBool::new(false),
        })
    }

    /// The limit of a check; `None` also where it brings a quota along, which the store decides.
    #[inline]
    pub(crate) fn limit(&self, check: &Check) -> Option<&Limit> {
        let plans = self.limits.get(usize::from(check.rule()))?;
        plans.get(usize::from(check.plan()))?.as_deref()
    }

    /// All limits, with a rule and plan that each belongs to.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (u16, u16, &Arc<Limit>)> {
        // A rule set has fewer than 65 536 rules, and a rule fewer plans.
        (0_u16..).zip(&self.limits).flat_map(|(rule, plans)| {
            let plans = (0_u16..).zip(plans);
            plans.filter_map(move |(plan, limit)| Some((rule, plan, limit.as_ref()?)))
        })
    }

    /// Where the state of a check is.
    pub(crate) fn at(&self, check: &Check) -> TableKey {
        let rule = self.numbers.get(usize::from(check.rule()));
        TableKey::new(rule.copied().unwrap_or(0), check.key())
    }

    /// More may be left of the state of a check by now than an earlier denial says.
    pub fn unlearn(&self, check: &Check) {
        self.engine.unlearn(self.at(check));
    }

    /// Forgets the denials and the block of a state that is forgotten.
    pub(crate) fn forget(&self, check: &Check) {
        self.unlearn(check);
        (self.engine.keys).with(self.at(check), |entry| entry.block = None);
    }

    /// How a rule is counted: its own quota with plan number 0, or that of a plan. `None`: it is not enforced, or has no limit.
    pub fn effective(&self, rule: usize, plan: usize) -> Option<Effective> {
        let limit = self.limits.get(rule)?.get(plan)?.as_ref()?;
        Some(limit.terms.effective)
    }

    /// Whether units that a charge takes beyond what is left are owed, or taken from a balance.
    pub(crate) fn has_debt(&self, check: &Check) -> bool {
        let rule = self.rules.rules().get(usize::from(check.rule()));
        rule.is_some_and(|rule| rule.debt_of() > 0 || rule.has_credits())
    }

    /// For how long a request with these checks waits at most: as long as the least patient of its rules lets it, and as it has
    /// `patience` itself.
    #[inline]
    pub(crate) fn patience(&self, checks: &[Check], patience: Tick) -> Tick {
        if !self.rules.has_waits() {
            return 0;
        }
        let waits = checks
            .iter()
            .filter(|check| check.cost() > 0)
            .filter_map(|check| {
                let index = usize::from(check.rule());
                let rule = self.rules.rules().get(index)?;
                let quota = rule.quota_under(usize::from(check.plan()));
                let waits = self.rules.enforces(index) && !rule.has_slots() && quota.has_state();
                rule.at_most_wait().filter(|_| waits)
            });
        waits.map(micros).fold(patience, Tick::min)
    }

    /// A decision at this time by the store's clock.
    pub fn decision(&self, at: Tick, verdicts: impl IntoIterator<Item = Verdict>) -> Decision {
        Decision::new(at, verdicts, |verdict| self.rules.enforces(verdict.rule()))
    }

    /// The rule set is no longer in use.
    pub(crate) fn set_retired(&self) {
        if !self.is_retired.swap(true, Ordering::SeqCst) {
            for (.., limit) in self.limits() {
                limit.in_use.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::SeqCst)
    }
}

/// Whether two checks are on one state.
pub(crate) fn has_twins(checks: &[Check]) -> bool {
    checks.iter().enumerate().any(|(index, check)| {
        let mut before = checks[..index].iter();
        before.any(|other| other.rule() == check.rule() && other.key() == check.key())
    })
}

impl Drop for LocalRules {
    fn drop(&mut self) {
        self.set_retired();
        drop(std::mem::take(&mut self.limits));
        let rules = self.rules.rules().iter();
        self.engine
            .unbind(rules.map(|rule| Arc::clone(rule.shared_name())));
    }
}

tollgate_core::debug_fields!(LocalRules, it => rules: it.rules, places: it.places);

// Where the states of a request lie.

/// Where the states of a request's checks lie. Checks of one place are decided in one step, the others one step after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Whether there are several, as on the shards of a cluster. One store decides about all states in one step.
    pub are_several: bool,
    /// The rule whose check decides where the states of the others lie, and in a request without it each key does. So that check is
    /// always decided with the others: without it, they would have another state. `None`: each key decides where its states lie.
    pub with: Option<u16>,
}

/// Indices of checks that are decided in one step.
pub(crate) type Step = SmallVec<[u16; 4]>;

impl Places {
    /// The place of one of a request's checks.
    pub(crate) fn place(self, checks: &[Check], check: &Check) -> Option<Fingerprint> {
        let is_with = |check: &&Check| Some(check.rule()) == self.with;
        let decides = checks.iter().find(is_with).unwrap_or(check);
        self.are_several.then_some(decides.key())
    }

    /// What belongs to the checks of a request, by their places.
    pub fn steps<T>(
        self,
        checks: &[Check],
        items: impl IntoIterator<Item = T>,
    ) -> impl ExactSizeIterator<Item = SmallVec<[T; 4]>> {
        let mut steps: SmallVec<[(_, SmallVec<[T; 4]>); 2]> = SmallVec::new();
        for (check, item) in checks.iter().zip(items) {
            let place = self.place(checks, check);
            match steps.iter_mut().find(|(other, _)| *other == place) {
                Some((_, step)) => step.push(item),
                None => steps.push((place, smallvec![item])),
            }
        }
        steps.into_iter().map(|(_, step)| step)
    }
}

// The sources of this process, for one check: what it may deny, reserve and release without the store.

impl Engine {
    /// Does something with the entry of a key, and lists the key if something may have to be sent then.
    pub(crate) fn with<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        act: impl FnOnce(&mut Entry) -> Option<R>,
    ) -> Option<R> {
        self.keys.with(limit.at(key), |entry| {
            let done = act(entry)?;
            entry.list(limit, key);
            Some(done)
        })?
    }

    /// The same with a lease or local usage that may begin with it.
    pub(crate) fn with_new<R>(
        &self,
        limit: &Limit,
        key: Fingerprint,
        now: Tick,
        act: impl FnOnce(&mut Entry) -> Option<R>,
    ) -> Option<R> {
        let may_go = |entry: &Entry| entry.may_go(now);
        self.keys.with_new(limit.at(key), now, may_go, |entry| {
            entry.begin(limit, now);
            let done = act(entry)?;
            entry.list(limit, key);
            Some(done)
        })?
    }

    /// What this process holds. It takes a look at every key.
    pub fn usage(&self, now: Tick) -> EngineUsage {
        let mut usage = EngineUsage::default();
        let bytes = self.keys.see_all(|entry| {
            usage.keys += 1;
            usage.bytes += (entry.states().len() * StateSlots::BYTES) as u64;
            let running = entry.states().iter().map(|it| it.holder.running());
            usage.slots_in_use += running.map(u64::from).sum::<u64>();
            let (lease, unreported) = entry.held();
            usage.units_unreported += unreported;
            let units = lease.map_or(0, |lease| lease.held(now));
            usage.units_on_lease += units;
            match lease.filter(|_| units > 0) {
                None => {}
                Some(lease) if lease.has_scheduled(now) => usage.scheduled_keys += 1,
                Some(_) => usage.leased_keys += 1,
            }
        });
        usage.bytes += bytes as u64;
        usage
    }
}

impl LocalRules {
    /// Does something with the lease of a check's key.
    pub(crate) fn lease<R>(&self, check: &Check, act: impl FnOnce(&mut Lease) -> R) -> Option<R> {
        let limit = self.limit(check).filter(|it| it.lease_terms().is_some())?;
        (self.engine).with(limit, check.key(), |entry| entry.lease(limit).map(act))
    }

    /// Does something with the local usage of a check's key.
    pub(crate) fn usage<R>(
        &self,
        check: &Check,
        act: impl FnOnce(&mut LocalUsage) -> R,
    ) -> Option<R> {
        let limit = self.limit(check).filter(|it| it.report_terms().is_some())?;
        (self.engine).with(limit, check.key(), |entry| entry.usage(limit).map(act))
    }

    /// Does something with what is known of the block of a check's key, if its rule blocks keys.
    pub(crate) fn block<R>(
        &self,
        check: &Check,
        act: impl FnOnce(&KeyBlock) -> Option<R>,
    ) -> Option<R> {
        let limit = self.limit(check).filter(|it| it.blocks())?;
        (self.engine.keys).with(limit.at(check.key()), |entry| {
            act(entry.block.as_deref()?)
        })?
    }

    /// Reserves what a check costs of what this process may spend.
    #[inline]
    pub(crate) fn reserve(&self, check: &Check, now: Tick) -> Option<Verdict> {
        let limit = self.limit(check).filter(|_| !check.policy().is_exact())?;
        let (keys, cost, at) = (&self.engine.keys, check.cost(), limit.at(check.key()));
        let (mut answer, source) = match &limit.terms.effective {
            Effective::Leased(_) => {
                let answer = keys.with(at, |entry| {
                    let lease = entry.lease(limit)?;
                    let is_spent = lease.holder.spend(now, cost);
                    is_spent.then(|| self.left_of(limit, lease, now))
                })??;
                (answer, Source::Lease)
            }
            Effective::Eventual(terms) => {
                let answer = keys.with(at, |entry| {
                    let answer = entry.usage(limit)?.spend(now, cost, terms)?;
                    entry.list(limit, check.key());
                    Some(answer)
                })??;
                // A cached denial says what was left, and that is less now.
                keys.unlearn(at);
                (answer, Source::Local)
            }
            Effective::Exact(_) => return None,
        };
        if answer.remaining < cost {
            let (at, due) = (self.engine.store_now(now), self.due_after(check, now));
            answer.retry = wait(limit, at, (cost, answer.remaining), due);
        }
        Some(Verdict::new(check.rule(), check.plan(), answer, source))
    }

    /// What is left of a lease after units of it were spent.
    #[inline]
    fn left_of(&self, limit: &Limit, lease: &Lease, now: Tick) -> Assessment {
        let remaining = lease.left.saturating_add(lease.holder.left(now));
        let reset_after = match lease.holder.window() {
            Some(window) => {
                let until = limit.windows.map_or(0, |it| it.counts_until(window));
                until.saturating_sub(self.engine.store_now(now))
            }
            None => lease.fresh_at.saturating_sub(now),
        };
        Assessment::new(true, remaining, reset_after, Retry::Now)
    }

    /// In how many µs a scheduled lease has what a check costs, if it will.
    fn due_after(&self, check: &Check, now: Tick) -> Option<Tick> {
        self.lease(check, |lease| lease.holder.due_after(now, check.cost()))?
    }

    /// The units of a key's lease that may be spent now.
    pub(crate) fn leased(&self, check: &Check, now: Tick) -> u64 {
        let left = self.lease(check, |lease| lease.holder.left(now));
        left.unwrap_or(0)
    }

    /// Denies a check of a request that waits for `patience` µs at most, if an earlier denial says so.
    #[inline]
    pub(crate) fn deny(&self, check: &Check, now: Tick, patience: Tick) -> Option<Verdict> {
        let (limit, keys) = (self.limit(check)?, &self.engine.keys);
        if keys.keeps_denials()
            && let Some(denied) = self.block(check, |it| it.deny(check, limit.id, now))
        {
            return Some(denied);
        }
        if check.has_id() {
            // A repeat passes also where nothing is left.
            return None;
        }
        let words = keys.denial(limit.at(check.key()), limit.id)?;
        let denied = limit.denials.deny(words, now, check.cost(), patience);
        let (mut denied, knows_left) = denied?;
        if let Effective::Leased(terms) = &limit.terms.effective
            && terms.schedule.is_some()
            && !check.policy().is_exact()
            // This process can serve it from its scheduled lease, if that is sooner.
            && let (Retry::After(wait), Some(due)) = (denied.retry, self.due_after(check, now))
            && u128::from(due) < wait.as_micros()
        {
            denied.retry = Retry::after_micros(due.max(1));
        }
        let verdict = Verdict::new(check.rule(), check.plan(), denied, Source::DenyCache);
        Some(match knows_left {
            true => verdict,
            false => verdict.with_remaining_unknown(),
        })
    }

    /// The store's verdict, with what this process may spend of the key, and less what it has counted and not sent.
    pub(crate) fn adjust(&self, check: &Check, verdict: Verdict, now: Tick) -> Verdict {
        let is_decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
        let leased = self.leased(check, now);
        let unsent = self.usage(check, |usage| usage.unsent()).unwrap_or(0);
        if !is_decided
            || leased + unsent == 0
            || verdict.debt() > 0
            || verdict.is_blocked()
            || verdict.is_repeat()
        {
            return verdict;
        }
        let remaining = (verdict.remaining() + leased).saturating_sub(unsent);
        let fits = check.cost() <= remaining;
        let reset_after = verdict.reset_after_ticks();
        let retry = match verdict.retry() {
            _ if fits && remaining >= check.cost().max(1) => Retry::Now,
            // It would have fit, but for what is not reported yet.
            _ if !fits && verdict.outcome() == Outcome::Allow => {
                Retry::after_micros(reset_after.max(1))
            }
            Retry::Now => Retry::after_micros(reset_after.max(1)),
            retry => retry,
        };
        let answer = Assessment::new(fits, remaining, reset_after, retry);
        Verdict::new(check.rule(), check.plan(), answer, verdict.source())
    }
}
