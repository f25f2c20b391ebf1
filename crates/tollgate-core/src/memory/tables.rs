//! The tables of a memory store, by rule name.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    algorithm::Algorithm,
    memory::{
        balances::Balances,
        carry_over::CarryOver,
        family::{Family, TableName},
        hasher::Hasher,
        open_records::Reservations,
        plan::Plan,
        rule_table::{AnyRuleTable, BoundRule, RuleTable},
        slot_numbers::SlotNumbers,
        table::{AnyTable, PackedTable, Table},
        unbound::UnboundTables,
    },
    rule::{Mode, Rule},
    rule_set::RuleSet,
    store::rule_store::Usage,
    sync::{Mutex, lock},
    time::{Clock, Tick},
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
    pub(super) fn unbound_usage(&self) -> Usage {
        lock(&self.by_name).unbound.usage()
    }

    /// Forgets the unused names whose states all equal fresh ones.
    pub(super) fn forget_fresh(&self) {
        lock(&self.by_name).pack_unused(self.clock.now());
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

    fn rule_table<A: Algorithm>(&self, rule: &Rule, of: &Rule, family: Family) -> RuleTable<A> {
        // Rules are valid, and the quotas of a rule are of one algorithm: it is `None` for one without a limit.
        let plan = |plan| Plan::of_rule(rule.quota_of(plan), rule, &self.hasher);
        RuleTable {
            table: self.table::<A>(of, family),
            plans: (0..rule.quotas()).map(plan).collect(),
            block: rule.block_setting().cloned().map(Arc::new),
            idempotency: rule.idempotency(),
        }
    }

    /// The rules among these whose names have states here.
    pub(super) fn with_states<'a>(
        &self,
        rules: impl IntoIterator<Item = (usize, &'a Rule)>,
    ) -> Vec<usize> {
        let tables = lock(&self.by_name);
        let has_states = |rule: &Rule| {
            let name = (Arc::clone(rule.shared_name()), Family::of(rule)?);
            (tables.bound.contains_key(&name) || tables.unbound.contains(&name)).then_some(())
        };
        let rules = rules.into_iter();
        rules
            .filter_map(|(index, rule)| has_states(rule).map(|()| index))
            .collect()
    }

    /// Whether the name of this rule has states here, under its algorithm.
    pub(super) fn has_states(&self, rule: &Rule) -> bool {
        !self.with_states([(0, rule)]).is_empty()
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
        let (Some(from), Some(to)) = (Family::of(before), Family::of(after)) else {
            return;
        };
        // Slots in use belong to requests that run: nothing else becomes a slot, and no slot becomes anything else.
        if from == to || to == Family::Concurrent {
            return;
        }
        let table = |family| {
            let name = (Arc::clone(after.shared_name()), family);
            lock(&self.by_name).bound.get(&name).map(Arc::clone)
        };
        let (old, now) = (table(from), self.clock.now());
        let Some(new) = table(to) else {
            return;
        };
        // Without a table nothing was used; what the new one has of earlier times does not count.
        let old = old.filter(|_| from != Family::Concurrent);
        let carry_over = CarryOver::new(before, after);
        let (used, sides) = match &old {
            Some(old) => (old.used_units(&carry_over, now), old.take_sides()),
            None => Default::default(),
        };
        new.begin_with(&used, sides, &self.hasher, now);
    }

    /// The rule at this index of a rule set on its table.
    pub(super) fn bind_rule(&self, rules: &RuleSet, index: usize) -> AnyRuleTable {
        let rule = &rules.rules()[index];
        // A threshold has no table of its own: it reads that of its rule.
        let of = match rule.mode() {
            Mode::Threshold { .. } => rules.refers_to(index),
            _ => None,
        };
        let of = of.map_or(rule, |of| &rules.rules()[of]);
        match Family::of(rule) {
            None => AnyRuleTable::Unlimited,
            Some(family @ Family::Gcra) => AnyRuleTable::Gcra(self.rule_table(rule, of, family)),
            Some(family @ Family::FixedWindow) => {
                AnyRuleTable::FixedWindow(self.rule_table(rule, of, family))
            }
            Some(family @ Family::SlidingWindow) => {
                AnyRuleTable::SlidingWindow(self.rule_table(rule, of, family))
            }
            Some(family @ Family::SlidingBuckets) => {
                AnyRuleTable::SlidingBuckets(self.rule_table(rule, of, family))
            }
            Some(family @ Family::SlidingLog) => {
                AnyRuleTable::SlidingLog(self.rule_table(rule, of, family))
            }
            Some(family @ Family::Concurrent) => {
                AnyRuleTable::Concurrent(self.rule_table(rule, of, family))
            }
        }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}
