//! The states of names that no limiter or layer uses at present.

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
};

use crate::{memory::family::TableName, store::rule_store::Usage, time::Tick};

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

#[cfg(all(test, not(tollgate_shuttle)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::family::Family;

    fn name(text: &str) -> TableName {
        (Arc::from(text), Family::Gcra)
    }

    fn packed(fresh_at: Tick, keys: u64, bytes: usize) -> Packed {
        Packed {
            table: Box::new(()),
            fresh_at,
            keys,
            bytes,
        }
    }

    fn kept(tables: &UnboundTables) -> (u64, u64, u64) {
        let usage = tables.usage();
        (usage.keys, usage.bytes, usage.evicted_live)
    }

    const NAME: u64 = BYTES_PER_NAME as u64;

    #[test]
    fn the_states_of_a_name_take_the_place_of_those_that_it_had() {
        let mut tables = UnboundTables::new(1 << 20);
        tables.insert(name("a"), packed(5, 3, 100));
        tables.insert(name("a"), packed(9, 2, 50));
        assert_eq!(kept(&tables), (2, NAME + 50, 0));
        tables.forget_fresh(5);
        assert!(tables.contains(&name("a")));
        let states = tables.remove(&name("a")).expect("they are there");
        assert_eq!((states.fresh_at, kept(&tables)), (9, (0, 0, 0)));
    }

    #[test]
    fn above_the_bound_the_names_closest_to_fresh_go_and_one_stays() {
        let mut tables = UnboundTables::new(3 * (BYTES_PER_NAME + 100));
        for (text, fresh_at, keys) in [("b", 20, 4), ("a", 10, 3), ("c", 30, 5)] {
            tables.insert(name(text), packed(fresh_at, keys, 100));
        }
        // At the bound, all of them are there.
        assert_eq!(kept(&tables), (12, 3 * (NAME + 100), 0));
        tables.insert(name("d"), packed(40, 1, 1));
        assert_eq!(kept(&tables), (10, 3 * (NAME + 100) - 99, 3));
        assert!(!tables.contains(&name("a")) && tables.contains(&name("b")));
        // One alone is kept, whatever its size.
        tables.insert(name("e"), packed(50, 7, 1 << 20));
        assert_eq!(kept(&tables), (7, NAME + (1 << 20), 13));
        assert!(tables.contains(&name("e")));
    }

    #[test]
    fn a_name_is_forgotten_at_the_tick_at_which_all_its_states_are_fresh() {
        let mut tables = UnboundTables::new(1 << 20);
        tables.insert(name("a"), packed(10, 1, 1));
        tables.insert(name("b"), packed(11, 1, 1));
        tables.forget_fresh(9);
        assert!(tables.contains(&name("a")));
        tables.forget_fresh(10);
        assert!(!tables.contains(&name("a")) && tables.contains(&name("b")));
        assert_eq!(tables.usage().evicted_live, 0);
    }
}
