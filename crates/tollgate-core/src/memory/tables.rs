//! The tables of a memory store, by rule name.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    algorithm::Algorithm,
    error::{RuleError, RuleErrorKind},
    memory::{
        carry_over::CarryOver,
        family::{Family, TableName},
        hasher::Hasher,
        plan::Plan,
        rule_table::{AnyRuleTable, RuleTable},
        table::{AnyTable, PackedTable, Table},
        unbound::UnboundTables,
    },
    on_change::OnChange,
    rule::Rule,
    rule_set::RuleSet,
    store::rule_store::Usage,
    sync::{Mutex, lock},
    time::Clock,
};

/// The fewest bytes of a rule's states.
pub(super) const LEAST_BYTES: usize = 64 << 10;
const SHARDS: usize = 64;

/// The tables of a memory store, and what they share.
pub(super) struct Tables {
    by_name: Mutex<ByName>,
    pub(super) clock: Clock,
    pub(super) hasher: Hasher,
    pub(super) bytes_per_rule: usize,
}

struct ByName {
    bound: HashMap<TableName, Arc<dyn AnyTable>>,
    unbound: UnboundTables,
}

impl Tables {
    pub(super) fn new(clock: Clock, bytes_per_rule: usize) -> Self {
        Self {
            by_name: Mutex::new(ByName {
                bound: HashMap::new(),
                unbound: UnboundTables::new(bytes_per_rule),
            }),
            clock,
            hasher: Hasher::default(),
            bytes_per_rule,
        }
    }

    /// What is kept of names that no rule set uses.
    pub(super) fn unbound_usage(&self) -> Usage {
        lock(&self.by_name).unbound.usage()
    }

    /// Forgets the unused names whose states all equal fresh ones.
    pub(super) fn forget_fresh(&self) {
        lock(&self.by_name).unbound.forget_fresh(self.clock.now());
    }

    /// How many names rule sets use.
    #[cfg(all(test, not(tollgate_shuttle)))]
    pub(super) fn bound(&self) -> usize {
        lock(&self.by_name).bound.len()
    }

    fn table<A: Algorithm>(&self, rule: &Rule, family: Family) -> Arc<Table<A>> {
        let mut tables = lock(&self.by_name);
        let tables = &mut *tables;
        let name = (Arc::clone(rule.shared_name()), family);
        // A family is one algorithm, so a table is of this type.
        let known = tables.bound.get(&name).map(Arc::clone);
        if let Some(table) = known.and_then(|table| table.into_any().downcast().ok()) {
            return table;
        }
        let shards = (self.bytes_per_rule / LEAST_BYTES).clamp(1, SHARDS);
        // A power of two, so that a shard is found by a mask.
        let shards = 1 << shards.ilog2();
        let mut table = Table::<A>::new(self.bytes_per_rule, shards);
        let packed = tables.unbound.remove(&name);
        if let Some(packed) = packed.and_then(|packed| packed.table.downcast().ok()) {
            let packed: Box<PackedTable<A>> = packed;
            table.unpack(*packed, self.clock.now());
        }
        let table = Arc::new(table);
        tables.bound.insert(name, Arc::clone(&table) as _);
        table
    }

    fn rule_table<A: Algorithm>(
        &self,
        rule: &Rule,
        of: &Rule,
        family: Family,
    ) -> Result<RuleTable<A>, RuleError> {
        let table = self.table::<A>(of, family);
        let plans: Option<Box<[Option<Plan<A>>]>> = (0..rule.quotas())
            .map(|plan| {
                let quota = rule.quota_of(plan);
                if quota.is_unlimited() {
                    Some(None)
                } else {
                    table.plan(quota).map(Some)
                }
            })
            .collect();
        match plans {
            Some(plans) => Ok(RuleTable { table, plans }),
            None => Err(RuleError::new(
                RuleErrorKind::Store,
                rule.name(),
                "there have been 65 536 different quotas under this name in this store; take a new name or a new store",
            )),
        }
    }

    /// Packs the tables of these rules that nothing is bound to any more.
    pub(super) fn release(&self, rules: &RuleSet) {
        let now = self.clock.now();
        let mut tables = lock(&self.by_name);
        let tables = &mut *tables;
        for rule in rules.given() {
            let Some(family) = Family::of(rule) else {
                continue;
            };
            let name = (Arc::clone(rule.shared_name()), family);
            // Under this lock alone a table gets another owner.
            let is_unbound = |table: &Arc<dyn AnyTable>| Arc::strong_count(table) == 1;
            if tables.bound.get(&name).is_some_and(is_unbound)
                && let Some(table) = tables.bound.remove(&name)
                && let Some(packed) = table.pack(now)
            {
                tables.unbound.insert(name, packed);
            }
        }
        tables.unbound.forget_fresh(now);
    }

    /// Carries used units over to a rule that has taken the place of another one with its name. Both are bound.
    pub(super) fn carry_over(&self, before: &Rule, after: &Rule) {
        let carry_over = CarryOver::new(before, after);
        let (Some(from), Some(to)) = (Family::of(before), Family::of(after)) else {
            return;
        };
        if !carry_over.has_changes() || (from == to && after.change_answer() == OnChange::Keep) {
            return;
        }
        let table = |family| {
            let name = (Arc::clone(after.shared_name()), family);
            lock(&self.by_name).bound.get(&name).map(Arc::clone)
        };
        let (Some(old), Some(new)) = (table(from), table(to)) else {
            return;
        };
        let now = self.clock.now();
        if from == to {
            new.rewrite(&carry_over, now);
        } else {
            new.begin_with(&old.used_units(&carry_over, now), now);
        }
    }

    /// A rule on its table. `of` is the rule whose table it reads: a threshold has none of its own.
    pub(super) fn bind_rule(&self, rule: &Rule, of: &Rule) -> Result<AnyRuleTable, RuleError> {
        Ok(match Family::of(rule) {
            None => AnyRuleTable::Unlimited,
            Some(family @ Family::Gcra) => AnyRuleTable::Gcra(self.rule_table(rule, of, family)?),
            Some(family @ Family::FixedWindow) => {
                AnyRuleTable::FixedWindow(self.rule_table(rule, of, family)?)
            }
            Some(family @ Family::SlidingWindow) => {
                AnyRuleTable::SlidingWindow(self.rule_table(rule, of, family)?)
            }
            Some(family @ Family::SlidingBuckets) => {
                AnyRuleTable::SlidingBuckets(self.rule_table(rule, of, family)?)
            }
            Some(family @ Family::SlidingLog) => {
                AnyRuleTable::SlidingLog(self.rule_table(rule, of, family)?)
            }
        })
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}
