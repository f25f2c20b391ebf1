//! The memory store.

use std::sync::Arc;

use crate::{
    error::RuleError,
    memory::{
        rule_store::MemoryRuleStore,
        tables::{LEAST_BYTES, Tables},
    },
    rule_set::RuleSet,
    store::{
        registry::RuleRegistry,
        rule_store::{RuleStore, Store},
    },
    time::Clock,
};

/// The default byte limit of a rule's states: room for 1.5 million keys of a bucket or a window.
const BYTES_PER_RULE: usize = 64 << 20;

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
    tables: Arc<Tables>,
    registry: RuleRegistry,
}

/// Sets up a [`MemoryStore`].
#[must_use = "finish with `.build()`"]
#[derive(Clone, Debug)]
pub struct MemoryStoreBuilder {
    clock: Clock,
    bytes_per_rule: usize,
}

impl MemoryStoreBuilder {
    /// The clock. Default: the system's.
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
    /// While one of a rule's 64 shards grows, its old table is there as well. Sub-buckets take 4 bytes each more, and a log takes
    /// [64 to 80, and 16 for each instant](crate::algorithm::sliding_log#state).
    pub fn bytes_per_rule(mut self, bytes: usize) -> Self {
        self.bytes_per_rule = bytes.max(LEAST_BYTES);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore {
            tables: Arc::new(Tables::new(self.clock, self.bytes_per_rule)),
            registry: RuleRegistry::default(),
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
    #[doc(alias = "with_clock")]
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Clock::system(),
            bytes_per_rule: BYTES_PER_RULE,
        }
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.tables.clock
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

crate::debug_fields!(MemoryStore, it => clock: it.tables.clock, bytes_per_rule: it.tables.bytes_per_rule);

impl Store for MemoryStore {
    fn bind(&self, rules: Arc<RuleSet>) -> Result<Arc<dyn RuleStore>, RuleError> {
        self.tables.forget_unused();
        let tables = Arc::clone(&self.tables);
        Ok(Arc::new(MemoryRuleStore::new(rules, tables)))
    }

    fn registry(&self) -> &RuleRegistry {
        &self.registry
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        key::Key,
        limiter::Limiter,
        quota::Quota,
        rule::Rule,
        time::{HOUR, MINUTE, ManualClock, SECOND},
    };

    fn store() -> (MemoryStore, ManualClock) {
        let clock = ManualClock::new(1_700_000_123_456_789);
        (MemoryStore::builder().clock(&clock).build(), clock)
    }

    fn every(limit: u64, period: Duration) -> [Quota; 5] {
        [
            Quota::gcra(limit, period),
            Quota::fixed_window(limit, period),
            Quota::sliding_window(limit, period),
            Quota::sliding_buckets(limit, period),
            Quota::sliding_log(limit, period),
        ]
    }

    fn limiter(store: &MemoryStore, name: &str, quota: Quota) -> Limiter {
        Limiter::new(store.clone(), [Rule::new(name, quota)]).expect("a valid rule")
    }

    /// Takes `units` of a client through a limiter that is dropped right after.
    fn take(store: &MemoryStore, name: &str, quota: Quota, who: &str, units: u64) -> bool {
        let limiter = limiter(store, name, quota);
        let check = limiter.check(name, &Key::of([who])).expect("a rule");
        let decision = limiter.acquire(&[check.with_cost(units)]).ready();
        decision.expect("memory answers at once").is_allowed()
    }

    #[test]
    fn debug_of_rules_on_a_store_shows_no_states() {
        let (store, _clock) = store();
        let limiter = limiter(&store, "rule", Quota::gcra(5, HOUR));
        let shown = || format!("{:?}", limiter.rule_store());
        let before = shown();
        assert!(limiter.try_acquire("rule", &Key::of(["ann"])).is_ok());
        assert_eq!(shown(), before);
    }

    #[test]
    fn slots_of_a_key_that_was_forgotten_are_numbered_above_those_before() {
        let (store, _clock) = store();
        let mut last = 0;
        for n in 0..3 {
            let limiter = limiter(&store, "at-once", Quota::concurrent(5));
            let check = limiter.check("at-once", &Key::of(["ada"])).expect("a rule");
            let running = [(); 3].map(|()| {
                let decision = limiter.acquire(&[check]).ready().expect("at once");
                let number = decision.verdicts()[0].slot_number().expect("it is free");
                assert!(number > last, "{n}: {number} after {last}");
                last = number;
                decision
            });
            // Nothing is kept of a name without slots in use.
            drop((running, limiter));
            assert_eq!(bound(&store), 0);
        }
    }

    #[test]
    fn slots_outlive_the_rules_that_gave_them_whatever_the_bound_and_go_with_their_requests() {
        let store = MemoryStore::builder().bytes_per_rule(0).build();
        let take = || {
            let limiter = limiter(&store, "at-once", Quota::concurrent(1));
            let decision = limiter.try_acquire("at-once", &Key::shared());
            decision.expect("at once")
        };
        let running = take();
        assert!(running.is_allowed());
        for n in 0..200 {
            assert!(self::take(
                &store,
                &format!("rule-{n}"),
                Quota::gcra(5, HOUR),
                "bob",
                1
            ));
        }
        assert_eq!(bound(&store), 1);
        assert!(!take().is_allowed());
        drop(running);
        assert!(take().is_allowed());
        // When the next name goes, nothing is left of one whose slots are all free.
        assert!(self::take(&store, "other", Quota::gcra(5, HOUR), "bob", 1));
        assert_eq!(bound(&store), 0);
    }

    fn bound(store: &MemoryStore) -> usize {
        store.tables.bound()
    }

    #[test]
    fn names_that_are_gone_leave_their_states_until_they_equal_fresh_ones() {
        let (store, clock) = store();
        for n in 0..400 {
            let quota = every(5, HOUR)[n % 5];
            assert!(take(&store, &format!("rule-{n}"), quota, "ann", 5));
        }
        assert_eq!((bound(&store), store.tables.unused().0), (0, 400));
        for n in [0, 1, 2, 3, 4, 399] {
            let quota = every(5, HOUR)[n % 5];
            let refused = !take(&store, &format!("rule-{n}"), quota, "ann", 1);
            assert!(refused, "what was used stays used: {quota:?}");
        }
        assert_eq!(store.tables.unused().0, 400);
        // The next bind drops them.
        clock.advance(2 * HOUR + 2 * MINUTE);
        let other = limiter(&store, "other", Quota::gcra(1, SECOND));
        assert!(other.try_acquire("other", &Key::shared()).is_ok());
        assert_eq!((bound(&store), store.tables.unused()), (1, (0, 0)));
    }

    #[test]
    fn over_the_bound_of_all_unused_names_the_one_nearest_to_fresh_goes() {
        let clock = ManualClock::new(1_700_000_123_456_789);
        let store = MemoryStore::builder()
            .clock(&clock)
            .bytes_per_rule(0)
            .build();
        assert!(take(
            &store,
            "log-in",
            Quota::sliding_log(5, HOUR),
            "ann",
            5
        ));
        for n in 0..2_000 {
            let name = format!("rule-{n}");
            assert!(take(&store, &name, Quota::gcra(5, MINUTE), "bob", 1));
            let (_, bytes) = store.tables.unused();
            assert!(bytes <= LEAST_BYTES, "{bytes}");
        }
        let (names, _) = store.tables.unused();
        assert!((10..500).contains(&names), "{names}");
        assert!(!take(
            &store,
            "log-in",
            Quota::sliding_log(5, HOUR),
            "ann",
            1
        ));
    }

    #[test]
    fn a_table_lives_as_long_as_a_ticket_and_is_settled() {
        for quota in every(10, HOUR) {
            let (store, _) = store();
            let first = limiter(&store, "rule", quota);
            let check = [first.check("rule", &Key::shared()).expect("a rule")];
            let check = [check[0].with_cost(6)];
            let decision = first.acquire(&check).ready().expect("at once");
            let ticket = first.ticket(&check, &decision);
            drop(first);
            assert_eq!(bound(&store), 1);
            let second = limiter(&store, "rule", quota);
            ticket.settle(4);
            let left = second.try_acquire("rule", &Key::shared()).expect("at once");
            assert_eq!(left.verdicts()[0].remaining(), 5, "{quota:?}");
            drop(second);
            assert_eq!(bound(&store), 0);
        }
    }

    #[test]
    fn a_table_comes_with_the_first_key_and_goes_with_the_last_rule() {
        for threshold in [false, true] {
            let (store, _) = store();
            let plain = Rule::new("rule", Quota::gcra(5, HOUR));
            let rule = match threshold {
                true => plain.threshold("warn", Quota::gcra(5, HOUR).burst(3)),
                false => plain,
            };
            let bind = || Limiter::new(store.clone(), [rule.clone()]).expect("a valid rule");
            let (first, other) = (bind(), bind());
            assert_eq!(bound(&store), 0);
            let ann = Key::of(["ann"]);
            assert!(first.try_acquire("rule", &ann).is_ok());
            assert_eq!(bound(&store), 1);
            drop(first);
            // Nothing has counted here in the other's name.
            assert_eq!((bound(&store), store.tables.unused().0), (0, 1));
            let left = other.try_acquire("rule", &ann).expect("at once");
            assert_eq!(left.verdicts()[0].remaining(), 3);
            assert_eq!((bound(&store), store.tables.unused().0), (1, 0));
            drop(other);
            assert_eq!(bound(&store), 0);
        }
    }
}
