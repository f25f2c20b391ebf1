//! A rule set on the store, as the futures of its answers share it.

use std::{
    any::Any,
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Check, Outcome, RuleSet, Tick, Verdict,
    observe::block_began,
    store::{ChargeFallback, Checks, Fingerprint, Hold, PaidHook, Settlement},
};
use tollgate_prefilter::{BoundRules, NoReply};

use crate::{
    observe::RuleCounts,
    script::{
        call::{Lapsing, RequestLayout, Settled},
        encoder::Encoder,
        reply::{BlockReply, NewKey, Reply},
    },
    store::{new_key_cap::NewKeyCap, shared::Shared},
};

/// Tells operators of a block that has begun with this check.
pub(super) fn report_block(rules: &RuleSet, check: &Check, reply: Option<BlockReply>) {
    if let Some(BlockReply::Blocked { block, began: true }) = reply
        && let Some(rule) = rules.rules().get(usize::from(check.rule()))
    {
        block_began(rule, check.key(), block);
    }
}

fn tell_paid(hook: &PaidHook, check: &Check, units: u64) {
    if units > 0 {
        hook.tell(check, units);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Arc<Encoder>,
    /// By rule: how many keys this process may make.
    pub(super) caps: Box<[Option<Arc<NewKeyCap>>]>,
    /// What this process decides locally.
    pub(super) local: Arc<BoundRules>,
    /// What is counted of decisions, by rule and plan.
    pub(super) counts: Box<[Box<[Arc<RuleCounts>]>]>,
    /// What a ledger knows of durable rules, and how many requests ask with it.
    pub(super) bases: Mutex<HashMap<(u16, Fingerprint), (u64, u32)>>,
    /// Who hears what balances pay.
    pub(super) paid: Arc<PaidHook>,
    /// Who takes charges that Redis certainly has not counted.
    pub(super) charge_fallback: Mutex<Option<ChargeFallback>>,
    /// When the task that sends looks next for what is due.
    pub(super) looks_at: Mutex<Instant>,
    /// Ends with the last store, limiter and layer.
    pub(super) _tasks: Option<Arc<dyn Any + Send + Sync>>,
}

impl Inner {
    /// The time by this process's clock.
    #[inline]
    pub(super) fn now(&self) -> Tick {
        self.shared.process_clock.now()
    }

    pub(super) fn set_charge_fallback(&self, charge: ChargeFallback) {
        *lock(&self.charge_fallback) = Some(charge);
    }

    /// Remembers what a ledger knows, until as many calls have taken it back.
    pub(super) fn set_base(&self, check: &Check, used: Option<u64>) {
        let mut bases = lock(&self.bases);
        match (bases.entry((check.rule(), check.key())), used) {
            (Entry::Occupied(mut entry), Some(used)) => {
                let (base, requests) = entry.get_mut();
                (*base, *requests) = ((*base).max(used), *requests + 1);
            }
            (Entry::Vacant(entry), Some(used)) => drop(entry.insert((used, 1))),
            (Entry::Occupied(mut entry), None) if entry.get().1 > 1 => entry.get_mut().1 -= 1,
            (Entry::Occupied(entry), None) => drop(entry.remove()),
            (Entry::Vacant(_), None) => {}
        }
    }

    /// What a ledger knows of these checks.
    pub(super) fn bases_of(&self, checks: &[Check]) -> SmallVec<[Option<u64>; 4]> {
        let bases = lock(&self.bases);
        if bases.is_empty() {
            return SmallVec::new();
        }
        let base = |check: &Check| Some(bases.get(&(check.rule(), check.key()))?.0);
        checks.iter().map(base).collect()
    }

    /// Sends settlements, whose replies no request waits for.
    pub(super) fn settle(&self, receipts: &[Hold], how: Settlement) {
        let checks: Checks = receipts.iter().map(|receipt| receipt.check).collect();
        for step in self.local.places.steps(&checks) {
            let receipts = step.iter().map(|index| receipts[usize::from(*index)]);
            let receipts: SmallVec<[Hold; 4]> = receipts.collect();
            self.settle_in_one_slot(&receipts, how);
        }
    }

    fn settle_in_one_slot(&self, receipts: &[Hold], how: Settlement) {
        let mut call = self.shared.new_call();
        let counts = |rule: u16| self.counts.get(usize::from(rule))?.first();
        let Some(settled) = call.settle_all(&self.encoder, receipts, how) else {
            if let Settlement::Charge(units) = how {
                let rules = receipts.iter().map(|receipt| receipt.check.rule());
                rules.filter_map(counts).for_each(|it| it.lapse(units));
            }
            return self.shared.observer.settlement_lost();
        };
        if call.is_empty() {
            return;
        }
        let rules = Arc::clone(&self.rules);
        let mut counted = receipts.iter().filter(|it| it.counts);
        let blocks: SmallVec<[(u16, Check); 1]> = (settled.blocks.iter())
            .filter_map(|(rule, place)| {
                let receipt = counted.find(|receipt| receipt.check.rule() == *rule)?;
                Some((*place, receipt.check))
            })
            .collect();
        let paid = settled.paid.clone();
        let hook = Arc::clone(&self.paid);
        let lapsing = settled.lapsing.iter();
        let lapsing = lapsing.filter_map(|it| Some((Arc::clone(counts(it.check.rule())?), *it)));
        let lapsing: SmallVec<[(Arc<RuleCounts>, Lapsing); 1]> = lapsing.collect();
        let fallback = match lapsing.is_empty() {
            true => None,
            false => lock(&self.charge_fallback).clone(),
        };
        let is_told = !(lapsing.is_empty() && blocks.is_empty() && paid.is_empty());
        self.shared.settle(&call, is_told, move |reply| {
            for (counts, it) in &lapsing {
                counts.lapse(match (&reply, &fallback) {
                    (Ok(reply), _) => reply.lapsed_units(it.place).unwrap_or(it.at_risk),
                    (Err(NoReply::NotRun), Some(charge)) if it.at_risk > 0 => {
                        charge(&it.check, it.at_risk)
                    }
                    (Err(_), _) => it.at_risk,
                });
            }
            if let Ok(reply) = &reply {
                for (place, check) in paid {
                    tell_paid(&hook, &check, reply.paid_units(place));
                }
                for (place, check) in blocks {
                    report_block(&rules, &check, reply.block(place));
                }
            }
        });
    }

    /// Counts what settlements of a reservation let lapse, and tells operators of blocks that they began.
    pub(super) fn on_settled(&self, settled: &Settled, holds: &[Hold], reply: &Reply) {
        for it in &settled.lapsing {
            let lapsed = reply.lapsed_units(it.place).unwrap_or(it.at_risk);
            if let Some(counts) = self.counts_of(usize::from(it.check.rule()), 0) {
                counts.lapse(lapsed);
            }
        }
        for (place, check) in &settled.paid {
            tell_paid(&self.paid, check, reply.paid_units(*place));
        }
        for (rule, place) in &settled.blocks {
            let hold = holds.iter().find(|hold| hold.check.rule() == *rule);
            if let Some(hold) = hold {
                report_block(&self.rules, &hold.check, reply.block(*place));
            }
        }
    }

    /// Counts checks that were decided, by the source of the decision.
    #[inline]
    pub(super) fn count_decided(&self, verdicts: &[Verdict]) {
        for verdict in verdicts {
            if !matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny) {
                continue;
            }
            if let Some(counts) = self.counts_of(verdict.rule(), verdict.plan()) {
                counts.decided(verdict.source());
            }
        }
    }

    fn counts_of(&self, rule: usize, plan: usize) -> Option<&RuleCounts> {
        let plans = self.counts.get(rule)?;
        plans.get(plan).or(plans.first()).map(|counts| &**counts)
    }

    pub(super) fn cap(&self, rule: u16) -> Option<&NewKeyCap> {
        self.caps.get(usize::from(rule))?.as_deref()
    }

    /// Counts the keys that a request has created, and gives back what the caps have allowed in vain.
    pub(super) fn note_new_keys(&self, reply: &Reply, layout: &RequestLayout, checks: &[Check]) {
        if cfg!(feature = "metrics") {
            for index in reply.created(layout, checks, &self.encoder, &self.rules) {
                self.count_new_key(&checks[index]);
            }
        }
        for check in reply.new_keys(layout) {
            if check.new_key == NewKey::Refused
                && let Some(counts) = self.counts_of(usize::from(check.rule), 0)
            {
                counts.new_key_refused();
            }
            if check.may_make
                && check.new_key != NewKey::Made
                && let Some(cap) = self.cap(check.rule)
            {
                cap.give_back();
            }
        }
    }

    /// Gives back what the caps have allowed to a request that did not run.
    pub(super) fn give_back_permits(&self, layout: &RequestLayout) {
        for check in layout.capped.iter().filter(|check| check.may_make) {
            if let Some(cap) = self.cap(check.rule) {
                cap.give_back();
            }
        }
    }

    /// Counts the key that a report of local usage has created, if `left` is what it leaves of a fresh state.
    pub(super) fn note_reported(&self, report: &Check, left: u64) {
        let rule = &self.rules.rules()[usize::from(report.rule())];
        let limit = rule.quota_of(usize::from(report.plan())).limit();
        // Usage beyond the limit leaves nothing either.
        if cfg!(feature = "metrics") && left > 0 && left.checked_add(report.cost()) == Some(limit) {
            self.count_new_key(report);
        }
    }

    fn count_new_key(&self, check: &Check) {
        let (rule, plan) = (usize::from(check.rule()), usize::from(check.plan()));
        if let Some(counts) = self.counts_of(rule, plan) {
            counts.new_key();
        }
    }
}
