//! A locked shard: the step that decides about one key.

use std::borrow::Cow;

use crate::{
    algorithm::{Algorithm, Assessment, DenyBound, GcraState, Instant},
    block::{ActiveBlock, Block},
    check::Check,
    held_slots::HeldSlots,
    hold::{Hold, Settlement},
    idempotency::SeenIds,
    key::Fingerprint,
    memory::{
        cells::Entry,
        plan::Plan,
        shard::Shard,
        side_tables::SideTables,
        table::{Place, Table},
    },
    store::seq_cells::SeqLine,
    sync::{AtomicU64, BriefGuard, lock_briefly},
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
    pub(super) shard: BriefGuard<'a, Shard<A>>,
}

/// A key of a locked shard, under a quota and at a time.
pub(super) struct LockedKey<'l, 'a, A: Algorithm> {
    locked: &'l mut Locked<'a, A>,
    key: Fingerprint,
    pub(super) plan: &'l Plan<A>,
    now: Tick,
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

    #[inline]
    pub(super) fn of<'l>(
        &'l mut self,
        key: Fingerprint,
        plan: &'l Plan<A>,
        now: Tick,
    ) -> LockedKey<'l, 'a, A> {
        LockedKey {
            locked: self,
            key,
            plan,
            now,
        }
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
                _ => self.of(key, plan, now).take(cost),
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

    /// Whether there was a live state.
    pub(super) fn reset(&mut self, key: Fingerprint, now: Tick) -> bool {
        if A::HOLDS_SLOTS {
            // They belong to requests that run.
            return false;
        }
        self.place.denials(key).clear();
        let entry = self.shard.find(key);
        let was_live = entry.is_some_and(|entry| self.shard.fresh_at(entry) > now);
        self.shard.remove(key);
        self.shard.forget_sides(key, now) || was_live
    }
}

impl<'a, A: Algorithm> LockedKey<'_, 'a, A> {
    fn denials(&self) -> &'a SeqLine<2> {
        self.locked.place.denials(self.key)
    }

    fn sides(&self) -> Option<&SideTables> {
        self.locked.shard.sides.as_deref()
    }

    fn entry(&self) -> Option<&Entry<A::State>> {
        self.locked.shard.find(self.key)
    }

    /// Whether the entry was written under this quota.
    fn wrote(&self, entry: &Entry<A::State>) -> bool {
        self.locked.shard.was_written_under(self.plan, entry)
    }

    fn carried(&self, entry: &Entry<A::State>) -> A::State {
        match self.locked.shard.writer(entry) {
            Some(writer) => (self.plan.quota).convert(&writer.quota, &entry.state, self.now),
            None => A::State::default(),
        }
    }

    /// The state, or what becomes of it under this quota.
    fn state(&self) -> Cow<'_, A::State> {
        match self.entry() {
            Some(entry) if self.wrote(entry) => Cow::Borrowed(&entry.state),
            Some(entry) => Cow::Owned(self.carried(entry)),
            None => Cow::Owned(A::State::default()),
        }
    }

    /// The same key under another quota.
    fn under<'l>(&'l mut self, plan: &'l Plan<A>) -> LockedKey<'l, 'a, A> {
        self.locked.of(self.key, plan, self.now)
    }

    /// The block of the key, if it is blocked.
    pub(super) fn block_of(&self, block: &Block) -> Option<ActiveBlock> {
        self.locked.shard.block_of(self.key, block, self.now)
    }

    /// After a denial of a blocked key: the block ends as soon as it can, and the deny cache learns of it.
    pub(super) fn blocked(&mut self, block: &Block, active: ActiveBlock) {
        let (key, now, sides) = (self.key, self.now, &mut self.locked.shard.sides);
        if (sides.as_mut()).is_some_and(|sides| sides.blocks.repair(key, block, now)) {
            self.denials().clear();
        }
        self.remember_block(active);
    }

    /// Counts a denial or a settled request, and says which block begins with it. States make room for it, down to an eighth of the
    /// budget, which they share with ids.
    pub(super) fn count_for_block(&mut self, block: &Block) -> Counted {
        let (key, now) = (self.key, self.now);
        let evicted_blocks = |sides: &SideTables| sides.blocks.evicted;
        let before = self.sides().map_or(0, evicted_blocks);
        let began = self.locked.shard.change_sides(key, now, |sides, all| {
            let bound = (all - all / 8).saturating_sub(sides.ids.bytes());
            sides.blocks.count(key, block, now, bound)
        });
        if let Some(began) = began {
            self.denials().clear();
            self.remember_block(began);
        }
        let evicted = self.sides().map_or(0, evicted_blocks);
        Counted {
            key,
            began,
            evicted: (evicted > before).then_some(evicted),
        }
    }

    /// Denials without the lock until the block ends, if all units are back by then: otherwise the quota says how long they last.
    fn remember_block(&self, active: ActiveBlock) {
        let until = self.now.saturating_add(active.micros);
        let is_fresh = |entry| self.wrote(entry) && self.locked.shard.fresh_at(entry) <= until;
        if self.entry().is_none_or(is_fresh) {
            let words = [until, u64::from(active.level)];
            self.denials().insert(self.key, !self.plan.id, words);
        }
    }

    /// See [`Shard::next_slot_number`].
    pub(super) fn next_slot_number(&mut self, last: &AtomicU64) -> u64 {
        self.locked.shard.next_slot_number(last)
    }

    /// The ids of requests of the key.
    pub(super) fn ids(&self) -> Option<&SeenIds> {
        self.sides()?.ids.get(self.key)
    }

    /// Changes the ids of the key. They take a quarter of the budget at most.
    pub(super) fn change_ids<R>(&mut self, change: impl FnOnce(&mut SeenIds) -> R) -> R {
        let (key, now) = (self.key, self.now);
        (self.locked.shard).change_sides(key, now, |sides, all| {
            sides.ids.change(key, now, all / 4, change)
        })
    }

    /// Decides about `cost` units.
    pub(super) fn assess(&self, cost: u64) -> Assessment {
        let (quota, now) = (&self.plan.quota, self.now);
        match self.entry() {
            Some(entry) if self.wrote(entry) => quota.assess(&entry.state, now, cost),
            Some(entry) => self.assess_carried(entry, cost),
            None => quota.assess(&A::State::default(), now, cost),
        }
    }

    /// Decides about a state of another quota. Where a denial leaves it so, that quota says when the units fit: when it
    /// has room for what its limit is larger, too.
    fn assess_carried(&self, entry: &Entry<A::State>, cost: u64) -> Assessment {
        let (plan, now) = (self.plan, self.now);
        let Some(writer) = self.locked.shard.writer(entry) else {
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
                answer.retry = self.assess_carried(entry, 1).retry;
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

    /// When `cost` units fit that a request waits for.
    pub(super) fn instant(&self, cost: u64) -> Option<Instant> {
        let (quota, now) = (&self.plan.quota, self.now);
        match self.state() {
            Cow::Borrowed(state) => quota.instant(state, now, cost),
            // A queue that is longer than requests wait here is left to the quota that wrote it.
            Cow::Owned(carried) => quota.without_repair().instant(&carried, now, cost),
        }
    }

    /// Takes units that are used from `start` on. The answer is the state before, and the numbers as of then.
    pub(super) fn take_from(
        &mut self,
        start: Instant,
        cost: u64,
    ) -> Option<(GcraState, Assessment)> {
        let (plan, now) = (self.plan, self.now);
        self.denials().clear();
        let mut before = None;
        self.change(|state| before = plan.quota.take_from(state, now, start, cost));
        let then = self.locked.of(self.key, plan, start.start);
        Some((before?, then.assess(0)))
    }

    /// Takes units that were just found to fit, or slots, which go back when they are dropped.
    pub(super) fn take(&mut self, cost: u64) -> Option<HeldSlots> {
        if cost == 0 {
            return None;
        }
        let (key, plan, now) = (self.key, self.plan, self.now);
        self.denials().clear();
        let mut slots = None;
        self.change(|state| match A::HOLDS_SLOTS {
            true => slots = A::hold(state, key, cost),
            false => plan.quota.take(state, now, cost),
        });
        slots
    }

    /// After a denial: repairs a state that lies in the future, and fills the deny cache if `is_cached`.
    pub(super) fn denied(&mut self, is_cached: bool) {
        let (key, plan, now) = (self.key, self.plan, self.now);
        let Some(Some(entry)) = self.locked.shard.find_unless_of_another(plan, key) else {
            self.denied_by_another();
            return;
        };
        plan.quota.repair(&mut entry.state, now);
        if is_cached
            && let Some(DenyBound(first, second)) = plan.quota.deny_bound(&entry.state, now)
        {
            self.denials().insert(key, plan.denial_id, [first, second]);
        }
    }

    /// After a denial under another quota than the one that wrote the state.
    fn denied_by_another(&mut self) {
        let (key, plan, now) = (self.key, self.plan, self.now);
        let Some(entry) = self.entry() else {
            return;
        };
        // A bound under the other quota is no bound of the state as it will be.
        self.denials().clear();
        let writer = (self.locked.shard.writer(entry))
            .filter(|writer| plan.quota.defers_to(&writer.quota, &entry.state, now));
        if let Some(writer) = writer.map(|writer| writer.quota.clone()) {
            if let Some(entry) = self.locked.shard.find_mut(key) {
                writer.repair(&mut entry.state, now);
            }
            return;
        }
        self.change(|state| plan.quota.repair(state, now));
    }

    /// The units that are owed.
    pub(super) fn debt(&self) -> u64 {
        let written =
            (self.entry()).and_then(|entry| Some((self.locked.shard.writer(entry)?, entry)));
        written.map_or(0, |(writer, entry)| {
            writer.quota.debt(&entry.state, self.now)
        })
    }

    /// Takes units whether they fit or not, up to the debt of the rule: under the quota that wrote the state if its limit is larger,
    /// because a smaller one does not hold all that was used.
    fn charge(&mut self, units: u64) {
        let (plan, now, shard) = (self.plan, self.now, &self.locked.shard);
        let used = self.entry().filter(|entry| shard.fresh_at(entry) > now);
        let writer = used
            .and_then(|entry| shard.writer(entry))
            .filter(|writer| writer.limit > plan.limit && writer.debt > 0);
        let plan = &writer.unwrap_or(plan).clone();
        let mut charged = self.under(plan);
        let mut state = charged.state().into_owned();
        let lapsed = plan.quota.charge(&mut state, now, units);
        if lapsed < units {
            charged.change(|charged| *charged = state);
        }
        if lapsed > 0 {
            self.locked.table.lapse(lapsed);
        }
    }

    /// Settles units that were taken.
    pub(super) fn settle(&mut self, hold: &Hold, how: Settlement) {
        if A::HOLDS_SLOTS {
            // A slot goes back when its handle is dropped (`held_slots.rs`), and only once.
            return;
        }
        self.denials().clear();
        let cost = hold.check.cost();
        match how {
            Settlement::Charge(units) if self.plan.debt > 0 => self.charge(units),
            Settlement::Charge(units) => {
                let left = self.assess(0).remaining;
                self.take(units.min(left));
            }
            Settlement::Refund(units) => self.refund(hold, units.min(cost)),
            Settlement::Cancel => self.refund(hold, cost),
        }
    }

    /// Gives units back to the state, under the quota that wrote it: they were carried over with it.
    fn refund(&mut self, hold: &Hold, units: u64) {
        let (quota, now, taken) = (&self.plan.quota, self.now, hold.taken);
        let Some(entry) = self.entry().filter(|_| units > 0) else {
            return;
        };
        let mut is_back = true;
        if self.wrote(entry) {
            let before = hold.before.filter(|_| units == hold.check.cost());
            self.change(|state| {
                is_back = quota.refund_queued(state, now, taken, before, units);
            });
        } else if let Some(writer) = self.locked.shard.writer(entry).cloned() {
            is_back = !quota.waits() && !writer.quota.waits();
            if is_back {
                self.under(&writer).change(|state| {
                    (writer.quota).refund_converted(quota, state, now, taken, units);
                });
            }
        }
        if !is_back {
            self.locked.table.lapse(units);
        }
    }

    /// Changes a state under this quota, carrying it over or making it where need be.
    fn change(&mut self, change: impl FnOnce(&mut A::State)) {
        let (key, plan, now) = (self.key, self.plan, self.now);
        let Some(entry) = self.entry() else {
            let mut state = A::State::default();
            change(&mut state);
            return self.locked.shard.insert(key, plan, state, now);
        };
        let carried = (!self.wrote(entry)).then(|| self.carried(entry));
        self.locked.shard.update(key, plan, now, |state| {
            if let Some(carried) = carried {
                *state = carried;
            }
            change(state);
        });
    }
}
