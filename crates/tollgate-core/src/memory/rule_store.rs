//! A rule set on the memory store.

use std::sync::{Arc, OnceLock};

use crate::{
    check::Check,
    memory::{
        hasher::Hasher,
        locked::Counted,
        rule_table::{AnyRuleTable, BoundRule, MadeReady},
        tables::Tables,
    },
    observe::{block_began, observer::blocks_evicted},
    rule_set::RuleSet,
    store::rule_store::PaidHook,
    time::Clock,
};

#[derive(Debug)]
pub(super) struct MemoryRuleStore {
    pub(super) rules: Arc<RuleSet>,
    pub(super) bound: Box<[BoundRule]>,
    pub(super) clock: Clock,
    pub(super) hasher: Hasher,
    pub(super) shared: Arc<Tables>,
    pub(super) paid: PaidHook,
}

impl MemoryRuleStore {
    pub(super) fn new(rules: Arc<RuleSet>, shared: Arc<Tables>) -> Self {
        let bound = rules.rules().iter();
        let bound = bound.map(|rule| BoundRule {
            is_enforced: rule.is_enforced(),
            table: OnceLock::new(),
        });
        let made = Self {
            clock: shared.clock.clone(),
            hasher: shared.hasher.clone(),
            bound: bound.collect(),
            paid: PaidHook::default(),
            rules,
            shared,
        };
        // States that are there stay in a table when the rules that have used them go.
        let rules = made.rules.rules().iter().enumerate();
        for index in made.shared.with_states(rules) {
            made.bind(index);
        }
        made
    }

    pub(super) fn quotas(&self) -> MadeReady<'_> {
        MadeReady {
            rules: &self.rules,
            hasher: &self.hasher,
        }
    }

    /// The rule at this index on its table.
    pub(super) fn bind(&self, index: usize) -> &AnyRuleTable {
        let table = self.shared.bind_rule(&self.rules, index);
        self.bound[index].table.get_or_init(|| table)
    }

    /// Tells operators of a block that began, and of those that had to go for it.
    pub(super) fn report(&self, rule: u16, counted: &Counted) {
        let Some(rule) = self.rules.rules().get(usize::from(rule)) else {
            return;
        };
        if let Some(began) = counted.began {
            block_began(rule, counted.key, began);
        }
        if let Some(evicted) = counted.evicted {
            blocks_evicted(rule, evicted);
        }
    }

    pub(super) fn rule(&self, check: &Check) -> Option<&AnyRuleTable> {
        self.table(usize::from(check.rule()))
    }

    /// The rule at this index on its table.
    pub(super) fn table(&self, index: usize) -> Option<&AnyRuleTable> {
        let bound = self.bound.get(index)?;
        Some(bound.table.get().unwrap_or_else(|| self.bind(index)))
    }
}

impl Drop for MemoryRuleStore {
    /// The last one that uses a name leaves its states packed.
    fn drop(&mut self) {
        self.shared.release(&self.rules, &mut self.bound);
    }
}
