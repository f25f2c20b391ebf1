//! What is counted in this process while the store fails.

use std::{num::NonZeroU32, sync::Arc};

use smallvec::SmallVec;

use crate::{
    algorithm::{Retry, Taken},
    check::{Check, Checks},
    check_policy::OnStoreError,
    decision::{Decision, Outcome, Verdict},
    error::RuleError,
    held_slots::HeldSlots,
    hold::{Hold, Settlement, Source},
    memory::MemoryStore,
    quota::Quota,
    quota_conflict::debt_conflict,
    remote::last_seen::LastSeen,
    rule::Rule,
    rule_set::RuleSet,
    store::{
        instance_count::InstanceCount,
        rule_store::{RuleStore, Store},
    },
    sync::{Mutex, lock},
    ticket::holds_and_places,
    time::Clock,
    variable_quota::Part,
};

/// The most bytes of a rule's states while its store fails.
pub(crate) const BYTES: usize = 16 << 20;

/// The rules' answers to a store failure, with the local shares and caps in bounded memory.
#[derive(Debug)]
pub(crate) struct Fallback {
    store: MemoryStore,
    shares: Mutex<Shares>,
    last_seen: LastSeen,
}

/// The shares and caps, and for how many instances they are cut.
#[derive(Debug)]
struct Shares {
    instances: InstanceCount,
    store: Arc<dyn RuleStore>,
}

impl Fallback {
    /// The local shares and caps of these rules, each of at most 16 MiB. They take the place of those of `before`: what was counted
    /// under their names stays counted, for as many instances, by the same clock.
    ///
    /// # Errors
    ///
    /// A quota whose share cannot be counted.
    pub(crate) fn new(
        rules: &Arc<RuleSet>,
        before: Option<&Self>,
        instances: NonZeroU32,
        clock: Clock,
    ) -> Result<Self, RuleError> {
        let (store, instances) = match before {
            Some(it) => (it.store.clone(), lock(&it.shares).instances.clone()),
            None => {
                let store = MemoryStore::builder().bytes_per_rule(BYTES).clock(clock);
                (store.build(), InstanceCount::new(instances))
            }
        };
        let local = rules.given().iter().map(|rule| {
            let of_least = local_rule(rule, instances.least(), None);
            local_rule(rule, instances.counted(), Some(&of_least))
        });
        // State is found by the rules' names.
        let local = store.bind(Arc::new(RuleSet::new(local)?))?;
        Ok(Self {
            shares: Mutex::new(Shares {
                instances,
                store: local,
            }),
            store,
            last_seen: LastSeen::new(rules, before.map(|it| &it.last_seen)),
        })
    }

    /// The clock of what is counted here.
    pub(crate) fn clock(&self) -> &Clock {
        self.store.clock()
    }

    /// The shares and caps in memory.
    pub(crate) fn local(&self) -> Arc<dyn RuleStore> {
        Arc::clone(&lock(&self.shares).store)
    }

    /// What is counted here of a key starts anew.
    pub(crate) fn reset(&self, check: &Check) {
        self.last_seen.forget(check);
        // It is in memory, and answers at once.
        let _ = self.local().reset(&[*check]).ready();
    }

    /// The shares for as many instances as `store` knows of, cut anew if their number has changed.
    fn shares(&self, store: &dyn RuleStore) -> (Arc<dyn RuleStore>, NonZeroU32) {
        let (known, now) = (store.instances(), self.clock().now());
        let mut shares = lock(&self.shares);
        if shares.instances.observe(known, now) {
            let instances = shares.instances.counted();
            let before = shares.store.rules().rules().iter();
            let local = store
                .rules()
                .given()
                .iter()
                .zip(before)
                .map(|(rule, before)| local_rule(rule, instances, Some(before)));
            // State is found by the rules' names. What cannot be bound counts on as it was.
            if let Ok(anew) = RuleSet::new(local).and_then(|rules| self.store.bind(Arc::new(rules)))
            {
                shares.store = anew;
            }
        }
        (Arc::clone(&shares.store), shares.instances.counted())
    }

    /// Decides what the store could not, by each rule's answer to a store failure: all local shares in one step.
    ///
    /// A rule that denied by counting wins. If the whole is denied, what the store or a lease had taken is cancelled.
    ///
    /// What the store did decide is remembered, for the share to begin with when the store fails.
    pub(crate) fn resolve(&self, store: &dyn RuleStore, checks: &[Check], decision: &mut Decision) {
        let is_local = |verdict: &Verdict| {
            verdict.source() != Source::Store && verdict.outcome() != Outcome::Failed
        };
        if decision.outcome() != Outcome::Failed && decision.verdicts().iter().all(is_local) {
            return;
        }
        let verdicts = decision.verdicts();
        self.last_seen.note(checks, verdicts, self.clock());
        let failed = |verdict: &Verdict| verdict.outcome() == Outcome::Failed;
        if decision.outcome() == Outcome::Failed || verdicts.iter().any(failed) {
            self.resolve_failed(store, checks, decision);
        }
    }

    fn resolve_failed(&self, store: &dyn RuleStore, checks: &[Check], decision: &mut Decision) {
        let rules = store.rules();
        let enforced = |verdict: &Verdict| rules.enforces(verdict.rule());
        if decision.outcome() == Outcome::Deny {
            // A rule that denied by counting wins: the others are not consulted, and its `retry` stays.
            not_decided_if_failed(decision, rules);
            return;
        }
        let taken = holds_and_places(store, checks, decision);
        let mut local = Checks::new();
        let mut indices: SmallVec<[usize; 4]> = SmallVec::new();
        for (index, check) in checks.iter().enumerate() {
            let Some(verdict) = decision.verdicts_mut().get_mut(index) else {
                continue;
            };
            if verdict.outcome() != Outcome::Failed || !enforced(verdict) {
                continue;
            }
            let rule = rules.rules().get(verdict.rule());
            match rule.map(|rule| rule.answer_to_failure(check)) {
                Some(OnStoreError::Allow | OnStoreError::Degraded) => verdict.pass_degraded(),
                Some(OnStoreError::Deny) => verdict.deny_for_failure(),
                Some(OnStoreError::LocalShare | OnStoreError::Cap(_)) => {
                    local.push(*check);
                    indices.push(index);
                }
                // A check of no rule limits nothing.
                None => *verdict = verdict.not_decided(),
            }
        }
        decision.conclude(enforced);
        let mut slots = None;
        if decision.outcome() == Outcome::Deny {
            not_decided_if_failed(decision, rules);
        } else if let Some(answer) = self.acquire_locally(store, &local) {
            for (index, verdict) in indices.iter().zip(answer.verdicts()) {
                let check = &checks[*index];
                let same =
                    |other: &&Check| (other.rule(), other.key()) == (check.rule(), check.key());
                let requested = local.iter().filter(same);
                let requested =
                    requested.fold(0_u64, |sum, other| sum.saturating_add(other.cost()));
                let mut verdict = verdict.from_source(Source::Fallback);
                if verdict.outcome() == Outcome::Deny
                    && verdict.retry() == Retry::Never
                    && requested
                        <= rules.rules()[verdict.rule()]
                            .quota_under(verdict.plan())
                            .limit()
                {
                    // It is the share that never lets it pass; the quota does.
                    verdict.deny_for_failure();
                }
                decision.verdicts_mut()[*index] = verdict;
            }
            slots = answer.take_slots();
        }
        decision.conclude(enforced);
        if decision.is_allowed() {
            decision.set_slots(HeldSlots::both(decision.take_slots(), slots));
        } else {
            decision.set_slots(None);
            if !taken.is_empty() {
                store.settle(&taken, Settlement::Cancel);
            }
        }
        decision.set_time_if_none(|| self.clock().now());
    }

    fn acquire_locally(&self, store: &dyn RuleStore, checks: &[Check]) -> Option<Decision> {
        if checks.is_empty() {
            return None;
        }
        let (shares, instances) = self.shares(store);
        for check in checks {
            self.begin(&*shares, instances, check);
        }
        shares.acquire(checks).ready()
    }

    /// Lets the share of a check begin with its part of what the store last said.
    fn begin(&self, shares: &dyn RuleStore, instances: NonZeroU32, check: &Check) {
        // Only of rules that count against a share is anything remembered.
        self.last_seen.claim(check, self.clock().now(), |used| {
            let rule = shares.rules().rule_of(check);
            let limit = rule.and_then(|rule| rule.limit_under(usize::from(check.plan())));
            let part = used.div_ceil(instances.get().into());
            begin_with(shares, check, part.min(limit.unwrap_or(0)));
        });
    }

    /// Charges what `store` was not told to the share or the cap of its rule. Returns the units that lapse.
    pub(crate) fn charge(&self, store: &dyn RuleStore, check: &Check, units: u64) -> u64 {
        let rule = store.rules().rule_of(check);
        let Some(OnStoreError::LocalShare | OnStoreError::Cap(_)) =
            rule.map(|rule| rule.answer_to_failure(check))
        else {
            return units;
        };
        let (shares, instances) = self.shares(store);
        self.begin(&*shares, instances, check);
        let Some((verdict, share)) = look(&*shares, check) else {
            return units;
        };
        let room = (verdict.remaining() + share.debt_of()).saturating_sub(verdict.debt());
        shares.settle(&[charged(check)], Settlement::Charge(units));
        units.saturating_sub(room)
    }
}

/// Takes what the state of `check` in this process lacks to `used` units, as far as they are there. If more was taken, nothing is given
/// back.
pub(crate) fn begin_with(shares: &dyn RuleStore, check: &Check, used: u64) {
    let Some((verdict, rule)) = look(shares, check) else {
        return;
    };
    let limit = rule.quota_under(verdict.plan()).limit();
    let counted = limit.saturating_sub(verdict.remaining()) + verdict.debt();
    let lacks = used.saturating_sub(counted);
    if lacks > 0 {
        shares.settle(
            &[charged(&check.with_cost(lacks))],
            Settlement::Charge(lacks),
        );
    }
}

/// What is left of the state of `check` in this process, and its rule.
fn look<'a>(shares: &'a dyn RuleStore, check: &Check) -> Option<(Verdict, &'a Rule)> {
    let looked = shares.peek(&[check.with_cost(0)]).ready()?;
    let verdict = *looked.verdicts().first().filter(|it| it.has_numbers())?;
    Some((verdict, shares.rules().rules().get(verdict.rule())?))
}

/// A charge does not look at when units were taken.
fn charged(check: &Check) -> Hold {
    Hold::of_store(*check, Taken::new(0, 0))
}

/// What a rule counts against in this process while its store fails. A quota whose share cannot be counted keeps the one
/// it had `before`.
fn local_rule(rule: &Rule, instances: NonZeroU32, before: Option<&Rule>) -> Rule {
    let part = match rule.store_error_answer() {
        OnStoreError::Cap(cap) => Part::Cap(cap),
        _ => Part::Share(instances),
    };
    let share = |(plan, quota): (usize, &Quota)| match rule.store_error_answer() {
        OnStoreError::LocalShare => {
            let share = quota.share(instances.get());
            match before {
                Some(before) if share.validate().is_err() => *before.quota_of(plan),
                _ => share,
            }
        }
        OnStoreError::Cap(cap) => cap,
        // These count nothing.
        OnStoreError::Allow | OnStoreError::Deny | OnStoreError::Degraded => Quota::unlimited(),
    };
    let mut shares = rule.all_quotas().enumerate().map(share);
    let own = shares.next().unwrap_or_else(Quota::unlimited);
    let plain = Rule::new(Arc::clone(rule.shared_name()), own).with_quotas_of(rule, part);
    let local = rule
        .plan_names()
        .zip(shares)
        .fold(plain, |local, (name, share)| local.plan(name, share));
    // In full for each process, if that is paid back in time: a part of it might not hold what one request costs more than it took.
    let part = rule.debt_of() / u64::from(instances.get());
    let can_owe = |debt: &u64| {
        let owes = |quota: &Quota| quota.has_state() && debt_conflict(quota, *debt).is_none();
        *debt > 0 && local.all_quotas().all(owes)
    };
    match [rule.debt_of(), part].into_iter().find(can_owe) {
        Some(debt) => local.debt(debt),
        None => local,
    }
}

fn not_decided_if_failed(decision: &mut Decision, rules: &RuleSet) {
    for verdict in decision.verdicts_mut() {
        if verdict.outcome() == Outcome::Failed && rules.enforces(verdict.rule()) {
            *verdict = verdict.not_decided();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{key::Fingerprint, quota::MAX_PERIOD};

    #[test]
    fn the_keys_of_an_outage_stay_within_the_bound_of_the_fallback() {
        let set = RuleSet::new([Rule::new("rule", Quota::gcra(1, MAX_PERIOD))]);
        let rules = Arc::new(set.expect("a valid rule"));
        let fallback = Fallback::new(&rules, None, NonZeroU32::MIN, Clock::system());
        let local = fallback.expect("valid shares").local();
        for n in 1..=600_000_u64 {
            let spread = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let key = u128::from(spread) << 64 | u128::from(spread.rotate_left(29));
            let decision = local.acquire(&[Check::new(0, Fingerprint::from_bits(key), 1)]);
            assert!(decision.ready().expect("it is in memory").is_allowed());
            if n % 50_000 == 0 {
                let usage = local.usage(0).expect("memory knows");
                assert!(usage.bytes <= BYTES as u64, "{usage:?}");
            }
        }
        assert!(local.usage(0).is_some_and(|usage| usage.evicted_live > 0));
    }
}
