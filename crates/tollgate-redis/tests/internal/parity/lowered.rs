//! Counts that random histories do not reach: larger than the limit, after it was lowered.

use std::{sync::Arc, time::Duration};

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder, reply::Reply},
};
use tollgate_core::{
    Check, DAY, ManualClock, MemoryStore, Quota, Rule, RuleSet, SECOND, Store as _,
    store::{Fingerprint, RuleStore},
};
use tollgate_test_servers::redis_client::Integers as _;

use crate::internal_tests::parity::{expected::Expected, server::Server};

/// One rule, in memory and on a server.
#[derive(Debug)]
struct Pair {
    server: Server,
    clock: ManualClock,
    memory: MemoryStore,
}

/// The rule at a quota of its own.
#[derive(Debug)]
struct Bound {
    memory: Arc<dyn RuleStore>,
    encoder: Encoder,
}

impl Pair {
    fn new() -> Self {
        let clock = ManualClock::new(0);
        Self {
            server: Server::start(),
            memory: MemoryStore::builder().clock(&clock).build(),
            clock,
        }
    }

    fn at(&self, quota: Quota) -> Bound {
        let rules = Arc::new(RuleSet::new([Rule::new("rule", quota)]).expect("a valid rule"));
        let keyspace = Keyspace::new("tg", Partition::Key).expect("letters");
        Bound {
            encoder: Encoder::new(&rules, keyspace).expect("no plans"),
            memory: self.memory.bind(rules).expect("a valid rule"),
        }
    }

    /// Asks both, compares them, and says whether the units were there.
    fn acquire(&mut self, bound: &Bound, now: u64, cost: u64) -> bool {
        self.clock.set(now);
        let checks = vec![Check::new(0, Fingerprint::from_bits(7), cost)];
        let decision = bound.memory.acquire(&checks).ready().expect("at once");
        let mut call = Call::at(now, Duration::from_secs(10_000_000_000));
        let layout = call
            .acquire(&bound.encoder, &checks)
            .expect("there is room");
        let value = self.server.run(&call);
        let reply = Reply::new(call.checks(), value.integers()).expect("a whole reply");
        let allowed = decision.is_allowed();
        let by_script = reply.decision(&layout, &checks, bound.memory.rules());
        let expected = Expected {
            step: now,
            checks: &checks,
            rules: bound.memory.rules(),
            decision,
        };
        expected.compare(&by_script, 0);
        allowed
    }
}

#[test]
fn a_count_far_above_the_limit_is_weighed_to_the_unit() {
    let mut pair = Pair::new();
    let day = DAY.as_micros() as u64;
    let start = 20_000 * day;
    let large = pair.at(Quota::sliding_window(1_000_000, DAY));
    let small = pair.at(Quota::sliding_window(60, DAY));
    let other = pair.at(Quota::sliding_window(4_000_000, 2 * DAY));
    // A prime, and overlaps whose products with it lie by a few units above a multiple of the window: a double would
    // round them down to it.
    let (prime, inverse) = (999_983, 79_485_117_647);
    for above in 1..8 {
        let start = start + above * 100 * day;
        assert!(pair.acquire(&large, start, prime));
        // In the next window a denial writes the state under the small limit, and one of another length counts it.
        assert!(!pair.acquire(&small, start + day, 1));
        let overlap = inverse * above % day;
        assert!(overlap * prime % day == above && overlap > day / 9);
        assert!(pair.acquire(&other, start + 2 * day - overlap, 0));
    }
}

#[test]
fn counts_beyond_32_bits_are_carried_over_as_32_bits() {
    let mut pair = Pair::new();
    let most = u64::from(u32::MAX);
    let second = pair.at(Quota::sliding_window(most, SECOND));
    let two = pair.at(Quota::sliding_window(most, 2 * SECOND));
    let start = 1_700_000_001_000_000;
    assert!(pair.acquire(&second, start, most));
    assert!(pair.acquire(&second, start + 1_999_999, most - 4_295));
    // Back, where all of the window before counts.
    assert!(pair.acquire(&two, start - 500_000, 0));
    assert!(!pair.acquire(&two, start - 500_000, 1));
}
