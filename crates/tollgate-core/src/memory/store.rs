//! The memory store, and how a rule set finds its tables in it.

use std::{collections::HashMap, fmt, sync::Arc};

use crate::{
    algorithm::Algorithm,
    error::{RuleError, RuleErrorKind},
    memory::{
        bound::{BoundMemory, BoundRule, Tied},
        family::{Family, TableName},
        hasher::Hasher,
        table::{AnyTable, PackedTable, Plan, Table},
        unbound::UnboundTables,
    },
    registry::RuleRegistry,
    rule::{Mode, Rule},
    rule_set::RuleSet,
    store::{BoundStore, Store, Usage},
    sync::{Mutex, lock},
    time::Clock,
};

/// The most bytes of a rule's states, unless told otherwise: room for 1.5 million keys of a bucket or a window.
const BYTES_PER_RULE: usize = 64 << 20;
const LEAST_BYTES: usize = 64 << 10;
const SHARDS: usize = 64;

/// Limits in one process: exact, bounded in memory, nothing to spawn and nothing to clean up.
///
/// Cheap to clone; clones share their state. A rule name is one budget per store.
///
/// See the [module documentation](crate::memory).
///
/// ```
/// use tollgate_core::{Key, Limiter, MINUTE, MemoryStore, Quota, Rule};
///
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [Rule::new("mails-per-account", Quota::sliding_window(2, MINUTE))],
/// )?;
/// let key = Key::of("account-7");
/// assert!(limiter.try_acquire("mails-per-account", &key)?.is_allowed());
/// assert!(limiter.try_acquire("mails-per-account", &key)?.is_allowed());
/// assert!(!limiter.try_acquire("mails-per-account", &key)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    tables: Mutex<Tables>,
    registry: RuleRegistry,
    pub(super) clock: Clock,
    pub(super) hasher: Hasher,
    bytes_per_rule: usize,
}

struct Tables {
    bound: HashMap<TableName, Arc<dyn AnyTable>>,
    unbound: UnboundTables,
}

/// Sets up a [`MemoryStore`].
#[must_use = "finish with `.build()`"]
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    clock: Clock,
    bytes_per_rule: usize,
}

impl MemoryStoreBuilder {
    /// The clock. The system's, unless told otherwise.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// The most bytes that the states of one rule may take. Default: 64 MiB; at least 64 KiB.
    ///
    /// At this bound, expired entries are evicted first, then the least-used ones; entries that deny at present go last.
    /// See the [module documentation](crate::memory#memory-is-bounded).
    ///
    /// A key of a bucket or a window of counters takes 43 to 64 bytes: 32, in a table that is half to three quarters full.
    /// While one of a rule's 64 shards grows, its old table is there as well. Sub-buckets take 4 bytes each more, a log
    /// 16 for each instant.
    pub fn bytes_per_rule(mut self, bytes: usize) -> Self {
        self.bytes_per_rule = bytes.max(LEAST_BYTES);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore {
            shared: Arc::new(Shared {
                tables: Mutex::new(Tables {
                    bound: HashMap::new(),
                    unbound: UnboundTables::new(self.bytes_per_rule),
                }),
                registry: RuleRegistry::new(),
                clock: self.clock,
                hasher: Hasher::default(),
                bytes_per_rule: self.bytes_per_rule,
            }),
        }
    }
}

impl MemoryStore {
    /// A store on the system's clock with the usual bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store with a clock or bounds of your own.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Clock::system(),
            bytes_per_rule: BYTES_PER_RULE,
        }
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// What is kept of rule names that no limiter or layer uses at present: until it equals fresh states, and within the
    /// bound of one rule for all of them together.
    #[must_use]
    pub fn unbound_usage(&self) -> Usage {
        lock(&self.shared.tables).unbound.usage()
    }
}

impl Shared {
    fn table<A: Algorithm>(&self, rule: &Rule, family: Family) -> Arc<Table<A>> {
        let mut tables = lock(&self.tables);
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

    fn tie<A: Algorithm>(
        &self,
        rule: &Rule,
        of: &Rule,
        family: Family,
    ) -> Result<Tied<A>, RuleError> {
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
            Some(plans) => Ok(Tied { table, plans }),
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
        let mut tables = lock(&self.tables);
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

    /// Ties a rule to its table. `of` is the rule whose table it reads: a mark has none of its own.
    fn bind_rule(&self, rule: &Rule, of: &Rule) -> Result<BoundRule, RuleError> {
        Ok(match Family::of(rule) {
            None => BoundRule::Unlimited,
            Some(family @ Family::Arrival) => BoundRule::Arrival(self.tie(rule, of, family)?),
            Some(family @ Family::FixedWindow) => {
                BoundRule::FixedWindow(self.tie(rule, of, family)?)
            }
            Some(family @ Family::SlidingWindow) => {
                BoundRule::SlidingWindow(self.tie(rule, of, family)?)
            }
            Some(family @ Family::SlidingBuckets) => {
                BoundRule::SlidingBuckets(self.tie(rule, of, family)?)
            }
            Some(family @ Family::SlidingLog) => BoundRule::SlidingLog(self.tie(rule, of, family)?),
        })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("clock", &self.shared.clock)
            .field("bytes_per_rule", &self.shared.bytes_per_rule)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn BoundStore>, RuleError> {
        let shared = &self.shared;
        lock(&shared.tables)
            .unbound
            .forget_fresh(shared.clock.now());
        let bound = rules
            .rules()
            .iter()
            .enumerate()
            .map(|(place, rule)| {
                let of = match rule.mode() {
                    Mode::Mark { .. } => rules.refers_to(place),
                    _ => None,
                };
                shared.bind_rule(rule, of.map_or(rule, |of| &rules.rules()[of]))
            })
            .collect::<Result<Box<[_]>, RuleError>>();
        match bound {
            Ok(bound) => Ok(Arc::new(BoundMemory::new(rules, bound, Arc::clone(shared)))),
            Err(error) => {
                shared.release(&rules);
                Err(error)
            }
        }
    }

    fn registry(&self) -> &RuleRegistry {
        &self.shared.registry
    }
}
