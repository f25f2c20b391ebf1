//! The sources of this process, for one check: what it may deny, reserve and release without the store.

use tollgate_core::{
    Check, Outcome, Retry, Source, Tick, Verdict,
    algorithm::Assessment,
    store::{Fingerprint, Hold},
};

use crate::{
    denials::KeyBlock,
    effective::Effective,
    engine::{
        bound_rules::BoundRules,
        counts::EngineUsage,
        engine::Engine,
        entry::{Entry, Lease, Usage},
        limit::Limit,
        wait::wait,
    },
    slots::state_slots::StateSlots,
    table::key_table::Miss,
};

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
            let running = entry.states().iter().map(StateSlots::running);
            usage.slots_in_use += running.sum::<u64>();
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

impl BoundRules {
    /// Does something with the lease of a check's key.
    pub(crate) fn lease<R>(&self, check: &Check, act: impl FnOnce(&mut Lease) -> R) -> Option<R> {
        let limit = self.limit(check).filter(|it| it.lease_terms().is_some())?;
        let act = |entry: &mut Entry| entry.lease(limit).map(act);
        self.engine.with(limit, check.key(), act)
    }

    /// Does something with the local usage of a check's key.
    pub(crate) fn usage<R>(&self, check: &Check, act: impl FnOnce(&mut Usage) -> R) -> Option<R> {
        let limit = self.limit(check).filter(|it| it.report_terms().is_some())?;
        let act = |entry: &mut Entry| entry.usage(limit).map(act);
        self.engine.with(limit, check.key(), act)
    }

    /// Does something with what is known of the block of a check's key, if its rule blocks keys.
    pub(crate) fn block<R>(
        &self,
        check: &Check,
        act: impl FnOnce(&mut KeyBlock) -> R,
    ) -> Option<R> {
        let limit = self.limit(check).filter(|it| it.block.is_some())?;
        let act = |entry: &mut Entry| entry.block.as_deref_mut().map(act);
        self.engine.keys.with(limit.at(check.key()), act)?
    }

    /// Reserves what a check costs of what this process may spend.
    #[inline]
    pub(crate) fn reserve(&self, check: &Check, now: Tick) -> Result<Verdict, Miss> {
        let none = Miss { is_new: true };
        let limit = self.limit(check).filter(|_| !check.policy().is_exact());
        let (limit, keys, cost) = (limit.ok_or(none)?, &self.engine.keys, check.cost());
        let at = limit.at(check.key());
        let (mut answer, source) = match &limit.effective {
            Effective::Leased(_) => {
                let answer = keys.look(at, |entry| {
                    let lease = entry.lease(limit)?;
                    let is_spent = lease.holder.spend(now, cost);
                    is_spent.then(|| self.left_of(limit, lease, now))
                })?;
                (answer, Source::Lease)
            }
            Effective::Eventual(terms) => {
                let answer = keys.look(at, |entry| {
                    let answer = entry.usage(limit)?.spend(now, cost, terms)?;
                    entry.list(limit, check.key());
                    Some(answer)
                })?;
                // A cached denial says what was left, and that is less now.
                keys.unlearn(at);
                (answer, Source::Local)
            }
            Effective::Exact(_) => return Err(none),
        };
        if answer.remaining < cost {
            let due = self.due_after(check, now);
            answer.retry = wait(
                limit,
                self.engine.store_now(now),
                (cost, answer.remaining),
                due,
            );
        }
        Ok(Verdict::new(check.rule(), check.plan(), answer, source))
    }

    /// What is left of a lease of which was spent.
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

    /// Denies a check of a request that waits for `patience` µs at most, if an earlier denial says so and this process may count it.
    #[inline]
    pub(crate) fn deny(&self, check: &Check, now: Tick, patience: Tick) -> Option<Verdict> {
        let denied = self.known_denial(check, now, patience)?;
        self.may_deny(check, &denied, true).then_some(denied)
    }

    /// The denial of a check by an earlier one, which is not counted yet.
    #[inline]
    pub(crate) fn known_denial(&self, check: &Check, now: Tick, patience: Tick) -> Option<Verdict> {
        let (limit, keys) = (self.limit(check)?, &self.engine.keys);
        if keys.keeps_denials()
            && let Some(denied) = self.block(check, |it| it.deny(check, now)).flatten()
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
        if let Effective::Leased(terms) = &limit.effective
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

    /// Whether this process may deny a check by itself whose verdict is of an earlier denial: a rule that blocks keys then `counts` the
    /// denial, unless it begins a block.
    #[inline]
    pub(crate) fn may_deny(&self, check: &Check, verdict: &Verdict, counts: bool) -> bool {
        let block = self.limit(check).and_then(|limit| limit.block.as_ref());
        let Some(block) = block.filter(|it| !it.counts_settled()) else {
            return true;
        };
        if verdict.is_blocked() || verdict.retry() == Retry::Never {
            return true;
        }
        // Nothing is known of a key that had to go.
        let may = self.block(check, |it| it.may_deny(block.denials(), counts));
        may.unwrap_or(false)
    }

    /// The store's verdict, with what this process may spend of the key, and less what it has counted and not sent.
    pub(crate) fn adjust(&self, check: &Check, verdict: Verdict, now: Tick) -> Verdict {
        let is_decided = matches!(verdict.outcome(), Outcome::Allow | Outcome::Deny);
        let leased = self.leased(check, now);
        let unsent = self.usage(check, |usage| usage.counted.unsent());
        let unsent = unsent.unwrap_or(0);
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

    /// Releases units that were reserved at `spent`: they go back to where they came from. Returns those that have to go back to the
    /// store.
    pub(crate) fn release(&self, hold: &Hold, now: Tick, spent: Tick, units: u64) -> u64 {
        let (check, taken) = (&hold.check, hold.taken);
        let Some(limit) = self.limit(check) else {
            return 0;
        };
        match (hold.source, limit.windows, limit.report_terms()) {
            (Source::Lease, None, _) => {
                self.lease(check, |it| it.holder.give_back(now, spent, units));
                0
            }
            (Source::Lease, Some(windows), _) => match windows.that_counts_until(taken.fresh_at) {
                Some(window) if taken.fresh_at > taken.at => {
                    let back = self.lease(check, |it| {
                        (it.holder).give_back_to(window, (now, spent), units)
                    });
                    back.unwrap_or(units)
                }
                // They do not weigh any more.
                _ => 0,
            },
            (Source::Local, _, Some(terms)) => {
                let back = self.usage(check, |usage| {
                    // What was counted before the last report was in it, and only the store knows whether it still weighs. What was
                    // counted at the same time may have been in it or not: other unreported units take its place.
                    if spent < usage.reported_at {
                        return 0;
                    }
                    let back = usage.counted.give_back(units);
                    usage.fresh_at = usage.fresh_at.saturating_sub(terms.puts_off(back));
                    back
                });
                units - back.unwrap_or(0)
            }
            _ => units,
        }
    }
}
