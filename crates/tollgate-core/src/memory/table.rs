//! A table: the states of one rule name under one algorithm, and what they count for when the algorithm changes.

use crate::{
    algorithm::Algorithm,
    key::Fingerprint,
    memory::{
        hasher::Hasher,
        plan::{Plan, counted},
        shard::Shard,
        side_tables::SideTables,
    },
    quota::Quota,
    rule::Rule,
    store::{rule_store::Usage, seq_cells::SeqLine},
    sync::{Mutex, lock},
    time::Tick,
};
use std::{
    any::Any,
    // Not locks: nothing is decided by them, so the explored schedules need not see them.
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The states of one rule name. Shared by all rule sets that use the name.
pub(super) struct Table<A: Algorithm> {
    /// Shards are locked in the order of (id, shard).
    pub(super) id: u64,
    shards: Box<[Place<A>]>,
    /// Units of requests that waited and gave up, and that others were behind.
    lapsed_units: AtomicU64,
}

/// What all shards keep beside their states, in their order; there are as many in each table of a store.
pub(super) type ShardSides = Vec<Option<Box<SideTables>>>;

/// A table of any algorithm.
pub(super) trait AnyTable: Any + Send + Sync {
    /// What there is of a table that nothing is bound to. Expired states go. `None`: requests that run hold slots of it.
    fn unused(&self, now: Tick) -> Option<Unused>;

    /// What its clients have used, for the table of another algorithm.
    fn used_units(&self, carry_over: &CarryOver, now: Tick) -> Vec<UsedUnits>;

    /// Forgets what it had, and begins with what was used under another algorithm.
    fn begin_with(&self, used: &[UsedUnits], sides: ShardSides, hasher: &Hasher, now: Tick);

    /// Moves the blocks and ids of its shards out.
    fn take_sides(&self) -> ShardSides;
}

/// A table that nothing is bound to.
#[derive(Clone, Copy)]
pub(super) struct Unused {
    /// From when on all of its states equal fresh ones.
    pub(super) fresh_at: Tick,
    pub(super) bytes: usize,
}

/// Where keys are: a shard, and what is known of denials. On lines of its own, so that neighbours do not slow each other down.
#[repr(align(128))]
pub(super) struct Place<A: Algorithm> {
    pub(super) shard: Mutex<Shard<A>>,
    /// Bounds, by the key and the quota, to be read without the lock. A cell is written under it.
    denials: [SeqLine<2>; DENIAL_LINES],
}

/// Lines of denials of a shard.
const DENIAL_LINES: usize = 4;

impl<A: Algorithm> Place<A> {
    /// Where denials of a key are remembered.
    pub(super) fn denials(&self, key: Fingerprint) -> &SeqLine<2> {
        &self.denials[(key.bits() as u64 >> 24) as usize % DENIAL_LINES]
    }
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(bytes: usize, shards: usize) -> Self {
        static ID: AtomicU64 = AtomicU64::new(1);
        Self {
            id: ID.fetch_add(1, Ordering::Relaxed),
            shards: (0..shards)
                .map(|_| Place {
                    shard: Mutex::new(Shard::new(bytes / shards)),
                    denials: std::array::from_fn(|_| SeqLine::empty()),
                })
                .collect(),
            lapsed_units: AtomicU64::new(0),
        }
    }

    pub(super) fn shard_of(&self, key: Fingerprint) -> usize {
        (key.bits() as u64 >> 50) as usize & (self.shards.len() - 1)
    }

    pub(super) fn shard(&self, index: usize) -> &Place<A> {
        &self.shards[index]
    }

    /// Where a key is.
    pub(super) fn place(&self, key: Fingerprint) -> &Place<A> {
        self.shard(self.shard_of(key))
    }

    pub(super) fn lapse(&self, units: u64) {
        self.lapsed_units.fetch_add(units, Ordering::Relaxed);
    }

    pub(super) fn lapsed_units(&self) -> u64 {
        self.lapsed_units.load(Ordering::Relaxed)
    }

    /// What is kept, and a step of sweeping: bounded work, whatever the size of the table.
    pub(super) fn usage(&self, now: Tick) -> Usage {
        let mut usage = Usage::default();
        // In fractions of a key, because most shards are estimated from a sample.
        let mut parts = 0;
        for place in &self.shards {
            let mut shard = lock(&place.shard);
            shard.sweep(SWEEP, now);
            shard.sweep_sides(now);
            let (live, seen) = shard.sample(SAMPLE, now);
            // Both factors are far below 2^26. Of few entries a sample may meet none.
            let entries = shard.len() as u64 * PARTS;
            parts += (entries * live).checked_div(seen).unwrap_or(entries);
            usage.bytes += shard.all_bytes() as u64;
            usage.evicted_live += shard.evicted_live + shard.evicted_ids();
            usage.evicted_blocks += shard.evicted_blocks();
            usage.new_keys += shard.created;
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
    fn unused(&self, now: Tick) -> Option<Unused> {
        let (mut fresh_at, mut bytes) = (0, size_of_val(&*self.shards));
        for place in &self.shards {
            let mut shard = lock(&place.shard);
            shard.sweep(usize::MAX, now);
            fresh_at = shard.fresh_after().max(fresh_at);
            bytes += shard.all_bytes();
        }
        let is_in_use = A::HOLDS_SLOTS && fresh_at == Tick::MAX;
        (!is_in_use).then_some(Unused { fresh_at, bytes })
    }

    fn used_units(&self, carry_over: &CarryOver, now: Tick) -> Vec<UsedUnits> {
        let mut used = Vec::new();
        for place in &self.shards {
            let shard = lock(&place.shard);
            used.extend(shard.iter().filter_map(|entry| {
                carry_over.units(entry.key(), shard.writer(entry)?, &entry.state, now)
            }));
        }
        used
    }

    fn take_sides(&self) -> ShardSides {
        let places = self.shards.iter();
        places
            .map(|place| lock(&place.shard).take_sides())
            .collect()
    }

    fn begin_with(&self, used: &[UsedUnits], sides: ShardSides, hasher: &Hasher, now: Tick) {
        let mut sides = sides.into_iter();
        for place in &self.shards {
            let mut shard = lock(&place.shard);
            shard.clear();
            place.denials.iter().for_each(SeqLine::clear);
            shard.put_sides(sides.next().flatten());
        }
        for UsedUnits {
            key,
            units,
            quota,
            debt,
        } in used
        {
            let Some(plan) = Plan::<A>::new(quota, None, *debt, hasher) else {
                continue;
            };
            let mut state = A::State::default();
            plan.quota.charge(&mut state, now, *units);
            let mut shard = lock(&self.place(*key).shard);
            shard.remove(*key);
            shard.insert(*key, &plan, state, now);
        }
    }
}

/// The quotas of a rule, and those of another algorithm in their place.
pub(super) struct CarryOver {
    /// The rule's own first, then its plans by name.
    quotas: Vec<(Quota, Quota)>,
    /// How long requests waited at most before.
    waited: Option<Duration>,
    /// How many units may be owed, before and now.
    debts: (u64, u64),
}

/// What a client has used under one algorithm, for a state under another.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedUnits {
    pub(super) key: Fingerprint,
    pub(super) units: u64,
    /// The quota that they are charged to.
    pub(super) quota: Quota,
    /// How many units of it may be owed.
    pub(super) debt: u64,
}

impl CarryOver {
    pub(super) fn new(before: &Rule, after: &Rule) -> Self {
        let plans = before.plan_names().filter_map(|name| {
            let number = |rule: &Rule| rule.plan_number(name);
            let (old, new) = (number(before)?, number(after)?);
            Some((*before.quota_of(old), *after.quota_of(new)))
        });
        let own = (*before.quota(), *after.quota());
        Self {
            quotas: std::iter::once(own).chain(plans).collect(),
            waited: before.at_most_wait(),
            debts: (before.debt_of(), after.debt_of()),
        }
    }

    /// What a state counts for, parts of a unit as a whole one. It is charged to the quota in the place of the one that wrote it;
    /// where that is not known, or has no limit now, to the first that has one.
    pub(super) fn units<A: Algorithm>(
        &self,
        key: Fingerprint,
        writer: &Plan<A>,
        state: &A::State,
        now: Tick,
    ) -> Option<UsedUnits> {
        let wrote = |(before, _): &&(Quota, Quota)| {
            counted(before, self.waited, self.debts.0).as_ref() == Some(&writer.quota)
        };
        let is_limited = |(_, after): &&(Quota, Quota)| after.has_state();
        let mut known = self.quotas.iter().filter(wrote).filter(is_limited);
        let (_, quota) = known
            .next()
            .or_else(|| self.quotas.iter().find(is_limited))?;
        let left = writer.quota.assess(state, now, 0).remaining;
        let used = writer.limit.saturating_sub(left).min(quota.limit());
        let units = used + writer.quota.debt(state, now);
        let (quota, debt) = (*quota, self.debts.1);
        (units > 0).then_some(UsedUnits {
            key,
            units,
            quota,
            debt,
        })
    }
}
