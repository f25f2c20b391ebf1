//! The way of a request through its rules, from the checks to the decision:
//!
//! 1. A check of other rules is a mistake, and denied.
//! 2. What keys of durable rules have used before comes from a ledger: [`durable`].
//! 3. Limits of [none](crate::Quota::none) deny at once, and are not asked about otherwise. Thresholds hang on the checks that they
//!    read.
//! 4. The store decides the rest, all or nothing, and folds checks on one state. In memory: `memory/take.rs` where all fit, else
//!    `memory/decide.rs`. On Redis: `tollgate-prefilter` answers from denials, leases and usage of this process where it can
//!    (`engine/begin.rs`), else `decide.lua` does, in one call; the head of `store/mod.rs` in `tollgate-redis` has its way. In a
//!    cluster checks that lie on several servers are decided one server after the other, and a denial cancels what the earlier ones
//!    took.
//! 5. What it could not decide is decided by the share of this process, a memory store again, all or nothing: `remote/fallback.rs`.
//! 6. At the end the verdicts are put together, and the decision holds its slots until a ticket or a layer takes them
//!    (`held_slots.rs`): they go back when the last that holds them is dropped. A denial gives all back.

mod durable;

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

#[cfg(feature = "tokio")]
use crate::step::Pending;
use crate::{
    blocked,
    check::{Check, Checks},
    decision::Decision,
    held_slots::HeldSlots,
    hold::Hold,
    journal::{DurableRules, Journal},
    observe::Observer,
    remote::fallback::Fallback,
    rule::Rule,
    rule_set::RuleSet,
    step::Step,
    store::rule_store::RuleStore,
    ticket::slot_holds,
    time::Tick,
    wait_queue::WaitQueues,
};

/// Rules on a store, as a limiter and its clones share them.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(crate) store: Arc<dyn RuleStore>,
    /// Those of the store, which need not be asked for them.
    pub(crate) rule_set: Arc<RuleSet>,
    /// For stores that can fail: the local shares and caps, in bounded memory.
    pub(crate) fallback: Option<Arc<Fallback>>,
    pub(crate) way: Way,
    /// What the checks of this rule set are known by.
    pub(crate) rules_version: u32,
    /// The number of rules.
    rules: u16,
    pub(crate) wait_queues: Arc<WaitQueues>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) durable: Option<Arc<DurableRules>>,
    /// The same, also if rules have no more than daily usage.
    pub(crate) noted: Option<Arc<DurableRules>>,
}

/// What the rules need of the way of a request. Here, because a look at the rules asks the store for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Nothing: the store's answer is the decision.
    is_direct: bool,
    /// Whether the store is asked before the ledger: it can give back all that it takes.
    asks_before_ledger: bool,
    has_none: bool,
    pub(crate) has_waits: bool,
    /// Whether slots go back to the store by their numbers.
    releases_slots: bool,
    /// Whether operators are told of decisions.
    pub(crate) is_observed: bool,
    /// Whether somebody has to know the keys of checks.
    pub(crate) notes_keys: bool,
}

impl Way {
    fn new(
        store: &dyn RuleStore,
        in_memory: bool,
        observer: &Observer,
        noted: Option<&DurableRules>,
    ) -> Self {
        let rules = store.rules();
        let has_none = rules.rules().iter().any(Rule::may_be_none);
        let releases_slots = rules.has_slots() && store.releases_slots();
        let in_one_step = in_memory && !(has_none || rules.has_thresholds() || releases_slots);
        let comes_back = !(rules.has_slots() || rules.has_waits() || rules.has_credits());
        Self {
            is_direct: in_one_step && !noted.is_some_and(DurableRules::has_durable),
            asks_before_ledger: in_one_step && comes_back,
            releases_slots,
            has_none,
            has_waits: rules.has_waits(),
            is_observed: observer.is_on() || noted.is_some_and(DurableRules::has_daily_usage),
            notes_keys: observer.has_labels() || noted.is_some(),
        }
    }
}

/// What a store is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Acquire,
    /// To wait for no longer than this, also where its rules would let the request wait longer.
    Within(Duration),
    /// Not to wait, and to answer by then.
    #[cfg(feature = "tokio")]
    By(tokio::time::Instant),
    /// To take nothing. What it cannot decide stays so.
    Peek,
}

impl Coordinator {
    /// Requests that wait by the rules of `before` stay in the same queues, and its ledger hears of these.
    pub(crate) fn new(
        store: Arc<dyn RuleStore>,
        fallback: Option<Fallback>,
        observer: Arc<Observer>,
        before: Option<&Self>,
    ) -> Self {
        let (rules, fallback) = (store.rules(), fallback.map(Arc::new));
        if let Some(fallback) = &fallback
            && rules.rules().iter().any(|rule| rule.debt_of() > 0)
        {
            let (fallback, of_store) = (Arc::clone(fallback), Arc::downgrade(&store));
            store.set_charge_fallback(Arc::new(move |check, units| match of_store.upgrade() {
                Some(store) => fallback.charge(&*store, check, units),
                None => units,
            }));
        }
        let clock = match &fallback {
            Some(fallback) => fallback.clock().clone(),
            None => store.clock(),
        };
        let journal = before.map_or_else(Arc::default, |it| Arc::clone(&it.journal));
        let noted = DurableRules::new(rules, &journal, fallback.is_none(), clock);
        let durable = noted.clone().filter(|it| it.has_durable());
        let way = Way::new(&*store, fallback.is_none(), &observer, noted.as_deref());
        journal.set_store(&store);
        if let Some((noted, hook)) = noted.clone().zip(store.paid()) {
            hook.set(move |hold, paid| match paid {
                Some(units) => noted.paid(&hold.check, units),
                None => noted.kept(hold),
            });
        }
        Self {
            way,
            rules_version: rules.version() as u32,
            // A rule set has fewer than 65 536 rules.
            rules: rules.rules().len() as u16,
            rule_set: Arc::clone(rules),
            store,
            fallback,
            wait_queues: before.map_or_else(Arc::default, |it| Arc::clone(&it.wait_queues)),
            observer,
            journal,
            durable,
            noted,
        }
    }

    /// Whether this limiter has made the check, or it was made by hand.
    pub(crate) fn knows(&self, check: &Check) -> bool {
        self.has_made(check) || check.rule() < self.rules && self.has_given_out(check)
    }

    /// The same of a check that brings no quota along.
    #[inline]
    fn has_made(&self, check: &Check) -> bool {
        check.rule() < self.rules && check.is_of_rules(self.rules_version)
    }

    /// Whether the check brings a quota along that it has from here.
    pub(crate) fn has_given_out(&self, check: &Check) -> bool {
        let rule = self.rule_set.rules().get(usize::from(check.rule()));
        rule.is_some_and(|rule| rule.has_given_out(check.quota()))
    }

    /// The time by the clock of this process.
    pub(crate) fn now(&self) -> Tick {
        match &self.fallback {
            Some(fallback) => fallback.clock().now(),
            None => self.store.clock().now(),
        }
    }

    /// The denial of a request by an enforced limit of [none](crate::Quota::none): it needs no store.
    pub(crate) fn blocked(&self, checks: &[Check]) -> Option<Decision> {
        match self.way.has_none {
            true => blocked::deny(&self.rule_set, checks, self.now()),
            false => None,
        }
    }

    /// Decides all checks and takes all or nothing.
    #[inline]
    pub(crate) fn decide(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        match ask {
            Ask::Acquire if self.way.is_direct && checks.iter().all(|it| self.has_made(it)) => {
                self.store.acquire(checks)
            }
            _ => self.decide_by_rules(checks, ask),
        }
    }

    /// The same where the rules have more to look at than the store, or a check brings a quota along.
    fn decide_by_rules(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        if !checks.iter().all(|check| self.knows(check)) {
            return Step::Ready(Check::deny_mistake(checks));
        }
        match &self.durable {
            Some(durable) if !matches!(ask, Ask::Peek) => self.decide_durable(durable, checks, ask),
            _ => self.decide_counted(checks, ask),
        }
    }

    /// The same without the limits of none, and with thresholds.
    fn decide_counted(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        if !(self.way.has_none || self.rule_set.has_thresholds()) {
            return self.ask_and_conclude(checks, ask);
        }
        if let Some(denied) = self.blocked(checks) {
            return Step::Ready(denied);
        }
        let (rules, now) = (&self.rule_set, self.now());
        let (mut checks, verdicts) = blocked::counted(rules, checks, now);
        for index in 0..checks.len() {
            let check = checks[index];
            for threshold in rules.thresholds_of(usize::from(check.rule())) {
                // A rule set has fewer than 65 536 rules.
                checks.push(check.with_rule(threshold as u16).with_plan(0));
            }
        }
        let mut answer = match checks.is_empty() {
            true => Step::Ready(Decision::unlimited(now)),
            false => self.ask_and_conclude(&checks, ask),
        };
        if !verdicts.is_empty() {
            answer.then(move |decision| decision.insert(&verdicts));
        }
        answer
    }

    /// Asks the store, and does what comes after it.
    fn ask_and_conclude(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        let mut answer = self.ask(checks, ask, &[]);
        match (&mut answer, &self.durable) {
            _ if matches!(ask, Ask::Peek) => {}
            (Step::Ready(decision), None) => self.conclude(checks, decision),
            (Step::Ready(decision), Some(durable))
                if !self.may_lack_balance(durable, checks, decision) =>
            {
                self.conclude(checks, decision);
            }
            (answer, Some(durable)) => self.conclude_with_ledger(durable, checks, answer, ask),
            (answer, None) => {
                let (coordinator, checks) = (Arc::clone(self), Checks::from_slice(checks));
                answer.then(move |decision| coordinator.conclude(&checks, decision));
            }
        }
        answer
    }

    #[inline]
    fn ask(&self, checks: &[Check], ask: Ask, bases: &[(Check, u64)]) -> Step<Decision> {
        match ask {
            Ask::Peek => self.store.peek(checks),
            Ask::Acquire if bases.is_empty() => self.store.acquire(checks),
            Ask::Within(_) if bases.is_empty() && !self.way.has_waits => self.store.acquire(checks),
            Ask::Acquire => self.store.acquire_within(checks, Duration::MAX, bases),
            Ask::Within(patience) => self.store.acquire_within(checks, patience, bases),
            #[cfg(feature = "tokio")]
            Ask::By(deadline) => match self.store.acquire_within(checks, Duration::ZERO, bases) {
                Step::Wait(pending) => {
                    let checks = Checks::from_slice(checks);
                    Step::Wait(Pending::new(async move {
                        let in_time = tokio::time::timeout_at(deadline, pending).await;
                        // What the store decides later is unknown.
                        in_time.unwrap_or_else(|_| Check::fail(&checks))
                    }))
                }
                ready => ready,
            },
        }
    }

    /// What comes after the store.
    fn conclude(&self, checks: &[Check], decision: &mut Decision) {
        self.hold_slots(checks, decision);
        self.conclude_held(checks, decision);
    }

    /// The decision holds the slots that the store has given by their numbers, which are lost otherwise.
    fn hold_slots(&self, checks: &[Check], decision: &mut Decision) {
        if self.way.releases_slots {
            let slots: SmallVec<[Hold; 1]> = slot_holds(checks, decision).collect();
            if !slots.is_empty() {
                let store = Arc::clone(&self.store);
                decision.set_slots(Some(HeldSlots::of(StoredSlots { store, slots })));
            }
        }
    }

    /// What comes after that.
    fn conclude_held(&self, checks: &[Check], decision: &mut Decision) {
        if let Some(fallback) = &self.fallback {
            fallback.resolve(&*self.store, checks, decision);
        }
        if let Some(durable) = &self.durable {
            durable.decided(checks, decision);
        }
        // A denied request, whose checks failed after a store had given slots, returns them at once.
        if self.way.releases_slots && !decision.is_allowed() {
            decision.set_slots(None);
        }
    }
}

/// Slots that a store has given by their numbers.
struct StoredSlots {
    store: Arc<dyn RuleStore>,
    slots: SmallVec<[Hold; 1]>,
}

impl Drop for StoredSlots {
    fn drop(&mut self) {
        self.store.release(&self.slots);
    }
}
