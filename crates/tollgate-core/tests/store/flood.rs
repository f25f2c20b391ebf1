//! A flood of keys: memory stays within its bound, and who was there keeps what was used.

use std::thread;

use tollgate_core::{
    Check, Fingerprint, Limiter, MINUTE, ManualClock, MemoryStore, Quota, Rule, Usage,
};

use crate::{LONG, check, left};

const BOUND: usize = 1 << 20;
const FLOOD: u64 = 10_000_000;

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
    limiter.bound().usage(0).expect("memory knows")
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
fn ten_million_keys_stay_within_the_bound_and_a_key_in_use_keeps_its_state() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let limiter = limiter(&clock, Quota::gcra(100, LONG));
    let in_use = [check(&limiter, "rule", "in use", 90)];
    assert!(
        limiter
            .acquire(&in_use)
            .ready()
            .expect("at once")
            .is_allowed()
    );
    thread::scope(|scope| {
        for half in 0..2 {
            let (limiter, in_use) = (&limiter, &in_use);
            scope.spawn(move || {
                for n in 0..FLOOD / 2 {
                    pass(limiter, 2 * n + half);
                    if n % 50_000 == 0 {
                        within_bound(limiter);
                        assert_eq!(left(limiter, "rule", "in use"), 10);
                        assert!(
                            !limiter
                                .acquire(in_use)
                                .ready()
                                .expect("at once")
                                .is_allowed()
                        );
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
fn states_on_the_heap_count_against_the_bound() {
    for quota in [
        Quota::sliding_log(1_000, LONG),
        Quota::sliding_buckets(1_000, LONG).buckets(600),
    ] {
        let clock = ManualClock::new(1_700_000_000_000_000);
        let limiter = limiter(&clock, quota);
        for n in 0..100_000_u64 {
            // Three of four come from a hundred clients with long logs.
            pass(&limiter, if n % 4 == 0 { n } else { 1 + n % 400 });
            clock.advance(std::time::Duration::from_micros(7));
            if n % 1_000 == 0 {
                within_bound(&limiter);
            }
        }
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
        assert!(limiter.acquire(&one).ready().expect("at once").is_allowed());
    }
    for n in 0..200_000 {
        pass(&limiter, n);
    }
    let quiet = limiter.bound().usage(1).expect("memory knows");
    assert_eq!((quiet.keys, quiet.evicted_live), (1_000, 0));
}

#[test]
fn questions_and_denials_leave_no_state() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let limiter = limiter(&clock, Quota::gcra(3, LONG));
    for n in 0..20_000 {
        for cost in [0, 4] {
            let check = [Check::new(0, stranger(n), cost)];
            let decision = limiter.acquire(&check).ready().expect("at once");
            assert_eq!(decision.is_allowed(), cost == 0);
            let _ = limiter.peek(&check).ready();
        }
    }
    assert_eq!(usage(&limiter).keys, 0);
}
