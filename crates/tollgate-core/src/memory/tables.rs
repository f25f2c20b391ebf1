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
        shard::SlotNumbers,
        table::{AnyTable, CarryOver, Packed, PackedTable, Table},
    },
    rule::{Mode, Rule},
    rule_set::RuleSet,
    store::rule_store::Usage,
    sync::{Mutex, lock},
    time::{Clock, Tick},
};
use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    sync::Arc,
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
    pub(super) slot_numbers: SlotNumbers,
    pub(super) reservations: Reservations,
    pub(super) balances: Mutex<Balances>,
}

struct ByName {
    bound: HashMap<TableName, Arc<dyn AnyTable>>,
    unbound: UnboundTables,
}

impl ByName {
    /// Packs the tables that nothing is bound to, and forgets the unused names whose states all equal fresh ones. A table stays as it is
    /// while requests that run hold slots of it.
    fn pack_unused(&mut self, now: Tick) {
        self.bound.retain(|name, table| {
            if Arc::strong_count(table) > 1 || table.has_slots_in_use() {
                return true;
            }
            if let Some(packed) = table.pack(now) {
                self.unbound.insert(name.clone(), packed);
            }
            false
        });
        self.unbound.forget_fresh(now);
    }
}

impl Tables {
    pub(super) fn new(clock: Clock, bytes_per_rule: usize) -> Self {
        Self {
            by_name: Mutex::new(ByName {
                bound: HashMap::new(),
                unbound: UnboundTables::new(bytes_per_rule),
            }),
            slot_numbers: SlotNumbers::new(clock.now()),
            reservations: Reservations::default(),
            balances: Mutex::default(),
            clock,
            hasher: Hasher::default(),
            bytes_per_rule,
        }
    }

    /// What is kept of names that no rule set uses.
    #[cfg(test)]
    pub(super) fn unbound_usage(&self) -> crate::store::rule_store::Usage {
        lock(&self.by_name).unbound.usage()
    }

    /// Forgets the unused names whose states all equal fresh ones.
    pub(super) fn forget_fresh(&self) {
        lock(&self.by_name).pack_unused(self.clock.now());
    }

    /// How many names rule sets use.
    #[cfg(test)]
    pub(super) fn bound(&self) -> usize {
        lock(&self.by_name).bound.len()
    }

    fn table<A: Algorithm>(&self, name: TableName) -> Arc<Table<A>> {
        let tables = &mut *lock(&self.by_name);
        // A state machine is one algorithm, so a table is of this type.
        let known = tables.bound.get(&name).map(Arc::clone);
        let known = known.map(|table| table as Arc<dyn Any + Send + Sync>);
        if let Some(table) = known.and_then(|table| table.downcast().ok()) {
            return table;
        }
        let shards = (self.bytes_per_rule / LEAST_BYTES).clamp(1, SHARDS);
        // A power of two, so that a shard is found by a mask.
        let shards = 1 << shards.ilog2();
        let table = Table::<A>::new(self.bytes_per_rule, shards);
        let packed = tables.unbound.remove(&name);
        if let Some(packed) = packed.and_then(|packed| packed.table.downcast().ok()) {
            let packed: Box<PackedTable<A>> = packed;
            table.unpack(*packed, self.clock.now());
        }
        let table = Arc::new(table);
        tables.bound.insert(name, Arc::clone(&table) as _);
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
        let tables = lock(&self.by_name);
        let has = |name| tables.bound.contains_key(&name) || tables.unbound.contains(&name);
        table_name(rule, rule).is_some_and(has)
    }

    /// Drops rules on their tables, and packs the tables that nothing is bound to any more.
    pub(super) fn release(&self, bound: &mut [BoundRule]) {
        let mut tables = lock(&self.by_name);
        // Under this lock alone a table loses an owner, or gets one from this map.
        for rule in bound {
            drop(rule.table.take());
        }
        tables.pack_unused(self.clock.now());
    }

    /// Carries used units over to a rule that has taken the place of another one with its name. Both are bound.
    pub(super) fn carry_over(&self, before: &Rule, after: &Rule) {
        let (Some(from), Some(to)) = (before.state_machine(), after.state_machine()) else {
            return;
        };
        // Slots in use belong to requests that run: nothing else becomes a slot, and no slot becomes anything else.
        if from == to || to == AlgorithmKind::Concurrent {
            return;
        }
        let table = |state_machine| {
            let name = (Arc::clone(after.shared_name()), state_machine);
            lock(&self.by_name).bound.get(&name).map(Arc::clone)
        };
        let (old, now) = (table(from), self.clock.now());
        let Some(new) = table(to) else {
            return;
        };
        // Without a table nothing was used; what the new one has of earlier times does not count.
        let old = old.filter(|_| from != AlgorithmKind::Concurrent);
        let carry_over = CarryOver::new(before, after);
        let (used, sides) = match &old {
            Some(old) => (old.used_units(&carry_over, now), old.take_sides()),
            None => Default::default(),
        };
        new.begin_with(&used, sides, &self.hasher, now);
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

/// By what a table is found: the name of its rule, and its state machine.
pub(super) type TableName = (Arc<str>, AlgorithmKind);

/// The approximate memory of a name without its states.
const BYTES_PER_NAME: usize = 512;

/// The states of names that no limiter or layer uses at present: packed, without room for more, until they equal fresh ones.
///
/// A name that is bound again finds its usage. Above the budget, the name whose states are closest to fresh is evicted.
#[derive(Debug)]
pub(super) struct UnboundTables {
    budget: usize,
    tables: HashMap<TableName, Packed>,
    order: BTreeSet<(Tick, TableName)>,
    usage: Usage,
}

impl UnboundTables {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget,
            tables: HashMap::new(),
            order: BTreeSet::new(),
            usage: Usage::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn contains(&self, name: &TableName) -> bool {
        self.tables.contains_key(name)
    }

    /// Keeps the states of a name.
    pub(super) fn insert(&mut self, name: TableName, mut packed: Packed) {
        self.remove(&name);
        packed.bytes += BYTES_PER_NAME;
        self.usage.keys += packed.keys;
        self.usage.bytes += packed.bytes as u64;
        self.order.insert((packed.fresh_at, name.clone()));
        self.tables.insert(name, packed);
        while self.usage.bytes > self.budget as u64 && self.tables.len() > 1 {
            let Some((_, nearest)) = self.order.first().cloned() else {
                return;
            };
            let gone = self.remove(&nearest);
            self.usage.evicted_live += gone.map_or(0, |packed| packed.keys);
        }
    }

    /// Hands out what is kept of a name.
    pub(super) fn remove(&mut self, name: &TableName) -> Option<Packed> {
        let packed = self.tables.remove(name)?;
        self.order.remove(&(packed.fresh_at, name.clone()));
        self.usage.keys -= packed.keys;
        self.usage.bytes -= packed.bytes as u64;
        Some(packed)
    }

    /// Forgets the names whose states all equal fresh ones.
    pub(super) fn forget_fresh(&mut self, now: Tick) {
        while let Some((fresh_at, name)) = self.order.first().cloned() {
            if fresh_at > now {
                return;
            }
            self.remove(&name);
        }
    }
}
