//! A rule on its table, whatever its algorithm.

use std::{
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

use crate::{
    algorithm::{
        Algorithm, Assessment, Concurrent, DenyBound, FixedWindow, Gcra, Retry, SlidingBuckets,
        SlidingLog, SlidingWindow,
    },
    block::{ActiveBlock, Block},
    check::Check,
    decision::Verdict,
    hold::Source,
    idempotency::Idempotency,
    memory::{locked::Locked, plan::Plan, table::Table},
    store::seq_cells::SeqLine,
    time::Tick,
};

/// A rule's table, and its quotas made ready. `None` is a plan without a limit.
pub(super) struct RuleTable<A: Algorithm> {
    pub(super) table: Arc<Table<A>>,
    pub(super) plans: Arc<[Option<Plan<A>>]>,
    /// When it blocks keys.
    pub(super) block: Option<Arc<Block>>,
    /// When repeated requests cost nothing.
    pub(super) idempotency: Option<Idempotency>,
}

impl<A: Algorithm> RuleTable<A> {
    fn lock(&self, shard: usize) -> Locked<'_, A> {
        Locked::new(&self.table, self.table.shard(shard))
    }

    /// The quota of a check that brings neither that nor an id along; `None` if it does, or has no limit.
    pub(super) fn plan(&self, check: &Check) -> Option<&Plan<A>> {
        if check.has_id() {
            return None;
        }
        self.plans.get(usize::from(check.plan()))?.as_ref()
    }

    /// The id of a check, and how the rule takes it.
    pub(super) fn id_of(&self, check: &Check) -> Option<(&Idempotency, NonZeroU64)> {
        self.idempotency.as_ref().zip(check.id())
    }

    /// The denial of a check by the deny cache: its key is over the limit, or blocked.
    // Not inlined: its frame would be that of each check.
    #[inline(never)]
    pub(super) fn deny_without_lock(
        &self,
        plan: &Plan<A>,
        check: &Check,
        now: Tick,
        denials: &SeqLine<2>,
    ) -> Option<Verdict> {
        let (key, cost) = (check.key(), check.cost());
        let verdict = |answer| Verdict::new(check.rule(), check.plan(), answer, Source::DenyCache);
        if let Some(block) = &self.block {
            // One that costs nothing is told what is left, and one that waits when it fits.
            if cost == 0 || cost > plan.limit || plan.at_most > 0 {
                return None;
            }
            // A bound is under the number of its quota.
            if let Some([until, level]) = denials.get(key, !plan.id) {
                let (micros, level) = (until.saturating_sub(now), level as u8);
                // A clock went back since: the block is cut to its time.
                if micros > 0 && micros <= block.time_of(level) {
                    let fresh = Assessment::new(true, plan.limit, 0, Retry::Now);
                    let denied = ActiveBlock { micros, level }.deny(fresh, cost);
                    return Some(verdict(denied).with_block_level(level));
                }
            }
            // Denials that count are decided under the lock.
            if !block.counts_settled() {
                return None;
            }
        }
        let [first, second] = denials.get(key, plan.denial_id)?;
        let denied = plan.quota.deny_by(DenyBound(first, second), now, cost);
        denied.map(verdict)
    }
}

/// A rule of a rule set. It has a table from its first key on: until then it takes one cache line.
#[repr(align(64))]
pub(super) struct BoundRule {
    pub(super) is_enforced: bool,
    /// Nothing waits while it is set, so the explored schedules need not see it.
    pub(super) table: OnceLock<AnyRuleTable>,
}

/// A rule on its table.
pub(super) enum AnyRuleTable {
    Gcra(RuleTable<Gcra>),
    FixedWindow(RuleTable<FixedWindow>),
    SlidingWindow(RuleTable<SlidingWindow>),
    SlidingBuckets(RuleTable<SlidingBuckets>),
    SlidingLog(RuleTable<SlidingLog>),
    Concurrent(RuleTable<Concurrent>),
    /// A rule whose every quota is without a state.
    Unlimited,
}

/// A locked shard of any table.
pub(super) enum AnyLocked<'a> {
    Gcra(Locked<'a, Gcra>),
    FixedWindow(Locked<'a, FixedWindow>),
    SlidingWindow(Locked<'a, SlidingWindow>),
    SlidingBuckets(Locked<'a, SlidingBuckets>),
    SlidingLog(Locked<'a, SlidingLog>),
    Concurrent(Locked<'a, Concurrent>),
}

/// Runs `$body` with the rule's table and plans, whatever their algorithm.
macro_rules! with_table {
    ($rule:expr, $rule_table:ident => $body:expr, else $other:expr) => {
        match $rule {
            AnyRuleTable::Gcra($rule_table) => $body,
            AnyRuleTable::FixedWindow($rule_table) => $body,
            AnyRuleTable::SlidingWindow($rule_table) => $body,
            AnyRuleTable::SlidingBuckets($rule_table) => $body,
            AnyRuleTable::SlidingLog($rule_table) => $body,
            AnyRuleTable::Concurrent($rule_table) => $body,
            AnyRuleTable::Unlimited => $other,
        }
    };
}

/// Runs `$body` with a rule and the lock of its table. A lock of another algorithm is another table's.
macro_rules! with_locked {
    ($rule:expr, $lock:expr, ($rule_table:ident, $locked:ident) => $body:expr, else $other:expr) => {
        match ($rule, $lock) {
            (AnyRuleTable::Gcra($rule_table), AnyLocked::Gcra($locked)) => $body,
            (AnyRuleTable::FixedWindow($rule_table), AnyLocked::FixedWindow($locked)) => $body,
            (AnyRuleTable::SlidingWindow($rule_table), AnyLocked::SlidingWindow($locked)) => $body,
            (AnyRuleTable::SlidingBuckets($rule_table), AnyLocked::SlidingBuckets($locked)) => {
                $body
            }
            (AnyRuleTable::SlidingLog($rule_table), AnyLocked::SlidingLog($locked)) => $body,
            (AnyRuleTable::Concurrent($rule_table), AnyLocked::Concurrent($locked)) => $body,
            _ => $other,
        }
    };
}

impl AnyRuleTable {
    /// The number of the table; 0 where there is none.
    pub(super) fn rank(&self) -> u64 {
        with_table!(self, rule => rule.table.id, else 0)
    }

    pub(super) fn lock(&self, shard: usize) -> Option<AnyLocked<'_>> {
        Some(match self {
            Self::Gcra(rule) => AnyLocked::Gcra(rule.lock(shard)),
            Self::FixedWindow(rule) => AnyLocked::FixedWindow(rule.lock(shard)),
            Self::SlidingWindow(rule) => AnyLocked::SlidingWindow(rule.lock(shard)),
            Self::SlidingBuckets(rule) => AnyLocked::SlidingBuckets(rule.lock(shard)),
            Self::SlidingLog(rule) => AnyLocked::SlidingLog(rule.lock(shard)),
            Self::Concurrent(rule) => AnyLocked::Concurrent(rule.lock(shard)),
            Self::Unlimited => return None,
        })
    }
}

pub(super) use {with_locked, with_table};
