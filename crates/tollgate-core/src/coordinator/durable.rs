//! The part of a request's way that durable rules have: what a key has used before the store knew it comes from a ledger.
//!
//! | the store | when the ledger is asked | what then |
//! | --- | --- | --- |
//! | in memory, which gives back what it takes | after its answer, if that is about a key that is new to it | what was taken goes back, and the next row follows |
//! | in memory, else: with slots, waits, credits, thresholds or limits of none | before it is asked, for each key that is new to it | it begins with what was used, and decides |
//! | far | after its answer, if it has forgotten a key | it is asked once more, with what was used |
//! | any, with credits | after a denial, if it may have lost balances | they are restored, and it is asked once more |
//!
//! Without a ledger's answer, a rule that denies what cannot be written denies; the others begin with nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    blocked,
    check::{Check, Checks},
    coordinator::{Ask, Coordinator},
    decision::{Decision, Outcome, Verdict},
    held_slots::HeldSlots,
    hold::{Holds, Settlement},
    journal::{DurableRules, UNKNOWN},
    remote::fallback::begin_with,
    step::{Pending, Step},
    store::rule_store::RuleStore,
    ticket::{holds, holds_and_places},
};

impl Coordinator {
    /// Decides where a rule is durable.
    pub(super) fn decide_durable(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
        ask: Ask,
    ) -> Step<Decision> {
        if durable.denies(checks) {
            return Step::Ready(Check::deny_mistake(checks));
        }
        match ask {
            Ask::Acquire if self.way.asks_before_ledger => self.ask_before_ledger(durable, checks),
            _ if self.store.can_fail() => self.decide_counted(checks, ask),
            _ => self.decide_with_ledger(durable, checks, ask),
        }
    }

    /// Decides by a store in memory, which mostly knows what was used before.
    fn ask_before_ledger(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
    ) -> Step<Decision> {
        let mut answer = self.store.acquire(checks);
        match &mut answer {
            Step::Ready(decision) if durable.is_added(checks, decision) => {}
            answer => self.conclude_in_memory(durable, checks, answer),
        }
        answer
    }

    /// What comes after its answer about a key that may be new to it. Not inlined: its frame would be that of each request.
    #[inline(never)]
    fn conclude_in_memory(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
        answer: &mut Step<Decision>,
    ) {
        match answer {
            Step::Ready(decision) if durable.unknown(checks, decision.at()).is_empty() => {
                self.conclude(checks, decision);
            }
            Step::Ready(decision) => {
                let taken = holds(&*self.store, checks, decision, |_, _| true);
                self.store.settle(&taken, Settlement::Cancel);
                *answer = self.decide_with_ledger(durable, checks, Ask::Acquire);
            }
            Step::Wait(_) => self.conclude_with_ledger(durable, checks, answer, Ask::Acquire),
        }
    }

    /// Decides once a store in memory has what was used of keys that are new to it.
    fn decide_with_ledger(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
        ask: Ask,
    ) -> Step<Decision> {
        let now = self.now();
        let unknown = match self.way.has_none {
            true => durable.unknown(&blocked::counted(&self.rule_set, checks, now).0, now),
            false => durable.unknown(checks, now),
        };
        if unknown.is_empty() {
            return self.decide_counted(checks, ask);
        }
        let (coordinator, durable) = (Arc::clone(self), Arc::clone(durable));
        let checks = Checks::from_slice(checks);
        Step::Wait(Pending::new(async move {
            let within = coordinator.store.answers_within();
            for (check, end) in unknown {
                let store = &*coordinator.store;
                match durable.base(&check, now, within, None).await {
                    Some(base) => {
                        durable.begin(|| begin_with(store, &check, base.used));
                        // Without room it is asked for again.
                        let _ = durable.restore_balance(store, &check, &base, now).await;
                        durable.set_known(&check, end);
                    }
                    None if durable.denies_unknown(&check) => return Check::deny_mistake(&checks),
                    None => {}
                }
            }
            coordinator.decide_counted(&checks, ask).await
        }))
    }

    /// What comes after an answer of a store that may have forgotten something.
    pub(super) fn conclude_with_ledger(
        self: &Arc<Self>,
        durable: &Arc<DurableRules>,
        checks: &[Check],
        answer: &mut Step<Decision>,
        ask: Ask,
    ) {
        let (coordinator, durable) = (Arc::clone(self), Arc::clone(durable));
        let checks = Checks::from_slice(checks);
        let asked = std::mem::replace(answer, Step::Ready(Decision::unlimited(0)));
        *answer = Step::Wait(Pending::new(async move {
            let mut decision = asked.await;
            coordinator.hold_slots(&checks, &mut decision);
            let lacks_balance = coordinator.may_lack_balance(&durable, &checks, &decision);
            if lacks_balance || decision.verdicts().iter().any(Verdict::is_forgotten) {
                // Its future would make this one larger, and it is rare.
                let again = coordinator.ask_again(&durable, &checks, decision, ask, lacks_balance);
                decision = Box::pin(again).await;
            }
            coordinator.conclude_held(&checks, &mut decision);
            decision
        }));
    }

    /// Asks the store once more, with what the ledger knows of what it has forgotten: what was used, or a balance that would let the
    /// request pass.
    async fn ask_again(
        &self,
        durable: &DurableRules,
        checks: &[Check],
        mut decision: Decision,
        ask: Ask,
        lacks_balance: bool,
    ) -> Decision {
        let is_denied = decision.outcome() == Outcome::Deny;
        if !lacks_balance && is_denied {
            return decision;
        }
        let store = &*self.store;
        // Others have taken their units. They go back also if nobody waits for the ledger any more.
        let mut taken = TakenBefore {
            store,
            units: match is_denied {
                true => Holds::new(),
                false => holds_and_places(store, checks, &decision),
            },
            slots: decision.take_slots(),
        };
        let Some(bases) = self.bases(durable, checks, &decision, lacks_balance).await else {
            taken.units.clear();
            decision.set_slots(taken.slots.take());
            return decision;
        };
        drop(taken);
        let mut decision = self.ask(checks, ask, &bases).await;
        self.hold_slots(checks, &mut decision);
        decision
    }

    /// What the ledger has of what the store has forgotten. `None`: it does not know all of it, or no balance that would help.
    async fn bases(
        &self,
        durable: &DurableRules,
        checks: &[Check],
        decision: &Decision,
        lacks_balance: bool,
    ) -> Option<SmallVec<[(Check, u64); 2]>> {
        let (store, now) = (&*self.store, self.now());
        let (mut bases, mut is_restored) = (SmallVec::new(), false);
        for (check, verdict) in checks.iter().zip(decision.verdicts()) {
            let lacks_it = lacks_balance && verdict.outcome() == Outcome::Deny;
            if !verdict.is_forgotten() && !lacks_it {
                continue;
            }
            // Without an answer it stays failed, and its rule says what then; or denied.
            let within = store.answers_within();
            durable.set_balance_known(check, now.saturating_add(UNKNOWN));
            let base = durable.base(check, now, within, None).await?;
            let restored = durable.restore_balance(store, check, &base, now).await;
            is_restored |= restored.unwrap_or(false);
            bases.push((*check, base.used));
        }
        (is_restored || !lacks_balance).then_some(bases)
    }

    /// Whether a request is denied only by rules whose balances the store may have lost.
    pub(super) fn may_lack_balance(
        &self,
        durable: &DurableRules,
        checks: &[Check],
        decision: &Decision,
    ) -> bool {
        if decision.outcome() != Outcome::Deny {
            return false;
        }
        let (rules, now) = (&self.rule_set, self.now());
        checks
            .iter()
            .zip(decision.verdicts())
            .all(|(check, verdict)| {
                let denies = verdict.outcome() == Outcome::Deny && rules.enforces(verdict.rule());
                !denies || !verdict.is_blocked() && durable.may_lack_balance(check, now)
            })
    }
}

/// What the first answer of a store has taken. Dropped, it goes back.
struct TakenBefore<'a> {
    store: &'a dyn RuleStore,
    units: Holds,
    slots: Option<HeldSlots>,
}

impl Drop for TakenBefore<'_> {
    fn drop(&mut self) {
        if !self.units.is_empty() {
            self.store.settle(&self.units, Settlement::Cancel);
        }
    }
}
