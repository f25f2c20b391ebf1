//! A rule set bound to an engine.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tollgate_core::{Check, Decision, Rule, RuleSet, Tick, Verdict, store::Fingerprint};

use crate::{
    effective::Effective,
    engine::{
        engine::Engine,
        limit::{Limit, number_of},
    },
    sync::{AtomicBool, AtomicU64, Ordering},
    table::key_table::TableKey,
};

/// A rule set on an [`Engine`], as its requests and its maintenance share it.
pub struct BoundRules {
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
    /// When leases were last checked for those that are not needed, and whether some are left to look at.
    pub(crate) swept: AtomicU64,
    pub(crate) is_sweeping: AtomicBool,
}

/// The limits of a rule, by plan.
type Plans = Box<[Option<Arc<Limit>>]>;

impl BoundRules {
    /// How often leases are checked for those that are not needed, in µs.
    pub(crate) const SWEEP_EVERY: Tick = 1_000_000;

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
                is_limited.then(|| engine.limit(rule, *quota, Effective::of(rule, plan, exact)))
            });
            plans.collect()
        });
        let limits: Box<[Plans]> = limits.collect();
        let pauses = limits.iter().flatten().flatten();
        Arc::new(Self {
            pause: pauses.filter_map(|limit| limit.pause()).min(),
            engine: Arc::clone(engine),
            numbers: rules
                .rules()
                .iter()
                .map(|rule| number_of(rule.name()))
                .collect(),
            rules,
            limits,
            places,
            is_retired: AtomicBool::new(false),
            swept: AtomicU64::new(0),
            is_sweeping: AtomicBool::new(false),
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

    /// Those that are leased.
    pub(crate) fn leased_limits(&self) -> impl Iterator<Item = (u16, u16, &Arc<Limit>)> {
        self.limits()
            .filter(|(.., limit)| limit.lease_terms().is_some())
    }

    /// Where the state of a check is.
    pub(crate) fn at(&self, check: &Check) -> TableKey {
        let rule = self.numbers.get(usize::from(check.rule()));
        TableKey::new(rule.copied().unwrap_or(0), check.key())
    }

    /// More may be left of the state of a check by now than an earlier denial says.
    pub fn unlearn(&self, check: &Check) {
        self.engine.keys.unlearn(self.at(check));
    }

    /// How a rule is counted: its own quota with plan number 0, or that of a plan. `None`: it is not enforced, or has no limit.
    pub fn effective(&self, rule: usize, plan: usize) -> Option<Effective> {
        Some(self.limits.get(rule)?.get(plan)?.as_ref()?.effective)
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
        let waits = checks.iter().filter(|check| check.cost() > 0);
        let waits = waits.filter_map(|check| self.limit(check)?.wait);
        let waits = waits.map(|wait| Tick::try_from(wait.as_micros()).unwrap_or(Tick::MAX));
        waits.fold(patience, Tick::min)
    }

    /// A decision at this time by the store's clock.
    pub(crate) fn decision(
        &self,
        at: Tick,
        verdicts: impl IntoIterator<Item = Verdict>,
    ) -> Decision {
        Decision::new(at, verdicts, |verdict| self.rules.enforces(verdict.rule()))
    }

    /// The rule set is no longer in use.
    pub(crate) fn set_retired(&self) {
        if !self.is_retired.swap(true, Ordering::SeqCst) {
            self.limits().for_each(|(.., limit)| limit.retire());
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

impl Drop for BoundRules {
    fn drop(&mut self) {
        self.set_retired();
        let name = |rule: u16| self.rules.rules()[usize::from(rule)].shared_name();
        let limits = self.limits();
        let limits = limits.map(|(rule, _, limit)| (name(rule), limit));
        self.engine.unbind(limits);
    }
}

tollgate_core::debug_fields!(BoundRules, it => rules: it.rules, places: it.places);

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
pub type Step = SmallVec<[u16; 4]>;

impl Places {
    /// The place of one of a request's checks.
    pub(crate) fn place(self, checks: &[Check], check: &Check) -> Option<Fingerprint> {
        let is_with = |check: &&Check| Some(check.rule()) == self.with;
        let decides = checks.iter().find(is_with).unwrap_or(check);
        self.are_several.then_some(decides.key())
    }

    /// The checks of a request, by their places.
    pub fn steps(self, checks: &[Check]) -> SmallVec<[Step; 2]> {
        let mut steps: SmallVec<[Step; 2]> = SmallVec::new();
        // A request has fewer than 65 536 checks.
        for (index, check) in (0_u16..).zip(checks) {
            let place = self.place(checks, check);
            let is_there =
                |step: &&mut Step| self.place(checks, &checks[usize::from(step[0])]) == place;
            match steps.iter_mut().find(is_there) {
                Some(step) => step.push(index),
                None => steps.push(smallvec![index]),
            }
        }
        steps
    }
}
