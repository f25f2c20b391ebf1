//! The tables of a memory store, by rule name, and the states of names that are not in use.

use crate::{
    algorithm::Algorithm,
    algorithm_kind::AlgorithmKind,
    memory::{
        balances::Balances,
        hasher::Hasher,
        open_records::Reservations,
        plan::Plan,
        rule_table::{AnyRuleTable, BoundRule, RuleTable},
        table::{AnyTable, Table, Unused},
    },
    rule::{Mode, Rule},
    rule_set::RuleSet,
    sync::{AtomicU64, Mutex, lock},
    time::Clock,
};
use std::{any::Any, cmp::Reverse, collections::HashMap, sync::Arc};

/// The fewest bytes of a rule's states.
pub(super) const LEAST_BYTES: usize = 64 << 10;
const SHARDS: usize = 64;

/// The tables of a memory store, and what they share.
pub(super) struct Tables {
    by_name: Mutex<HashMap<TableName, NamedTable>>,
    pub(super) clock: Clock,
    pub(super) hasher: Hasher,
    pub(super) bytes_per_rule: usize,
    /// The last number for slots that a shard has reserved.
    pub(super) last_slot_number: AtomicU64,
    pub(super) reservations: Reservations,
    pub(super) balances: Mutex<Balances>,
}

/// By what a table is found: the name of its rule, and its state machine.
type TableName = (Arc<str>, AlgorithmKind);

struct NamedTable {
    table: Arc<dyn AnyTable>,
    /// Since no rule set uses the name.
    unused: Option<Unused>,
}

impl Tables {
    pub(super) fn new(clock: Clock, bytes_per_rule: usize) -> Self {
        Self {
            by_name: Mutex::default(),
            // So that a process which starts anew goes on above the numbers that it has given before.
            last_slot_number: AtomicU64::new(clock.now()),
            reservations: Reservations::default(),
            balances: Mutex::default(),
            clock,
            hasher: Hasher::default(),
            bytes_per_rule,
        }
    }

    /// The names that no rule set uses, and the bytes of their tables.
    #[cfg(test)]
    pub(super) fn unused(&self) -> (usize, usize) {
        let tables = lock(&self.by_name);
        let unused = tables.values().filter_map(|it| it.unused);
        unused.fold((0, 0), |(names, bytes), it| (names + 1, bytes + it.bytes))
    }

    /// How many names rule sets use.
    #[cfg(test)]
    pub(super) fn bound(&self) -> usize {
        let tables = lock(&self.by_name);
        tables.values().filter(|it| it.unused.is_none()).count()
    }

    /// Forgets the unused names whose states all equal fresh ones, and above the bound of one rule those that come next to it. A table
    /// stays while requests that run hold slots of it.
    pub(super) fn forget_unused(&self) {
        self.forget_unused_of(&mut lock(&self.by_name));
    }

    fn forget_unused_of(&self, tables: &mut HashMap<TableName, NamedTable>) {
        let now = self.clock.now();
        tables.retain(|_, it| {
            if Arc::strong_count(&it.table) == 1 && it.unused.is_none() {
                it.unused = it.table.unused(now);
            }
            it.unused.is_none_or(|unused| unused.fresh_at > now)
        });
        let all = tables.values().filter_map(|it| it.unused);
        if all.map(|it| it.bytes).sum::<usize>() <= self.bytes_per_rule {
            return;
        }
        let unused = tables
            .iter()
            .filter_map(|(name, it)| Some((it.unused?, name.clone())));
        let mut unused: Vec<_> = unused.collect();
        unused.sort_unstable_by_key(|(it, _)| Reverse(it.fresh_at));
        let mut bytes = 0;
        for (index, (it, name)) in unused.iter().enumerate() {
            if bytes + it.bytes > self.bytes_per_rule && index > 0 {
                tables.remove(name);
            } else {
                bytes += it.bytes;
            }
        }
    }

    fn table<A: Algorithm>(&self, name: TableName) -> Arc<Table<A>> {
        let tables = &mut *lock(&self.by_name);
        if let Some(known) = tables.get_mut(&name) {
            known.unused = None;
            // A state machine is one algorithm, so a table is of this type.
            let table = Arc::clone(&known.table) as Arc<dyn Any + Send + Sync>;
            if let Ok(table) = table.downcast() {
                return table;
            }
        }
        let shards = (self.bytes_per_rule / LEAST_BYTES).clamp(1, SHARDS);
        // A power of two, so that a shard is found by a mask.
        let shards = 1 << shards.ilog2();
        let table = Arc::new(Table::<A>::new(self.bytes_per_rule, shards));
        let named = NamedTable {
            table: Arc::clone(&table) as _,
            unused: None,
        };
        tables.insert(name, named);
        table
    }

    fn rule_table<A: Algorithm>(&self, rule: &Rule, name: TableName) -> RuleTable<A> {
        // Rules are valid, and the quotas of a rule are of one algorithm: it is `None` for one without a limit.
        let plan = |quota| Plan::of_rule(quota, rule, &self.hasher);
        RuleTable {
            table: self.table(name),
            plans: rule.all_quotas().map(plan).collect(),
            block: rule.block_setting().cloned().map(Arc::new),
            idempotency: rule.idempotency(),
        }
    }

    /// Whether the name of this rule has states here, under its algorithm.
    pub(super) fn has_states(&self, rule: &Rule) -> bool {
        let has = |name| lock(&self.by_name).contains_key(&name);
        table_name(rule, rule).is_some_and(has)
    }

    /// Drops rules on their tables.
    pub(super) fn release(&self, bound: &mut [BoundRule]) {
        let mut tables = lock(&self.by_name);
        // Under this lock alone a table loses an owner, or gets one from this map.
        for rule in bound {
            drop(rule.table.take());
        }
        self.forget_unused_of(&mut tables);
    }

    /// The rule at this index of a rule set on its table.
    pub(super) fn bind_rule(&self, rules: &RuleSet, index: usize) -> AnyRuleTable {
        use AnyRuleTable as T;
        let rule = &rules.rules()[index];
        // A threshold has no table of its own: it reads that of its rule.
        let of = match rule.mode() {
            Mode::Threshold { .. } => rules.refers_to(index),
            _ => None,
        };
        let Some(name) = table_name(of.map_or(rule, |of| &rules.rules()[of]), rule) else {
            return T::Unlimited;
        };
        match name.1 {
            AlgorithmKind::Gcra => T::Gcra(self.rule_table(rule, name)),
            AlgorithmKind::FixedWindow => T::FixedWindow(self.rule_table(rule, name)),
            AlgorithmKind::SlidingWindow => T::SlidingWindow(self.rule_table(rule, name)),
            AlgorithmKind::SlidingBuckets => T::SlidingBuckets(self.rule_table(rule, name)),
            AlgorithmKind::SlidingLog => T::SlidingLog(self.rule_table(rule, name)),
            AlgorithmKind::Concurrent => T::Concurrent(self.rule_table(rule, name)),
            // State machines have no other names.
            _ => T::Unlimited,
        }
    }
}

/// Where the states of `rule` are, under the name of `of`; `None` where it has none.
fn table_name(of: &Rule, rule: &Rule) -> Option<TableName> {
    Some((Arc::clone(of.shared_name()), rule.state_machine()?))
}

crate::debug_fields!(Tables);
