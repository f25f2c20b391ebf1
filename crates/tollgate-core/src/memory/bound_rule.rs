//! A rule of a rule set on a memory store.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use crate::memory::rule_table::AnyRuleTable;

/// A rule of a rule set on a memory store. It has a table from its first key on: until then it takes one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct BoundRule {
    pub(super) is_enforced: bool,
    /// Nothing waits while it is set, so the explored schedules need not see it.
    table: OnceLock<AnyRuleTable>,
    /// The number of the table, 0 where there is none yet.
    rank: AtomicU64,
}

impl BoundRule {
    /// A rule without a table.
    pub(super) fn new(is_enforced: bool) -> Self {
        Self {
            is_enforced,
            table: OnceLock::new(),
            rank: AtomicU64::new(0),
        }
    }

    pub(super) fn table(&self) -> Option<&AnyRuleTable> {
        self.table.get()
    }

    /// Its table, or else this one from now on.
    pub(super) fn table_or(&self, table: AnyRuleTable) -> &AnyRuleTable {
        self.rank.store(table.rank(), Ordering::Relaxed);
        self.table.get_or_init(|| table)
    }

    /// Unties it from its table.
    pub(super) fn take_table(&mut self) -> Option<AnyRuleTable> {
        self.table.take()
    }

    /// Where its table stands in the order of locks; 0 while it has none.
    pub(super) fn rank(&self) -> u64 {
        self.rank.load(Ordering::Relaxed)
    }
}
