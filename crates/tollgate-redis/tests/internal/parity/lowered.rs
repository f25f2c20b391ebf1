//! Counts that random histories do not reach: larger than the limit, after it was lowered; and what another quota has counted.

use std::{sync::Arc, time::Duration};

use crate::{
    keys::keyspace::{Keyspace, Partition},
    script::{call::Call, encoder::Encoder, reply::Reply},
};
use tollgate_core::{
    Check, DAY, MINUTE, ManualClock, MemoryStore, Quota, Rule, RuleSet, SECOND, Store as _,
    algorithm::Taken,
    store::{Fingerprint, Receipt, RuleStore, Settlement},
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

    /// Gives units back to both, whether they were taken so or not.
    fn refund(&mut self, bound: &Bound, now: u64, units: u64, taken: Taken) {
        self.clock.set(now);
        let check = Check::new(0, Fingerprint::from_bits(7), units);
        let receipt = Receipt::of_store(check, taken);
        bound.memory.settle(&[receipt], Settlement::Cancel);
        let mut call = Call::at(now, Duration::from_secs(10_000_000_000));
        assert!(call.settle(&bound.encoder, &receipt, Settlement::Cancel));
        self.server.run(&call);
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

#[test]
fn a_request_that_never_fits_a_larger_quota_forgets_no_window_of_the_smaller_one() {
    let mut pair = Pair::new();
    let small = pair.at(Quota::fixed_window(5, SECOND));
    let large = pair.at(Quota::fixed_window(10, SECOND));
    let start = 1_700_000_001_000_000;
    assert!(pair.acquire(&small, start, 5));
    assert!(!pair.acquire(&large, start + 1_000_000, 11));
    // Back, where the window is not over.
    assert!(!pair.acquire(&small, start, 1));
    assert!(pair.acquire(&large, start, 5));
    assert!(!pair.acquire(&large, start, 1));
}

#[test]
fn units_that_come_back_from_several_sub_buckets_are_as_many_as_were_given_back() {
    let start = 1_700_000_040_000_000;
    for (units, left) in [(3, 88), (5, 90), (7, 92), (15, 100), (16, 100)] {
        let mut pair = Pair::new();
        let fine = pair.at(Quota::sliding_buckets(100, MINUTE).buckets(60));
        let coarse = pair.at(Quota::sliding_buckets(100, MINUTE).buckets(30));
        assert!(pair.acquire(&coarse, start, 5));
        assert!(pair.acquire(&coarse, start + 2_000_000, 10));
        let now = start + 3_000_000;
        let taken = Taken::new(start, start + 61_000_000);
        pair.refund(&fine, now, units, taken);
        assert!(pair.acquire(&coarse, now, left), "{units}");
        assert!(!pair.acquire(&coarse, now, 1), "{units}");
    }
}
