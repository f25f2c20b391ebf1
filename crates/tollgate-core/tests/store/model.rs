//! The memory store against a model that keeps every state for ever and only applies the algorithm.

use std::collections::HashMap;

use tollgate_core::{
    AlgorithmKind, Check, Limiter, ManualClock, MemoryStore, Outcome, Quota, Rule, SECOND,
    algorithm as a, algorithm::Algorithm, store::Fingerprint,
};

use crate::{Numbers, at_once};

/// Random histories of takes, refunds, resets and time, over more keys than are live at once.
fn holds<A: Algorithm>(quota: Quota) {
    let model = A::new(&quota).expect("a valid quota");
    for seed in 0..20 {
        // A state that was forgotten because it was fresh is not there to be repaired when a clock goes back.
        let goes_back = seed % 2 == 1;
        let mut numbers = Numbers(seed);
        let clock = ManualClock::new(1_700_000_123_456_789);
        let store = MemoryStore::builder().clock(&clock).build();
        let limiter = Limiter::new(store, [Rule::new("rule", quota)]).expect("a valid rule");
        let mut states: HashMap<u64, A::State> = HashMap::new();
        let mut held = Vec::new();
        for step in 0..3_000 {
            let who = if goes_back {
                0
            } else {
                numbers.below(3) * (1 + numbers.below(40))
            };
            let key = u128::from(Numbers(who).next()) << 64 | u128::from(Numbers(!who).next());
            let key = Fingerprint::from_bits(key);
            let state = states.entry(who).or_default();
            let now = clock.now();
            match numbers.below(20) {
                0..14 => {
                    let check = [Check::new(0, key, numbers.below(quota.limit() / 2 + 2))];
                    let cost = check[0].cost();
                    let expected = model.assess(state, now, cost);
                    // With metrics, a report sweeps the table from time to time, and forgets what is fresh.
                    let decision = at_once(limiter.attempt(&check).decide());
                    let verdict = decision.verdicts()[0];
                    assert_eq!(
                        (
                            verdict.outcome() == Outcome::Allow,
                            verdict.remaining(),
                            verdict.retry()
                        ),
                        (expected.fits, expected.remaining, expected.retry),
                        "{quota:?}, seed {seed}, step {step}"
                    );
                    assert_eq!(
                        verdict.reset_after().as_micros(),
                        u128::from(expected.reset_after),
                        "{quota:?}, seed {seed}, step {step}"
                    );
                    if expected.fits {
                        model.take(state, now, cost);
                        held.push((who, check, decision, now + expected.reset_after));
                    } else {
                        model.repair(state, now);
                    }
                }
                14 => {
                    let reset = limiter.rule_store().reset(&[Check::new(0, key, 1)]).ready();
                    let was_kept = reset.expect("at once").expect("done");
                    assert_eq!(was_kept, model.fresh_at(state) > now);
                    *state = A::State::default();
                    held.retain(|(holder, ..)| *holder != who);
                }
                15..17 if !held.is_empty() => {
                    let n = numbers.below(held.len() as u64) as usize;
                    let (who, check, decision, fresh_at) = held.swap_remove(n);
                    let at = decision.at();
                    let fresh_at = refilled(&quota, at, check[0].cost()).min(fresh_at);
                    let taken = a::Taken::new(at, fresh_at);
                    let units = numbers.below(check[0].cost() + 1);
                    let ticket = limiter.ticket(&check, &decision);
                    ticket.settle(check[0].cost() - units);
                    if let Some(state) = states.get_mut(&who).filter(|_| units > 0) {
                        model.refund(state, now, taken, units);
                    }
                }
                17 if goes_back => {
                    let back = numbers.below(quota.window().as_micros() as u64 / 4 + 1);
                    clock.set(now - back);
                }
                _ => {
                    let span = quota.window().as_micros() as u64;
                    let span = [span / 50, span / 3, 3 * span][numbers.below(3) as usize];
                    clock.set(now + numbers.below(span + 1));
                }
            }
        }
        let usage = limiter.rule_store().usage(0).expect("memory knows");
        assert_eq!(usage.evicted_live, 0, "{quota:?}, seed {seed}");
    }
}

/// When a bucket has refilled what was taken at `at`: until then it may be given back.
fn refilled(quota: &Quota, at: u64, cost: u64) -> u64 {
    match quota.algorithm() {
        AlgorithmKind::Gcra | AlgorithmKind::TokenBucket => {
            at + (cost * quota.period().as_micros() as u64).div_ceil(quota.rate())
        }
        _ => u64::MAX,
    }
}

#[test]
fn a_bucket_in_the_store_equals_one_that_is_never_forgotten() {
    holds::<a::Gcra>(Quota::gcra(7, SECOND).burst(10));
    holds::<a::Gcra>(Quota::token_bucket(5).refill(999_983, SECOND));
}

#[test]
fn a_fixed_window_in_the_store_equals_one_that_is_never_forgotten() {
    holds::<a::FixedWindow>(Quota::fixed_window(10, SECOND));
}

#[test]
fn a_sliding_window_in_the_store_equals_one_that_is_never_forgotten() {
    holds::<a::SlidingWindow>(Quota::sliding_window(10, SECOND));
}

#[test]
fn sub_buckets_in_the_store_equal_ones_that_are_never_forgotten() {
    holds::<a::SlidingBuckets>(Quota::sliding_buckets(10, SECOND).buckets(7));
}

#[test]
fn a_log_in_the_store_equals_one_that_is_never_forgotten() {
    holds::<a::SlidingLog>(Quota::sliding_log(10, SECOND));
}
