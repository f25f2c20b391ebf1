//! The way of a request through its rules, from the checks to the decision:
//!
//! 1. Limits of [none](crate::Quota::none) deny at once, and are not asked about otherwise. Thresholds hang on the checks that they
//!    read.
//! 2. The store decides the rest, all or nothing. One that is far folds checks on one state and answers from denials, leases and usage
//!    of this process first.
//! 3. What it could not decide is decided by the share of this process, a memory store again, all or nothing.
//! 4. At the end the verdicts are put together, and the request holds its slots. A denial gives all back.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    blocked,
    check::Check,
    checks::Checks,
    decision::{Decision, Outcome, Verdict},
    hold::{Hold, Settlement, SharedSlots, SlotOwner},
    journal::{DurableRules, Journal, UNKNOWN},
    observe::Observer,
    remote::fallback::{Fallback, begin_with},
    rule_set::RuleSet,
    source::Source,
    step::{Pending, Step},
    store::rule_store::RuleStore,
    striped::PerStripe,
    ticket::holds,
    time::Tick,
    wait_queue::WaitQueues,
};

/// Rules on a store, as a limiter and its clones share them.
#[derive(Debug)]
pub(crate) struct Coordinator {
    pub(crate) store: Arc<dyn RuleStore>,
    /// For stores that can fail: the local shares and caps, in bounded memory.
    pub(crate) fallback: Option<Arc<Fallback>>,
    /// Where slots go back to, once for each stripe, because requests count on it; `None` if no rule has slots.
    pub(crate) slot_owners: Option<SlotOwners>,
    /// What the rules have. Here, because a look at the rules asks the store for them.
    pub(crate) has_waits: bool,
    has_thresholds: bool,
    has_none: bool,
    /// Whether the store's answer to the checks is the decision.
    is_plain: bool,
    /// Whether the store is asked first, and what is to be done after its answer ends with it.
    asks_first: bool,
    /// Whether operators are told of decisions.
    pub(crate) is_observed: bool,
    /// What the checks of this rule set are known by.
    pub(crate) rules_version: u32,
    /// The number of rules.
    rules: u16,
    pub(crate) wait_queues: WaitQueues,
    pub(crate) observer: Arc<Observer>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) durable: Option<Arc<DurableRules>>,
    /// The same, also if rules have no more than daily usage.
    pub(crate) noted: Option<Arc<DurableRules>>,
    /// Whether it has to know the keys of checks.
    pub(crate) notes_keys: bool,
}

pub(crate) struct SlotOwners(pub(crate) PerStripe<SlotOwner>);

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
    pub(crate) fn new(
        store: Arc<dyn RuleStore>,
        fallback: Option<Fallback>,
        observer: Arc<Observer>,
        wait_queues: WaitQueues,
        journal: Arc<Journal>,
    ) -> Self {
        let (rules, fallback) = (store.rules(), fallback.map(Arc::new));
        #[cfg(feature = "metrics")]
        if let Some(fallback) = &fallback {
            let fallback = Arc::downgrade(fallback);
            observer.set_local_tables(Box::new(move || {
                let fallback = fallback.upgrade();
                fallback.map_or_else(Default::default, |it| it.sizes())
            }));
        }
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
        let noted = DurableRules::new(rules, &journal, fallback.is_none(), clock);
        let durable = noted.clone().filter(|it| it.has_durable());
        let has_daily_usage = noted.as_ref().is_some_and(|it| it.has_daily_usage());
        let (in_memory, has_slots) = (fallback.is_none(), rules.has_slots());
        let asks_first = match &durable {
            _ if rules.has_thresholds() || rules.has_none() => false,
            Some(_) => in_memory && !(has_slots || rules.has_waits() || rules.has_credits()),
            None => true,
        };
        journal.set_store(&store);
        if let Some((durable, paid)) = durable.clone().zip(store.paid()) {
            paid.set(move |check, units| durable.paid(check, units));
        }
        Self {
            notes_keys: observer.has_labels() || noted.is_some(),
            slot_owners: has_slots.then(|| SlotOwners::new(&store, fallback.as_ref())),
            has_waits: rules.has_waits(),
            has_thresholds: rules.has_thresholds(),
            has_none: rules.has_none(),
            is_plain: asks_first && in_memory && durable.is_none() && !has_slots,
            asks_first,
            is_observed: observer.is_on() || has_daily_usage,
            rules_version: rules.version() as u32,
            // A rule set has fewer than 65 536 rules.
            rules: rules.rules().len() as u16,
            store,
            fallback,
            wait_queues,
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
        let rule = self.store.rules().rules().get(usize::from(check.rule()));
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
        match self.has_none {
            true => blocked::deny(self.store.rules(), checks, self.now()),
            false => None,
        }
    }

    /// Decides all checks and takes all or nothing.
    #[inline]
    pub(crate) fn decide(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        let is_made = matches!(ask, Ask::Acquire) && checks.iter().all(|it| self.has_made(it));
        match is_made {
            true if self.is_plain => self.store.acquire(checks),
            true if self.asks_first => self.decide_first(checks),
            _ => self.decide_by_rules(checks, ask),
        }
    }

    /// The same where the rules have more to look at than the store, or a check brings a quota along.
    fn decide_by_rules(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        if !checks.iter().all(|check| self.knows(check)) {
            return Step::Ready(Check::deny_mistake(checks));
        }
        match (ask, &self.durable) {
            (Ask::Acquire, _) if self.asks_first => self.decide_first(checks),
            (Ask::Peek, _) | (_, None) => self.decide_in_steps(checks, ask),
            (ask, Some(durable)) => self.decide_durable(durable, checks, ask),
        }
    }

    /// The same where the store is asked first. One in memory mostly knows what was used of durable rules before.
    fn decide_first(self: &Arc<Self>, checks: &[Check]) -> Step<Decision> {
        let durable = self.durable.as_ref();
        let mut answer = match durable.is_some_and(|durable| durable.denies(checks)) {
            true => Step::Ready(Check::deny_mistake(checks)),
            false => self.store.acquire(checks),
        };
        match (&mut answer, durable) {
            (Step::Ready(decision), None) => self.conclude(checks, decision),
            (Step::Ready(decision), Some(durable)) if durable.is_added(checks, decision) => {}
            (answer, Some(durable)) => self.end_in_memory(durable, checks, answer),
            (answer, None) => self.end(answer, checks, Ask::Acquire),
        }
        answer
    }

    /// The same of an admitted request that is not of one key, which is in use. Not inlined: its frame would be that of each request.
    #[inline(never)]
    fn end_in_memory(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
        answer: &mut Step<Decision>,
    ) {
        match answer {
            Step::Ready(decision) if !durable.unknown(checks, decision.at()).is_empty() => {
                let taken = holds(&*self.store, checks, decision, |_, _| true);
                self.store.settle(&taken, Settlement::Cancel);
                *answer = self.decide_durable(durable, checks, Ask::Acquire);
            }
            _ => self.end(answer, checks, Ask::Acquire),
        }
    }

    /// The same where a rule is durable. A store in memory knows nothing from before it was made, and is told when a key comes for the
    /// first time in a window.
    fn decide_durable(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
        ask: Ask,
    ) -> Step<Decision> {
        if durable.denies(checks) {
            return Step::Ready(Check::deny_mistake(checks));
        }
        if self.store.can_fail() {
            return self.decide_in_steps(checks, ask);
        }
        let now = self.now();
        let unknown = durable.unknown(checks, now);
        if unknown.is_empty() {
            return self.decide_in_steps(checks, ask);
        }
        let (coordinator, durable) = (Arc::clone(self), Arc::clone(durable));
        let checks = Checks::from_slice(checks);
        Step::Wait(Pending::new(async move {
            let within = coordinator.store.answers_within();
            for (check, end) in unknown {
                let store = &*coordinator.store;
                match durable.base(&check, now, within, None).await {
                    Some(base) => {
                        begin_with(store, &check, base.used);
                        // Without room it is asked for again.
                        let _ = durable.restore_balance(store, &check, &base, now).await;
                        durable.set_known(&check, end);
                    }
                    None if durable.denies_unknown(&check) => return Check::deny_mistake(&checks),
                    None => {}
                }
            }
            coordinator.decide_in_steps(&checks, ask).await
        }))
    }

    /// Asks the store, and does what comes after it.
    fn ask_to_end(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        let mut answer = self.ask(checks, ask);
        let durable = self.durable.as_ref().filter(|_| !matches!(ask, Ask::Peek));
        let is_ready = |durable: &Arc<DurableRules>| match &answer {
            Step::Ready(decision) => !self.may_lack_balance(durable, checks, decision),
            Step::Wait(_) => false,
        };
        let Some(durable) = durable.filter(|durable| !is_ready(durable)) else {
            self.end(&mut answer, checks, ask);
            return answer;
        };
        let (coordinator, durable) = (Arc::clone(self), Arc::clone(durable));
        let checks = Checks::from_slice(checks);
        Step::Wait(Pending::new(async move {
            let mut decision = answer.await;
            let lacks_balance = coordinator.may_lack_balance(&durable, &checks, &decision);
            if lacks_balance || decision.verdicts().iter().any(Verdict::is_forgotten) {
                // Its future would make this one larger, and it is rare.
                let again = coordinator.ask_again(&durable, &checks, decision, ask, lacks_balance);
                decision = Box::pin(again).await;
            }
            coordinator.conclude(&checks, &mut decision);
            decision
        }))
    }

    /// Asks the store once more, with what the ledger knows of what it has forgotten: what was used, or a balance that would let the
    /// request pass.
    async fn ask_again(
        &self,
        durable: &DurableRules,
        checks: &[Check],
        decision: Decision,
        ask: Ask,
        lacks_balance: bool,
    ) -> Decision {
        let (store, now) = (&*self.store, self.now());
        if !lacks_balance && decision.outcome() == Outcome::Deny {
            return decision;
        }
        let (mut bases, mut is_restored) = (
            Bases {
                store,
                checks: SmallVec::new(),
            },
            false,
        );
        for (check, _) in checks
            .iter()
            .zip(decision.verdicts())
            .filter(|(_, verdict)| {
                verdict.is_forgotten() || lacks_balance && verdict.outcome() == Outcome::Deny
            })
        {
            // Without an answer it stays failed, and its rule says what then; or denied.
            let within = store.answers_within();
            durable.set_balance_known(check, now.saturating_add(UNKNOWN));
            let Some(base) = durable.base(check, now, within, None).await else {
                return decision;
            };
            let restored = durable.restore_balance(store, check, &base, now).await;
            is_restored |= restored.unwrap_or(false);
            store.set_base(check, Some(base.used));
            bases.checks.push(*check);
        }
        if lacks_balance && !is_restored {
            return decision;
        }
        // Others have taken their units.
        let taken = holds(store, checks, &decision, RuleSet::enforces);
        store.settle(&taken, Settlement::Cancel);
        self.ask(checks, ask).await
    }

    /// Whether a request is denied only by rules whose balances the store may have lost.
    fn may_lack_balance(
        &self,
        durable: &DurableRules,
        checks: &[Check],
        decision: &Decision,
    ) -> bool {
        if decision.outcome() != Outcome::Deny {
            return false;
        }
        let (rules, now) = (self.store.rules(), self.now());
        let denying = checks.iter().zip(decision.verdicts());
        let mut denying = denying.filter(|(_, verdict)| {
            verdict.outcome() == Outcome::Deny && rules.enforces(verdict.rule())
        });
        denying
            .all(|(check, verdict)| !verdict.is_blocked() && durable.may_lack_balance(check, now))
    }

    /// The same where there may be something to do before the store is asked, or after it.
    fn decide_in_steps(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        if self.has_none || self.has_thresholds {
            return self.decide_counted(checks, ask);
        }
        self.ask_to_end(checks, ask)
    }

    /// The same without the limits of none, and with thresholds. Not inlined: its frame would be that of each request.
    #[inline(never)]
    fn decide_counted(self: &Arc<Self>, checks: &[Check], ask: Ask) -> Step<Decision> {
        let (rules, now) = (self.store.rules(), self.now());
        let blocked::Counted {
            mut checks,
            verdicts,
        } = match blocked::counted(rules, checks, now) {
            Ok(counted) => counted,
            Err(denied) => return Step::Ready(denied),
        };
        for index in 0..checks.len() {
            let check = checks[index];
            for threshold in rules.thresholds_of(usize::from(check.rule())) {
                // A rule set has fewer than 65 536 rules.
                checks.push(check.with_rule(threshold as u16).with_plan(0));
            }
        }
        let mut answer = match checks.is_empty() {
            true => Step::Ready(Decision::unlimited(now)),
            false => self.ask_to_end(&checks, ask),
        };
        if !verdicts.is_empty() {
            answer.then(move |decision| decision.insert(&verdicts));
        }
        answer
    }

    #[inline]
    fn ask(&self, checks: &[Check], ask: Ask) -> Step<Decision> {
        match ask {
            Ask::Acquire => self.store.acquire(checks),
            Ask::Peek => self.store.peek(checks),
            Ask::Within(_) if !self.has_waits => self.store.acquire(checks),
            Ask::Within(patience) => self.store.acquire_within(checks, patience),
            #[cfg(feature = "tokio")]
            Ask::By(deadline) => match self.store.acquire_within(checks, Duration::ZERO) {
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
    fn end(self: &Arc<Self>, answer: &mut Step<Decision>, checks: &[Check], ask: Ask) {
        match answer {
            _ if matches!(ask, Ask::Peek) => {}
            Step::Ready(decision) => self.conclude(checks, decision),
            Step::Wait(_) => {
                let (coordinator, checks) = (Arc::clone(self), Checks::from_slice(checks));
                answer.then(move |decision| coordinator.conclude(&checks, decision));
            }
        }
    }

    fn conclude(&self, checks: &[Check], decision: &mut Decision) {
        if let Some(fallback) = &self.fallback {
            fallback.resolve(&*self.store, checks, decision);
        }
        if let Some(durable) = &self.durable {
            durable.decided(checks, decision);
        }
        if let Some(owners) = &self.slot_owners {
            let checked = checks.iter().zip(decision.verdicts());
            let mut held = checked.filter_map(|(check, verdict)| {
                let number = verdict.slot_number().filter(|_| check.cost() > 0)?;
                Some(Hold::of_slots(*check, number, verdict.source()))
            });
            let Some(first) = held.next() else { return };
            let mut slots = SmallVec::from_buf([first]);
            held.for_each(|slot| slots.push(slot));
            let slots = SharedSlots::new(slots, owners.0.here());
            // A denied request, whose checks failed after a store had given slots, returns them at once.
            if decision.is_allowed() {
                decision.hold(slots);
            }
        }
    }
}

/// What the ledger has said of these checks, for as long as their request is asked again.
struct Bases<'a> {
    store: &'a dyn RuleStore,
    checks: SmallVec<[Check; 2]>,
}

impl Drop for Bases<'_> {
    fn drop(&mut self) {
        for check in &self.checks {
            self.store.set_base(check, None);
        }
    }
}

impl SlotOwners {
    fn new(store: &Arc<dyn RuleStore>, fallback: Option<&Arc<Fallback>>) -> Self {
        Self(PerStripe::new(|_| -> SlotOwner {
            let (store, fallback) = (Arc::clone(store), fallback.cloned());
            Arc::new(move |slots| release(&*store, fallback.as_deref(), slots))
        }))
    }
}

/// Returns slots to the store, or to the share that gave them.
fn release(store: &dyn RuleStore, fallback: Option<&Fallback>, slots: &[Hold]) {
    let is_local = |slot: &Hold| slot.source == Source::Fallback;
    let Some(fallback) = fallback.filter(|_| slots.iter().any(is_local)) else {
        return store.release(slots);
    };
    let (local, stored): (Vec<Hold>, Vec<Hold>) = slots.iter().copied().partition(is_local);
    fallback.local().release(&local);
    // Requests that wait for slots wait at the store, also while it fails.
    if let Some(waiters) = store.slot_waiters() {
        local.iter().for_each(|slot| waiters.wake(slot.check.key()));
    }
    if !stored.is_empty() {
        store.release(&stored);
    }
}

crate::debug_fields!(SlotOwners);
