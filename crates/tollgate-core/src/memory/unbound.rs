//! The states of names that no limiter or layer uses at present.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::{algorithm_kind::AlgorithmKind, store::rule_store::Usage, time::Tick};

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

/// The states of a table, without it.
#[derive(Debug)]
pub(super) struct Packed {
    /// A `PackedTable` of the family's algorithm.
    pub(super) table: Box<dyn Any + Send>,
    /// From when on all of its states equal fresh ones.
    pub(super) fresh_at: Tick,
    pub(super) keys: u64,
    pub(super) bytes: usize,
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

    #[cfg(all(test, not(tollgate_shuttle)))]
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
