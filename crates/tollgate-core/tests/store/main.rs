//! Stores under floods, failures and versions of a rule, and the line in front of them.

mod blocks;
mod carried;
mod credits;
mod durable;
mod failures;
mod flood;
mod ids_model;
mod live;
mod live_model;
mod local_share;
mod model;
mod outage;
mod queue;
mod threads;
mod tickets;
mod versions;
mod wait_model;
mod wait_rules;

use std::time::Duration;

use tollgate_core::{Check, Key, Limiter, Quota, Step};

/// A window that does not end while a test runs.
const LONG: Duration = tollgate_core::MAX_PERIOD;

/// A check of `rule` for `who`.
fn check(limiter: &Limiter, rule: &str, who: &str, cost: u64) -> Check {
    limiter
        .check(rule, &Key::of([who]))
        .expect("the rule is there")
        .with_cost(cost)
}

/// The answer of a store that does not have to be waited for.
fn at_once<T>(answer: Step<T>) -> T {
    answer.ready().expect("it answers at once")
}

/// The units of a rule that passed while the store failed.
fn admitted_in_fallback(limiter: &Limiter, rule: &str) -> u64 {
    let counts = limiter.counts().into_iter();
    let counts = counts
        .filter(|it| it.rule == rule)
        .flat_map(|it| it.requests);
    let passed = counts.filter(|it| matches!(it.decision, "allowed" | "degraded"));
    let passed = passed.filter(|it| it.source == "fallback");
    passed.map(|it| it.units).sum()
}

/// The units that are left, where the store answers at once.
fn left(limiter: &Limiter, rule: &str, who: &str) -> u64 {
    at_once(limiter.peek(&[check(limiter, rule, who, 0)])).verdicts()[0].remaining()
}

/// `limit` units under every algorithm, in a window that does not end while a test runs.
fn every_algorithm(limit: u64) -> [Quota; 5] {
    [
        Quota::fixed_window(limit, LONG),
        Quota::sliding_window(limit, LONG),
        Quota::sliding_buckets(limit, LONG),
        Quota::sliding_log(limit, LONG),
        Quota::gcra(limit, LONG),
    ]
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ n >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
