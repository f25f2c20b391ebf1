//! A table: the states of one rule name under one algorithm.

use std::{any::Any, sync::Arc};

use crate::{
    algorithm::{Algorithm, Assessment, DenyBound},
    key::Fingerprint,
    memory::{
        carry_over::{CarryOver, UsedUnits},
        plan::{ByWriters, Plan},
        shard::{Assess, Shard},
        slots::Entry,
        unbound::Packed,
    },
    on_change::OnChange,
    quota::Quota,
    store::{rule_store::Usage, seq_cells::SeqCells},
    sync::{Mutex, lock},
    time::Tick,
};

/// The states of one rule name. Shared by all rule sets that use the name.
#[derive(Debug)]
pub(super) struct Table<A: Algorithm> {
    /// Shards are locked in the order of (id, shard).
    pub(super) id: u64,
    shards: Box<[Locks<A>]>,
    /// Bounds, by the key and the number of the quota. A cell is written under its shard's lock.
    pub(super) deny_cache: SeqCells<2>,
    /// All quotas that states may have been written under; a state carries its quota's index.
    quotas: Mutex<Vec<Plan<A>>>,
}

/// A table of any algorithm.
pub(super) trait AnyTable: Any + Send + Sync {
    /// Moves the states that do not equal fresh ones out of a table that nothing is bound to. `None`: there are none.
    fn pack(&self, now: Tick) -> Option<Packed>;

    /// Scales or resets the states whose quota was replaced by one of the same algorithm.
    fn rewrite(&self, carry_over: &CarryOver, now: Tick);

    /// What its clients have used, for the table of another algorithm.
    fn used_units(&self, carry_over: &CarryOver, now: Tick) -> Vec<UsedUnits>;

    /// Forgets what it had, and begins with what was used under another algorithm.
    fn begin_with(&self, used: &[UsedUnits], now: Tick);

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
struct Locks<A: Algorithm>(Mutex<Shard<A>>);

impl<A: Algorithm> Table<A> {
    pub(super) fn new(bytes: usize, shards: usize) -> Self {
        // Not a lock: nothing is decided by it, so the explored schedules need not see it.
        static ID: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self {
            id: ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            shards: (0..shards)
                .map(|_| Locks(Mutex::new(Shard::new(bytes / shards))))
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
        let index = quotas
            .iter()
            .position(|known| known.quota == quota)
            .unwrap_or(quotas.len());
        if let Some(known) = quotas.get(index) {
            return Some(known.clone());
        }
        // Everything taken at the start of a window.
        let longest_reset = quota
            .assess(&A::State::default(), 0, given.limit())
            .reset_after;
        let plan = Plan {
            quota,
            number: u16::try_from(index).ok()?,
            limit: given.limit(),
            longest_reset,
        };
        quotas.push(plan.clone());
        Some(plan)
    }

    /// What a state was written under. Every number that is written was given out by this table.
    pub(super) fn writer(&self, number: u16) -> Option<Plan<A>> {
        lock(&self.quotas).get(usize::from(number)).cloned()
    }

    #[inline]
    pub(super) fn shard_of(&self, key: Fingerprint) -> usize {
        (key.bits() >> 50) as usize & (self.shards.len() - 1)
    }

    #[inline(always)]
    pub(super) fn shard(&self, index: usize) -> &Mutex<Shard<A>> {
        &self.shards[index].0
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
        // In fractions of a key, because most shards are estimated from a sample.
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

/// Slots of a shard that are swept for expired states by each call of `usage`.
const SWEEP: usize = 128;
/// Slots of a shard that are sampled to estimate its live entries. A shard of at most this size is counted.
const SAMPLE: usize = 32;
/// Fractions of a key, for sums of estimates.
const PARTS: u64 = 1 << 10;

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
                let index = quotas.iter().position(|plan| plan.quota == writer.quota);
                let index = index.unwrap_or_else(|| {
                    quotas.push(Plan {
                        // There are no more than there were.
                        number: quotas.len() as u16,
                        ..writer.clone()
                    });
                    quotas.len() - 1
                });
                entry.set_quota(index as u16);
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

    fn rewrite(&self, carry_over: &CarryOver, now: Tick) {
        for (index, shard) in self.shards.iter().enumerate() {
            let mut shard = lock(&shard.0);
            let known = lock(&self.quotas).clone();
            let by = ByWriters(&known);
            let scaled = |entry: &Entry<A::State>| {
                let writer = known.get(usize::from(entry.quota()))?;
                let (quota, state) = carry_over.scaled(writer, &entry.state, now)?;
                Some((entry.key(), quota, state))
            };
            let all: Vec<_> = shard.iter().filter_map(scaled).collect();
            for (key, quota, state) in all {
                self.deny_cache.remove(index, key);
                // It was made known when the rule was bound.
                let number = A::new(&quota)
                    .and_then(|quota| known.iter().find(|plan| plan.quota == quota))
                    .map(|plan| plan.number);
                match number {
                    Some(number)
                        if quota.limit() > 0 && carry_over.on_change == OnChange::Scale =>
                    {
                        shard.update(key, now, &by, |entry| {
                            entry.state = state;
                            entry.set_quota(number);
                        });
                    }
                    _ => shard.remove(key),
                }
            }
        }
    }

    fn used_units(&self, carry_over: &CarryOver, now: Tick) -> Vec<UsedUnits> {
        let mut used = Vec::new();
        for shard in &self.shards {
            let shard = lock(&shard.0);
            let known = lock(&self.quotas);
            used.extend(shard.iter().filter_map(|entry| {
                let writer = known.get(usize::from(entry.quota()))?;
                carry_over.units(entry.key(), writer, &entry.state, now)
            }));
        }
        used
    }

    fn begin_with(&self, used: &[UsedUnits], now: Tick) {
        for (index, shard) in self.shards.iter().enumerate() {
            for entry in lock(&shard.0).drain() {
                self.deny_cache.remove(index, entry.key());
            }
        }
        let known = lock(&self.quotas).clone();
        for UsedUnits { key, units, quota } in used {
            // It was made known when the rule was bound.
            let plan =
                A::new(quota).and_then(|quota| known.iter().find(|plan| plan.quota == quota));
            let Some(plan) = plan else {
                continue;
            };
            let mut state = A::State::default();
            plan.quota.take(&mut state, now, *units);
            let mut shard = lock(&self.shards[self.shard_of(*key)].0);
            shard.remove(*key);
            let entry = Entry::new(*key, plan.number, state);
            shard.insert(*key, entry, now, &ByWriters(&known));
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
