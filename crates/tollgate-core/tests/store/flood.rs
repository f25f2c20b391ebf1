//! A flood of keys: memory stays within its bound, and who was there keeps what was used.

use std::thread;

use tollgate_conformance::SwitchedStore;
use tollgate_core::{
    Check, HOUR, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule, SECOND, Store,
    store::{Fingerprint, Usage},
};

use crate::{LONG, at_once, check, left};

const BOUND: usize = 1 << 20;
const FLOOD: u64 = 2_000_000;

fn limiter(clock: &ManualClock, quota: Quota) -> Limiter {
    let store = MemoryStore::builder()
        .clock(clock)
        .bytes_per_rule(BOUND)
        .build();
    Limiter::new(store, [Rule::new("rule", quota)]).expect("a valid rule")
}

/// A key as a store would make it: spread over all bits, and no two alike.
fn stranger(n: u64) -> Fingerprint {
    let spread = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Fingerprint::from_bits(u128::from(spread) << 64 | u128::from(spread.rotate_left(29)))
}

fn usage(limiter: &Limiter) -> Usage {
    limiter.rule_store().usage(0).expect("memory knows")
}

fn within_bound(limiter: &Limiter) {
    let usage = usage(limiter);
    assert!(usage.bytes <= BOUND as u64, "{usage:?}");
}

fn pass(limiter: &Limiter, n: u64) {
    let decision = limiter.acquire(&[Check::new(0, stranger(n), 1)]);
    assert!(
        decision
            .ready()
            .expect("memory answers at once")
            .is_allowed()
    );
}

#[test]
fn millions_of_keys_stay_within_the_bound_and_a_key_in_use_keeps_its_state() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let limiter = limiter(&clock, Quota::gcra(100, LONG));
    let in_use = [check(&limiter, "rule", "in use", 90)];
    assert!(at_once(limiter.acquire(&in_use)).is_allowed());
    thread::scope(|scope| {
        for half in 0..2 {
            let (limiter, in_use) = (&limiter, &in_use);
            scope.spawn(move || {
                for n in 0..FLOOD / 2 {
                    pass(limiter, 2 * n + half);
                    if n % 50_000 == 0 {
                        within_bound(limiter);
                        assert_eq!(left(limiter, "rule", "in use"), 10);
                        assert!(!at_once(limiter.acquire(in_use)).is_allowed());
                    }
                }
            });
        }
    });
    within_bound(&limiter);
    assert_eq!(left(&limiter, "rule", "in use"), 10);
    let usage = usage(&limiter);
    assert!(usage.keys > 10_000, "the bound is used: {usage:?}");
    assert_eq!(
        usage.evicted_live + usage.keys,
        FLOOD + 1,
        "each eviction is counted"
    );
}

#[test]
fn after_a_flood_its_memory_is_given_back() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    for quota in [
        Quota::gcra(100, MINUTE),
        Quota::fixed_window(100, MINUTE),
        Quota::sliding_window(100, MINUTE),
        Quota::sliding_buckets(100, MINUTE),
        Quota::sliding_log(100, MINUTE),
    ] {
        let limiter = limiter(&clock, quota);
        for n in 0..100_000 {
            pass(&limiter, n);
        }
        assert!(usage(&limiter).bytes > BOUND as u64 / 2, "{quota:?}");
        let evicted = usage(&limiter).evicted_live;
        clock.advance(3 * MINUTE);
        // A few clients at a time from now on.
        for n in 100_000..140_000 {
            pass(&limiter, n);
            clock.advance(MINUTE / 20);
        }
        let usage = usage(&limiter);
        assert!(usage.bytes < BOUND as u64 / 4, "{quota:?}: {usage:?}");
        assert!(usage.keys < 1_000, "{quota:?}: {usage:?}");
        assert_eq!(usage.evicted_live, evicted, "{quota:?}");
    }
}

#[test]
fn a_flood_on_one_rule_evicts_none_of_another() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder()
        .clock(&clock)
        .bytes_per_rule(BOUND)
        .build();
    let quota = Quota::gcra(3, LONG);
    let rules = [Rule::new("flooded", quota), Rule::new("quiet", quota)];
    let limiter = Limiter::new(store, rules).expect("valid rules");
    for n in 0..1_000 {
        let one = [Check::new(1, stranger(n), 1)];
        assert!(at_once(limiter.acquire(&one)).is_allowed());
    }
    for n in 0..200_000 {
        pass(&limiter, n);
    }
    let quiet = limiter.rule_store().usage(1).expect("memory knows");
    assert_eq!((quiet.keys, quiet.evicted_live), (1_000, 0));
}

/// `limit` units an hour under every algorithm.
fn hourly(limit: u64) -> [Quota; 7] {
    [
        Quota::gcra(limit, HOUR),
        Quota::token_bucket(limit).refill(limit, HOUR),
        Quota::leaky_bucket(limit).leak(limit, HOUR),
        Quota::fixed_window(limit, HOUR),
        Quota::sliding_window(limit, HOUR),
        Quota::sliding_buckets(limit, HOUR),
        Quota::sliding_log(limit, HOUR),
    ]
}

/// What is left of the rule for each of `victims`. A cost of 0 is never answered by the deny cache.
fn left_of(limiter: &Limiter, victims: &[Fingerprint]) -> Vec<u64> {
    let left = |key: &Fingerprint| {
        at_once(limiter.acquire(&[Check::new(0, *key, 0)])).verdicts()[0].remaining()
    };
    victims.iter().map(left).collect()
}

/// Locks out three clients, one after the other, and floods the store with `junk` keys that each take `uses` units while
/// four minutes pass. A store without the flood says what ought to be left of the three.
fn lock_outs_outlast(store: impl Store, clock: &ManualClock, quota: Quota, junk: u64, uses: u64) {
    let flooded = Limiter::new(store, [Rule::new("rule", quota)]).expect("a valid rule");
    let twin = limiter(clock, quota);
    let victims = [7, 8, 9].map(|n| stranger(u64::MAX - n));
    for key in &victims {
        for limiter in [&flooded, &twin] {
            for n in 0..7 {
                let decision = limiter.acquire(&[Check::new(0, *key, 1)]).ready();
                assert_eq!(decision.expect("at once").is_allowed(), n < 5, "{quota:?}");
            }
        }
        clock.advance(10 * SECOND);
    }
    let step = 4 * MINUTE / 1_000;
    for n in 0..junk {
        for _ in 0..uses {
            let _ = flooded.acquire(&[Check::new(0, stranger(n), 1)]).ready();
        }
        if n % (junk / 1_000) == 0 {
            clock.advance(step);
            let left = left_of(&flooded, &victims);
            assert_eq!(
                left,
                left_of(&twin, &victims),
                "{quota:?}, {uses} uses, key {n}"
            );
        }
    }
    // And they are denied as they would be.
    for key in &victims {
        let check = [Check::new(0, *key, 1)];
        let answers = [&flooded, &twin].map(|limiter| limiter.acquire(&check).ready());
        let [one, other] = answers.map(|answer| answer.expect("at once"));
        assert_eq!(
            (one.outcome(), one.retry()),
            (other.outcome(), other.retry()),
            "{quota:?}"
        );
    }
}

#[test]
fn lock_outs_outlast_a_flood_under_every_algorithm() {
    for quota in hourly(5) {
        for uses in [1, 2, 4] {
            // An hour ends within the flood.
            let clock = ManualClock::new(1_699_999_060_000_000);
            let store = MemoryStore::builder()
                .clock(&clock)
                .bytes_per_rule(BOUND)
                .build();
            lock_outs_outlast(store, &clock, quota, 60_000, uses);
        }
    }
}

#[test]
fn lock_outs_outlast_a_flood_while_the_store_fails() {
    // A bucket, a window and a log: each fills the table of the fallback in its own way.
    for quota in hourly(5).into_iter().step_by(3) {
        let clock = ManualClock::new(1_699_999_060_000_000);
        let store = SwitchedStore::at_once(MemoryStore::builder().clock(&clock).build());
        store.switch(false);
        // More than fit into the 16 MiB of the fallback.
        lock_outs_outlast(store, &clock, quota, 450_000, 1);
    }
}

#[test]
fn a_lock_out_under_a_small_plan_outlasts_a_flood_under_a_large_one() {
    for (small, large) in hourly(5).into_iter().zip(hourly(100)) {
        let clock = ManualClock::new(1_700_000_000_000_000);
        let store = MemoryStore::builder()
            .clock(&clock)
            .bytes_per_rule(BOUND)
            .build();
        let rule = Rule::new("rule", small).plan("large", large);
        let limiter = Limiter::new(store, [rule]).expect("a valid rule");
        let locked_out = [Check::new(0, stranger(u64::MAX - 7), 5)];
        assert!(at_once(limiter.acquire(&locked_out)).is_allowed());
        for n in 0..60_000 {
            let junk = Check::new(0, stranger(n), 20).with_plan(1);
            assert!(at_once(limiter.acquire(&[junk])).is_allowed());
        }
        assert!(usage(&limiter).evicted_live > 10_000, "{small:?}");
        assert_eq!(left_of(&limiter, &[locked_out[0].key()]), [0], "{small:?}");
    }
}

#[test]
fn tracked_keys_are_live_ones_at_once_and_memory_is_given_back_by_usage() {
    for quota in hourly(5) {
        let clock = ManualClock::new(1_700_000_000_000_000);
        let store = MemoryStore::builder().clock(&clock).build();
        let limiter = Limiter::new(store, [Rule::new("rule", quota)]).expect("a valid rule");
        for n in 0..100_000 {
            pass(&limiter, n);
        }
        let full = usage(&limiter);
        assert_eq!(full.keys, 100_000, "{quota:?}");
        clock.advance(24 * HOUR);
        for n in 0..100 {
            pass(&limiter, n);
        }
        // A day later most are expired, and nothing has read them since.
        let keys = usage(&limiter).keys;
        assert!(keys < 1_000, "{quota:?}: {keys}");
        for _ in 0..1_000 {
            let _ = usage(&limiter);
        }
        let after = usage(&limiter);
        assert_eq!(after.keys, 100, "{quota:?}");
        assert!(after.bytes < full.bytes / 10, "{quota:?}: {after:?}");
        assert_eq!(after.evicted_live, 0, "{quota:?}");
    }
}
