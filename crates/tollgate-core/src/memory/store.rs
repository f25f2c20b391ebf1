//! The memory store, and how a rule set finds its tables in it.

use std::{any::Any, collections::HashMap, fmt, sync::Arc};

use crate::{
    algorithm::Algorithm,
    error::{RuleError, RuleErrorKind},
    memory::{
        bound::{BoundMemory, BoundRule, Tied},
        hasher::Hasher,
        table::{Plan, Table},
    },
    quota::AlgorithmKind,
    rule::Rule,
    rule_set::RuleSet,
    store::{BoundStore, Store},
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

/// A table of any family.
type AnyTable = Arc<dyn Any + Send + Sync>;

struct Shared {
    tables: Mutex<HashMap<(Arc<str>, Family), AnyTable>>,
    clock: Clock,
    hasher: Hasher,
    bytes_per_rule: usize,
}

/// Algorithms with one state machine share their tables; no other reads them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    Arrival,
    FixedWindow,
    SlidingWindow,
    SlidingBuckets,
    SlidingLog,
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
                tables: Mutex::new(HashMap::new()),
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
}

impl Shared {
    fn table<A: Algorithm>(&self, rule: &Rule, family: Family) -> Arc<Table<A>> {
        let mut tables = lock(&self.tables);
        let table = tables
            .entry((Arc::clone(rule.shared_name()), family))
            .or_insert_with(|| {
                let shards = (self.bytes_per_rule / LEAST_BYTES).clamp(1, SHARDS);
                // A power of two, so that a shard is found by a mask.
                let shards = 1 << shards.ilog2();
                Arc::new(Table::<A>::new(self.bytes_per_rule, shards))
            });
        // A family is one algorithm, so the table is of this type.
        Arc::clone(table)
            .downcast()
            .unwrap_or_else(|_| Arc::new(Table::new(self.bytes_per_rule, 1)))
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

    /// Forgets the tables of names that no rule set uses any more and that hold no state.
    fn forget_unused(&self) {
        lock(&self.tables).retain(|_, table| Arc::strong_count(table) > 1 || !is_empty(table));
    }
}

fn is_empty(table: &AnyTable) -> bool {
    fn empty<A: Algorithm>(table: &AnyTable) -> bool {
        table
            .downcast_ref::<Table<A>>()
            .is_some_and(Table::is_empty)
    }
    use crate::algorithm as a;
    empty::<a::Arrival>(table)
        || empty::<a::FixedWindow>(table)
        || empty::<a::SlidingWindow>(table)
        || empty::<a::SlidingBuckets>(table)
        || empty::<a::SlidingLog>(table)
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

impl Store for MemoryStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn BoundStore>, RuleError> {
        let shared = &*self.shared;
        shared.forget_unused();
        let bound = rules
            .rules()
            .iter()
            .enumerate()
            .map(|(place, rule)| {
                // A mark reads the table of its rule.
                let of = match rule.mode() {
                    crate::rule::Mode::Mark { .. } => {
                        rules.refers_to(place).map_or(rule, |of| &rules.rules()[of])
                    }
                    _ => rule,
                };
                let limited = (0..rule.quotas())
                    .map(|plan| rule.quota_of(plan))
                    .find(|quota| !quota.is_unlimited());
                Ok(match limited.map(crate::quota::Quota::algorithm) {
                    None | Some(AlgorithmKind::Unlimited) => BoundRule::Unlimited,
                    Some(
                        AlgorithmKind::TokenBucket
                        | AlgorithmKind::Gcra
                        | AlgorithmKind::LeakyBucket,
                    ) => BoundRule::Arrival(shared.tie(rule, of, Family::Arrival)?),
                    Some(AlgorithmKind::FixedWindow) => {
                        BoundRule::FixedWindow(shared.tie(rule, of, Family::FixedWindow)?)
                    }
                    Some(AlgorithmKind::SlidingWindow) => {
                        BoundRule::SlidingWindow(shared.tie(rule, of, Family::SlidingWindow)?)
                    }
                    Some(AlgorithmKind::SlidingBuckets) => {
                        BoundRule::SlidingBuckets(shared.tie(rule, of, Family::SlidingBuckets)?)
                    }
                    Some(AlgorithmKind::SlidingLog) => {
                        BoundRule::SlidingLog(shared.tie(rule, of, Family::SlidingLog)?)
                    }
                })
            })
            .collect::<Result<Box<[_]>, RuleError>>()?;
        Ok(Arc::new(BoundMemory {
            rules,
            ranks: bound.iter().map(BoundRule::rank).collect(),
            bound,
            clock: shared.clock.clone(),
            hasher: shared.hasher.clone(),
        }))
    }
}
