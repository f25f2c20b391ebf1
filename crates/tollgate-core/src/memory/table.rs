//! A table: the states of one rule name under one algorithm.

use std::{any::Any, sync::Arc};

use crate::{
    algorithm::{Algorithm, Assessment, DenyBound, Taken},
    key::Fingerprint,
    memory::{
        shard::{Assess, EvictionOrder, Shard},
        slots::Entry,
        unbound::Packed,
    },
    quota::Quota,
    store::{receipt::Settlement, rule_store::Usage, seq_cells::SeqCells},
    sync::{Mutex, MutexGuard, lock},
    time::{Clock, Tick},
};

/// The states of one rule name. Shared by all rule sets that use the name.
#[derive(Debug)]
pub(super) struct Table<A: Algorithm> {
    /// Shards are locked in the order of (id, shard).
    pub(super) id: u64,
    shards: Box<[Locker<A>]>,
    /// Bounds, by the key and the number of the quota. A cell is written under its shard's lock.
    deny_cache: SeqCells<2>,
    /// All quotas that states may have been written under; a state carries its quota's place.
    quotas: Mutex<Vec<Plan<A>>>,
}

/// A table of any algorithm.
pub(super) trait AnyTable: Any + Send + Sync {
    /// Moves the states that do not equal fresh ones out of a table that nothing is bound to. `None`: there are none.
    fn pack(&self, now: Tick) -> Option<Packed>;

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The states of a table, and the quotas that wrote them.
#[derive(Debug)]
pub(super) struct PackedTable<A: Algorithm> {
    quotas: Vec<Plan<A>>,
    entries: Vec<Entry<A::State>>,
}

/// A lock on lines of its own, so that neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Locker<A: Algorithm>(Mutex<Shard<A>>);

/// A quota of a bound rule: ready, and known to its table under a number.
#[derive(Clone, Debug)]
pub(super) struct Plan<A> {
    pub(super) quota: A,
    pub(super) number: u16,
    limit: u64,
    /// The longest time that a state of the past or present takes until it is fresh.
    longest_reset: u64,
}

/// A locked shard of a table.
pub(super) struct Locked<'a, A: Algorithm> {
    table: &'a Table<A>,
    shard: MutexGuard<'a, Shard<A>>,
    index: usize,
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(bytes: usize, shards: usize) -> Self {
        // Not a lock: nothing is decided by it, so the explored schedules need not see it.
        static ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self {
            id: ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            shards: (0..shards)
                .map(|_| Locker(Mutex::new(Shard::new(bytes / shards))))
                .collect(),
            deny_cache: SeqCells::new(shards, 8),
            quotas: Mutex::new(Vec::new()),
        }
    }

    /// Puts states back that were packed. Their quotas are the first that the table knows.
    pub(super) fn unpack(&mut self, packed: PackedTable<A>, now: Tick) {
        let PackedTable { quotas, entries } = packed;
        for entry in entries {
            let key = entry.key();
            let shard = &self.shards[self.shard_of(key)];
            lock(&shard.0).insert(key, entry, now, &ByWriters(&quotas));
        }
        self.quotas = Mutex::new(quotas);
    }

    /// Makes a quota known. `None` if it is of another algorithm, or if there have been 65 536 others.
    pub(super) fn plan(&self, given: &Quota) -> Option<Plan<A>> {
        let quota = A::new(given)?;
        let mut quotas = lock(&self.quotas);
        let place = quotas
            .iter()
            .position(|known| known.quota == quota)
            .unwrap_or(quotas.len());
        if let Some(known) = quotas.get(place) {
            return Some(known.clone());
        }
        // Everything taken at the start of a window.
        let longest_reset = quota
            .assess(&A::State::default(), 0, given.limit())
            .reset_after;
        let plan = Plan {
            quota,
            number: u16::try_from(place).ok()?,
            limit: given.limit(),
            longest_reset,
        };
        quotas.push(plan.clone());
        Some(plan)
    }

    /// What a state was written under. Every number that is written was given out by this table.
    fn writer(&self, number: u16) -> Option<Plan<A>> {
        lock(&self.quotas).get(usize::from(number)).cloned()
    }

    #[inline]
    pub(super) fn shard_of(&self, key: Fingerprint) -> usize {
        (key.bits() >> 50) as usize & (self.shards.len() - 1)
    }

    #[inline(always)]
    pub(super) fn lock(&self, index: usize) -> Locked<'_, A> {
        Locked {
            table: self,
            shard: lock(&self.shards[index].0),
            index,
        }
    }

    /// A denial by the deny cache, without the lock.
    #[inline(always)]
    pub(super) fn deny_from_cache(
        &self,
        shard: usize,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Option<Assessment> {
        let [first, second] = self.deny_cache.get(shard, key, u64::from(plan.number))?;
        plan.quota
            .deny_by(DenyBound(first, second), now, cost)
            // A clock went back since: the state lies in the future, and a denial has to repair it.
            .filter(|answer| answer.reset_after <= plan.longest_reset)
    }

    /// What is kept, and a step of sweeping: bounded work, whatever the size of the table.
    pub(super) fn usage(&self, now: Tick) -> Usage {
        let mut usage = Usage::default();
        // In parts of a key, because most shards are told from a sample.
        let mut parts = 0;
        for shard in &self.shards {
            let mut shard = lock(&shard.0);
            // Behind the shard, as in `writer`.
            let quotas = lock(&self.quotas);
            let by = ByWriters(&quotas);
            shard.sweep(SWEEP, now, &by);
            let (live, seen) = shard.sample(SAMPLE, now, &by);
            // Both factors are far below 2^26. Of few entries a sample may meet none.
            let entries = shard.len() as u64 * PARTS;
            parts += (entries * live).checked_div(seen).unwrap_or(entries);
            usage.bytes += shard.bytes() as u64;
            usage.evicted_live += shard.evicted_live;
        }
        usage.keys = parts / PARTS;
        usage
    }
}

/// Slots of a shard that are looked at for expired states when somebody asks what is kept.
const SWEEP: usize = 128;
/// Slots of a shard that are looked at to tell how many entries are live. A shard that has no more is counted.
const SAMPLE: usize = 32;
/// Parts of a key, for sums of estimates.
const PARTS: u64 = 1 << 10;

/// All quotas of a table: each entry is assessed under the one that wrote it.
struct ByWriters<'a, A>(&'a [Plan<A>]);

impl<A: Algorithm> Assess<A> for ByWriters<'_, A> {
    fn fresh_at(&self, entry: &Entry<A::State>) -> Tick {
        let writer = self.0.get(usize::from(entry.quota()));
        writer.map_or(0, |writer| writer.quota.fresh_at(&entry.state))
    }

    fn eviction_order(&self, entry: &Entry<A::State>, now: Tick) -> EvictionOrder {
        let writer = self.0.get(usize::from(entry.quota()));
        writer.map_or(EvictionOrder::default(), |writer| writer.order(entry, now))
    }
}

/// A plan and its table: most entries were written under the plan.
struct ByPlan<'a, A: Algorithm>(&'a Plan<A>, &'a Table<A>);

impl<A: Algorithm> ByPlan<'_, A> {
    fn with_writer<T: Default>(
        &self,
        entry: &Entry<A::State>,
        assess: impl FnOnce(&Plan<A>) -> T,
    ) -> T {
        if entry.quota() == self.0.number {
            return assess(self.0);
        }
        let writer = self.1.writer(entry.quota());
        writer.map_or_else(T::default, |writer| assess(&writer))
    }
}

impl<A: Algorithm> Assess<A> for ByPlan<'_, A> {
    fn fresh_at(&self, entry: &Entry<A::State>) -> Tick {
        self.with_writer(entry, |plan| plan.quota.fresh_at(&entry.state))
    }

    fn eviction_order(&self, entry: &Entry<A::State>, now: Tick) -> EvictionOrder {
        self.with_writer(entry, |plan| plan.order(entry, now))
    }
}

impl<A: Algorithm> Plan<A> {
    fn order(&self, entry: &Entry<A::State>, now: Tick) -> EvictionOrder {
        EvictionOrder::new(self.quota.assess(&entry.state, now, 0), self.limit)
    }
}

impl<A: Algorithm> AnyTable for Table<A> {
    fn pack(&self, now: Tick) -> Option<Packed> {
        let known = std::mem::take(&mut *lock(&self.quotas));
        let mut quotas: Vec<Plan<A>> = Vec::new();
        let mut entries = Vec::new();
        let (mut last, mut heap) = (0, 0);
        for shard in &self.shards {
            for mut entry in lock(&shard.0).drain() {
                let fresh_at = ByWriters(&known).fresh_at(&entry);
                let Some(writer) = known.get(usize::from(entry.quota())) else {
                    continue;
                };
                if fresh_at <= now {
                    continue;
                }
                // Quotas that wrote none of them are forgotten.
                let place = quotas.iter().position(|plan| plan.quota == writer.quota);
                let place = place.unwrap_or_else(|| {
                    quotas.push(Plan {
                        // There are no more than there were.
                        number: quotas.len() as u16,
                        ..writer.clone()
                    });
                    quotas.len() - 1
                });
                entry.set_quota(place as u16);
                last = last.max(fresh_at);
                heap += A::heap_bytes(&entry.state);
                entries.push(entry);
            }
        }
        if entries.is_empty() {
            return None;
        }
        entries.shrink_to_fit();
        Some(Packed {
            fresh_at: last,
            keys: entries.len() as u64,
            bytes: heap + size_of_val(entries.as_slice()) + size_of_val(quotas.as_slice()),
            table: Box::new(PackedTable { quotas, entries }),
        })
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<A: Algorithm> Locked<'_, A> {
    /// Decides about `cost` units of `key`.
    #[inline]
    pub(super) fn assess(
        &self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Assessment {
        match self.shard.find(key) {
            Some(entry) if entry.quota() == plan.number => {
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
        let Some(writer) = self.table.writer(entry.quota()) else {
            return plan.quota.assess(&A::State::default(), now, cost);
        };
        let carried = plan.quota.convert(&writer.quota, &entry.state, now);
        let answer = plan.quota.assess(&carried, now, cost);
        if answer.fits && cost == 0 && answer.remaining == 0 {
            let retry = self.assess_carried(entry, plan, now, 1).retry;
            return Assessment { retry, ..answer };
        }
        if answer.fits || !plan.quota.leaves_to(&writer.quota, &entry.state, now) {
            return answer;
        }
        // Above 0: what a smaller limit holds is by as much less.
        let cost = cost.saturating_add(writer.limit).saturating_sub(plan.limit);
        let by_writer = writer.quota.assess(&entry.state, now, cost);
        Assessment {
            remaining: answer.remaining,
            // It fits there only by a rounding.
            ..if by_writer.fits { answer } else { by_writer }
        }
    }

    /// Decides at the time under the lock, step by step: something is denied, or a state has to be made, carried over or
    /// changed on the heap. A thread that had to wait for the lock would see what others have done since as the future,
    /// and its denial would repair it into a window that is over.
    #[inline(never)]
    pub(super) fn acquire_anew(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        clock: &Clock,
        cost: u64,
    ) -> (Tick, Assessment) {
        let now = clock.now();
        let answer = self.assess(key, plan, now, cost);
        if answer.fits {
            self.take(key, plan, now, cost);
        } else {
            self.denied(key, plan, now);
        }
        (now, answer)
    }

    /// Takes in one look, where there is a state, nothing has to be carried over or made, and the cost fits. The slot and
    /// the state before are for [`put_back`](Self::put_back).
    #[inline(always)]
    pub(super) fn try_acquire(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        cost: u64,
    ) -> Option<(Assessment, (usize, A::State))> {
        if A::HAS_HEAP {
            return None;
        }
        let (slot, entry) = self.shard.find_slot(key)?;
        if entry.quota() != plan.number || plan.quota.is_ahead(&entry.state, now) {
            return None;
        }
        let before = entry.state.clone();
        let answer = plan.quota.acquire(&mut entry.state, now, cost);
        self.table.deny_cache.remove(self.index, key);
        answer.fits.then_some((answer, (slot, before)))
    }

    /// Puts the state back that was there before [`try_acquire`](Self::try_acquire), under the same lock.
    pub(super) fn put_back(&mut self, (slot, before): (usize, A::State)) {
        self.shard.put_back(slot, before);
    }

    /// Takes units that were just found to fit.
    #[inline]
    pub(super) fn take(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick, cost: u64) {
        if cost == 0 {
            return;
        }
        self.table.deny_cache.remove(self.index, key);
        if !A::HAS_HEAP
            && let Some(entry) = self.shard.find_mut(key)
            && entry.quota() == plan.number
        {
            plan.quota.take(&mut entry.state, now, cost);
            return;
        }
        self.change(key, plan, now, |state| plan.quota.take(state, now, cost));
    }

    /// After a denial: repairs a state that lies in the future, and fills the deny cache.
    #[cold]
    #[inline(never)]
    pub(super) fn denied(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick) {
        let Some(entry) = self.shard.find_mut(key) else {
            return;
        };
        if entry.quota() != plan.number {
            // A bound under the other quota is no bound of the state as it will be.
            self.table.deny_cache.remove(self.index, key);
            if let Some(writer) = self.table.writer(entry.quota())
                && plan.quota.leaves_to(&writer.quota, &entry.state, now)
            {
                writer.quota.repair(&mut entry.state, now);
                return;
            }
            self.change(key, plan, now, |state| plan.quota.repair(state, now));
            return;
        }
        plan.quota.repair(&mut entry.state, now);
        if let Some(DenyBound(first, second)) = plan.quota.deny_bound(&entry.state, now) {
            let (deny_cache, salt) = (&self.table.deny_cache, u64::from(plan.number));
            deny_cache.insert(self.index, key, salt, [first, second]);
        }
    }

    /// Settles units that were taken.
    pub(super) fn settle(
        &mut self,
        key: Fingerprint,
        plan: &Plan<A>,
        now: Tick,
        taken: (Taken, u64),
        how: Settlement,
    ) {
        self.table.deny_cache.remove(self.index, key);
        let (taken, cost) = taken;
        match how {
            Settlement::Charge(units) => {
                let left = self.assess(key, plan, now, 0).remaining;
                self.take(key, plan, now, units.min(left));
            }
            Settlement::Refund(_) | Settlement::Cancel => {
                let units = match how {
                    Settlement::Refund(units) => units.min(cost),
                    _ => cost,
                };
                self.refund(key, plan, now, taken, units);
            }
        }
    }

    /// Gives units back to the state, under the quota that wrote it: they were carried over with it.
    fn refund(&mut self, key: Fingerprint, plan: &Plan<A>, now: Tick, taken: Taken, units: u64) {
        let Some(entry) = self.shard.find(key).filter(|_| units > 0) else {
            return;
        };
        if entry.quota() == plan.number {
            self.change(key, plan, now, |state| {
                plan.quota.refund(state, now, taken, units);
            });
        } else if let Some(writer) = self.table.writer(entry.quota()) {
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
        self.table.deny_cache.remove(self.index, key);
        let fresh_at = |entry: &Entry<A::State>| {
            let writer = self.table.writer(entry.quota());
            writer.map_or(0, |writer| writer.quota.fresh_at(&entry.state))
        };
        let was_live = self
            .shard
            .find(key)
            .is_some_and(|entry| fresh_at(entry) > now);
        self.shard.remove(key);
        was_live
    }

    fn carried(&self, entry: &Entry<A::State>, plan: &Plan<A>, now: Tick) -> A::State {
        match self.table.writer(entry.quota()) {
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
        let table = self.table;
        let by = ByPlan(plan, table);
        match self.shard.find(key) {
            Some(entry) => {
                let carried =
                    (entry.quota() != plan.number).then(|| self.carried(entry, plan, now));
                self.shard.update(key, now, &by, |entry| {
                    if let Some(carried) = carried {
                        entry.state = carried;
                        entry.set_quota(plan.number);
                    }
                    change(&mut entry.state);
                });
            }
            None => {
                let mut state = A::State::default();
                change(&mut state);
                self.shard
                    .insert(key, Entry::new(key, plan.number, state), now, &by);
            }
        }
    }
}
