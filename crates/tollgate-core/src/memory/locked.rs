//! A locked shard: the step that decides about one key.

use crate::{
    algorithm::{Algorithm, Assessment, DenyBound, GcraState, Instant},
    block::{ActiveBlock, Block},
    check::Check,
    held_slots::HeldSlots,
    hold::{Hold, Settlement},
    key::Fingerprint,
    memory::{
        cells::Entry,
        plan::Plan,
        shard::Shard,
        table::{Place, Table},
    },
    store::seq_cells::SeqLine,
    sync::{MutexGuard, lock_briefly},
    time::Tick,
};

/// What became of a denial or a settled request that was counted towards a block: to be reported without the lock.
pub(super) struct Counted {
    pub(super) key: Fingerprint,
    pub(super) began: Option<ActiveBlock>,
    /// Blocks in force that its shard has evicted so far, if it was some just now.
    pub(super) evicted: Option<u64>,
}

/// A locked shard of a table.
pub(super) struct Locked<'a, A: Algorithm> {
    table: &'a Table<A>,
    place: &'a Place<A>,
    pub(super) shard: MutexGuard<'a, Shard<A>>,
}

impl<'a, A: Algorithm> Locked<'a, A> {
    #[inline]
    pub(super) fn new(table: &'a Table<A>, place: &'a Place<A>) -> Self {
        Self {
            table,
            place,
            shard: lock_briefly(&place.shard),
        }
    }

    fn denials(&self, key: Fingerprint) -> &'a SeqLine<2> {
        self.place.denials(key)
    }

    /// After a denial of a blocked key: the block ends as soon as it can, and the deny cache learns of it.
    pub(super) fn blocked(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        block: &Block,
        active: ActiveBlock,
        now: Tick,
    ) {
        if self.shard.repair_block(key, block, now) {
            self.denials(key).clear();
        }
        self.remember_block(key, plan, active, now);
    }

    /// Counts a denial or a settled request of `key`, and says which block begins with it.
    pub(super) fn count_for_block(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        block: &Block,
        now: Tick,
    ) -> Counted {
        let before = self.shard.evicted_blocks();
        let began = self.shard.count_for_block(key, block, now);
        if let Some(began) = began {
            self.denials(key).clear();
            self.remember_block(key, plan, began, now);
        }
        let evicted = self.shard.evicted_blocks();
        Counted {
            key,
            began,
            evicted: (evicted > before).then_some(evicted),
        }
    }

    /// Denials without the lock until the block ends, if all units are back by then: otherwise the quota says how long they last.
    fn remember_block(&self, key: Fingerprint, plan: &Plan<A>, active: ActiveBlock, now: Tick) {
        let until = now.saturating_add(active.micros);
        let is_fresh = |entry| {
            self.shard.was_written_under(plan, entry) && self.shard.fresh_at(entry) <= until
        };
        if self.shard.find(key).is_none_or(is_fresh) {
            let words = [until, u64::from(active.level)];
            self.denials(key).insert(key, !plan.id, words);
        }
    }

    /// Decides about `cost` units of `key`.
    pub(super) fn assess(
        &self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Assessment {
        match self.shard.find(key) {
            Some(entry) if self.shard.was_written_under(plan, entry) => {
                plan.quota.assess(&entry.state, now, cost)
            }
            Some(entry) => self.assess_carried(entry, plan, now, cost),
            None => plan.quota.assess(&A::State::default(), now, cost),
        }
    }

    /// Decides about a state of another quota. Where a denial leaves it so, that quota says when the units fit: when it
    /// has room for what its limit is larger, too.
    fn assess_carried(
        &self,
        entry: &Entry<A::State>,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Assessment {
        let Some(writer) = self.shard.writer(entry) else {
            return plan.quota.assess(&A::State::default(), now, cost);
        };
        if plan.is_threshold && writer.quota.waits() {
            let writer = &writer.quota;
            return plan.quota.observe(writer, &entry.state, now, cost);
        }
        let carried = plan.quota.convert(&writer.quota, &entry.state, now);
        let answer = plan.quota.assess(&carried, now, cost);
        if answer.fits && cost == 0 {
            let mut answer = answer;
            if answer.remaining == 0 {
                answer.retry = self.assess_carried(entry, plan, now, 1).retry;
            }
            if !plan.is_threshold && !plan.quota.waits() && !writer.quota.waits() {
                // Nothing is carried over by what costs nothing: the units come back as under the quota that wrote the state.
                answer.reset_after = writer.quota.assess(&entry.state, now, 0).reset_after;
            }
            return answer;
        }
        if answer.fits || !plan.quota.defers_to(&writer.quota, &entry.state, now) {
            return answer;
        }
        // Above 0: what a smaller limit holds is by as much less.
        let more = cost.saturating_add(writer.limit).saturating_sub(plan.limit);
        let by_writer = writer.quota.assess(&entry.state, now, more);
        if !by_writer.fits {
            return Assessment {
                remaining: answer.remaining,
                ..by_writer
            };
        }
        // By a rounding, or because this limit is larger: then it is a queue that it waits for.
        let kept = plan.quota.without_repair().assess(&carried, now, cost);
        Assessment {
            retry: kept.retry,
            ..answer
        }
    }

    /// When `cost` units of `key` fit that a request waits for.
    pub(super) fn instant(
        &self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Option<Instant> {
        match self.shard.find(key) {
            Some(entry) if self.shard.was_written_under(plan, entry) => {
                plan.quota.instant(&entry.state, now, cost)
            }
            // A queue that is longer than requests wait here is left to the quota that wrote it.
            Some(entry) => {
                let carried = self.carried(entry, plan, now);
                plan.quota.without_repair().instant(&carried, now, cost)
            }
            None => plan.quota.instant(&A::State::default(), now, cost),
        }
    }

    /// Takes units that are used from `start` on. The answer is the state before, and the numbers as of then.
    pub(super) fn take_from(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        start: Instant,
        cost: u64,
    ) -> Option<(GcraState, Assessment)> {
        self.denials(key).clear();
        let mut before = None;
        self.change(key, plan, now, |state| {
            before = plan.quota.take_from(state, now, start, cost);
        });
        Some((before?, self.assess(key, plan, start.start, 0)))
    }

    /// Takes a check that fits, and its slots, unless `then` says not to after the answer, or something has to be carried over.
    #[inline(always)]
    pub(super) fn take_fitting<T>(
        &mut self,
        check: &Check,
        plan: &Plan<A>,
        now: Tick,
        slots: &mut Option<HeldSlots>,
        then: impl FnOnce(Assessment) -> Option<T>,
    ) -> Option<T> {
        let (key, cost) = (check.key(), check.cost());
        let forgotten_by = self.shard.forgotten_by;
        let entry = self.shard.find_unless_of_another(plan, key)?;
        if entry.is_none() && (cost == 0 || now < forgotten_by) {
            // What costs nothing makes no state. And a state may be missing that was not yet a fresh one at `now`.
            return None;
        }
        let fresh = A::State::default();
        let state = entry.as_ref().map_or(&fresh, |entry| &entry.state);
        if A::HAS_HEAP || A::HOLDS_SLOTS {
            if plan.quota.is_ahead(state, now) {
                return None;
            }
            let answer = plan.quota.assess(state, now, cost);
            let taken = answer.fits.then(|| then(answer))??;
            *slots = match entry {
                // Denials for want of slots are not remembered.
                Some(entry) if A::HOLDS_SLOTS && cost > 0 => A::hold(&mut entry.state, key, cost),
                _ => self.take(key, plan, now, cost),
            };
            return Some(taken);
        }
        let (after, answer) = plan.quota.fit(state, now, cost)?;
        let taken = then(answer)?;
        self.place.denials(key).clear();
        match entry {
            Some(entry) => entry.state = after,
            None => self.shard.insert(key, plan, after, now),
        }
        Some(taken)
    }

    /// Takes units that were just found to fit, or slots, which go back when they are dropped.
    pub(super) fn take(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Option<HeldSlots> {
        if cost == 0 {
            return None;
        }
        self.denials(key).clear();
        let mut slots = None;
        self.change(key, plan, now, |state| match A::HOLDS_SLOTS {
            true => slots = A::hold(state, key, cost),
            false => plan.quota.take(state, now, cost),
        });
        slots
    }

    /// After a denial: repairs a state that lies in the future, and fills the deny cache if `is_cached`.
    pub(super) fn denied(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick, is_cached: bool) {
        let Some(Some(entry)) = self.shard.find_unless_of_another(plan, key) else {
            self.denied_by_another(key, plan, now);
            return;
        };
        plan.quota.repair(&mut entry.state, now);
        if is_cached
            && let Some(DenyBound(first, second)) = plan.quota.deny_bound(&entry.state, now)
        {
            let denials = self.denials(key);
            denials.insert(key, plan.denial_id, [first, second]);
        }
    }

    /// After a denial under another quota than the one that wrote the state.
    fn denied_by_another(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick) {
        let Some(entry) = self.shard.find(key) else {
            return;
        };
        // A bound under the other quota is no bound of the state as it will be.
        self.denials(key).clear();
        let writer = self
            .shard
            .writer(entry)
            .filter(|writer| plan.quota.defers_to(&writer.quota, &entry.state, now));
        if let Some(writer) = writer.map(|writer| writer.quota.clone()) {
            if let Some(entry) = self.shard.find_mut(key) {
                writer.repair(&mut entry.state, now);
            }
            return;
        }
        self.change(key, plan, now, |state| plan.quota.repair(state, now));
    }

    /// The units of `key` that are owed.
    pub(super) fn debt(&self, key: Fingerprint, now: Tick) -> u64 {
        let entry = self.shard.find(key);
        let written = entry.and_then(|entry| Some((self.shard.writer(entry)?, entry)));
        written.map_or(0, |(writer, entry)| writer.quota.debt(&entry.state, now))
    }

    /// Takes units whether they fit or not, up to the debt of the rule: under the quota that wrote the state if its limit is larger,
    /// because a smaller one does not hold all that was used.
    fn charge(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick, units: u64) {
        let entry = self.shard.find(key);
        let used = entry.filter(|entry| self.shard.fresh_at(entry) > now);
        let writer = used
            .and_then(|entry| self.shard.writer(entry))
            .filter(|writer| writer.limit > plan.limit && writer.debt > 0);
        let plan = &writer.unwrap_or(plan).clone();
        let mut state = match entry {
            Some(entry) if self.shard.was_written_under(plan, entry) => entry.state.clone(),
            Some(entry) => self.carried(entry, plan, now),
            None => A::State::default(),
        };
        let lapsed = plan.quota.charge(&mut state, now, units);
        if lapsed < units {
            self.change(key, plan, now, |charged| *charged = state);
        }
        if lapsed > 0 {
            self.table.lapse(lapsed);
        }
    }

    /// Settles units that were taken.
    pub(super) fn settle(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        hold: &Hold,
        how: Settlement,
    ) {
        if A::HOLDS_SLOTS {
            // A slot goes back when its handle is dropped (`held_slots.rs`), and only once.
            return;
        }
        self.denials(key).clear();
        let cost = hold.check.cost();
        match how {
            Settlement::Charge(units) if plan.debt > 0 => self.charge(key, plan, now, units),
            Settlement::Charge(units) => {
                let left = self.assess(key, plan, now, 0).remaining;
                self.take(key, plan, now, units.min(left));
            }
            Settlement::Refund(units) => self.refund(key, plan, now, hold, units.min(cost)),
            Settlement::Cancel => self.refund(key, plan, now, hold, cost),
        }
    }

    /// Gives units back to the state, under the quota that wrote it: they were carried over with it.
    fn refund(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick, hold: &Hold, units: u64) {
        let taken = hold.taken;
        let Some(entry) = self.shard.find(key).filter(|_| units > 0) else {
            return;
        };
        if self.shard.was_written_under(plan, entry) {
            let before = hold.before.filter(|_| units == hold.check.cost());
            let mut is_back = true;
            self.change(key, plan, now, |state| {
                is_back = plan.quota.refund_queued(state, now, taken, before, units);
            });
            if !is_back {
                self.table.lapse(units);
            }
        } else if let Some(writer) = self.shard.writer(entry).cloned() {
            if plan.quota.waits() || writer.quota.waits() {
                self.table.lapse(units);
                return;
            }
            self.change(key, &writer, now, |state| {
                let before = &plan.quota;
                writer
                    .quota
                    .refund_converted(before, state, now, taken, units);
            });
        }
    }

    /// Whether there was a live state.
    pub(super) fn reset(&mut self, key: Fingerprint, now: Tick) -> bool {
        if A::HOLDS_SLOTS {
            // They belong to requests that run.
            return false;
        }
        self.denials(key).clear();
        let was_live = self
            .shard
            .find(key)
            .is_some_and(|entry| self.shard.fresh_at(entry) > now);
        self.shard.remove(key);
        self.shard.forget_sides(key, now) || was_live
    }

    fn carried(&self, entry: &Entry<A::State>, plan: &Plan<A>, now: Tick) -> A::State {
        match self.shard.writer(entry) {
            Some(writer) => plan.quota.convert(&writer.quota, &entry.state, now),
            None => A::State::default(),
        }
    }

    /// Changes a state under a quota, carrying it over or making it where need be.
    fn change(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        change: impl FnOnce(&mut A::State),
    ) {
        match self.shard.find(key) {
            Some(entry) => {
                let carried = (!self.shard.was_written_under(plan, entry))
                    .then(|| self.carried(entry, plan, now));
                self.shard.update(key, plan, now, |state| {
                    if let Some(carried) = carried {
                        *state = carried;
                    }
                    change(state);
                });
            }
            None => {
                let mut state = A::State::default();
                change(&mut state);
                self.shard.insert(key, plan, state, now);
            }
        }
    }
}
