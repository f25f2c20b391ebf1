//! The script beside the core: random histories on a server, each answer compared with that of the memory store.
//!
//! `TOLLGATE_PARITY_STEPS` is the number of steps of each test, `TOLLGATE_PARITY_SEED` the seed of the first history.
//! The seeds in `regressions.txt` run first; one that fails is printed and added there.

#[path = "../support/mod.rs"]
mod support;

mod expected;
mod history;
mod leases;
mod lowered;
mod quotas;
mod regressions;
mod server;

use crate::{history::History, quotas::Family, regressions::Regressions, server::Server};

/// Steps of each test, where nothing else was said.
const STEPS: u64 = 60_000;

fn holds(test: &str, families: &[Family]) {
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => default,
    };
    let steps = number("TOLLGATE_PARITY_STEPS", STEPS);
    let first = number("TOLLGATE_PARITY_SEED", 1);
    let mut server = Server::start();
    let regressions = Regressions::of(test);
    for seed in regressions.seeds() {
        History::new(seed, families).run(&mut server);
    }
    let mut done = 0;
    for seed in first.. {
        if done >= steps {
            break;
        }
        let _guard = regressions.guard(seed);
        done += History::new(seed, families).run(&mut server);
    }
}

#[test]
fn buckets_are_counted_by_the_script_as_in_memory() {
    holds("arrival", &[Family::Arrival]);
}

#[test]
fn a_fixed_window_is_counted_by_the_script_as_in_memory() {
    holds("fixed_window", &[Family::FixedWindow]);
}

#[test]
fn a_sliding_window_is_counted_by_the_script_as_in_memory() {
    holds("sliding_window", &[Family::SlidingWindow]);
}

#[test]
fn a_log_is_counted_by_the_script_as_in_memory() {
    holds("sliding_log", &[Family::SlidingLog]);
}

#[test]
fn sub_buckets_are_counted_by_the_script_as_in_memory() {
    holds("sliding_buckets", &[Family::SlidingBuckets]);
}

#[test]
fn rules_of_all_algorithms_are_decided_together_by_the_script_as_in_memory() {
    holds("together", &Family::ALL);
}
