//! The memory store from many threads at once.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use tollgate_core::{Clock, Decision, Limiter, ManualClock, MemoryStore, Quota, Rule, SECOND};

use crate::{LONG, Numbers, at_once, check, every_algorithm, left};

const TASKS: u64 = 64;
const ATTEMPTS: u64 = 10_000;

fn frozen() -> MemoryStore {
    let clock = ManualClock::new(1_700_000_123_456_789);
    MemoryStore::builder().clock(clock).build()
}

fn limiter(store: &MemoryStore, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::new(store.clone(), rules).expect("valid rules")
}

fn acquire(limiter: &Limiter, checks: &[tollgate_core::Check]) -> Decision {
    at_once(limiter.acquire(checks))
}

/// Runs `task` on a thread for each number, all at once, and sums up what they return.
fn on_threads(threads: u64, task: impl Fn(u64) -> u64 + Sync) -> u64 {
    let start = Barrier::new(threads as usize);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|n| {
                let (start, task) = (&start, &task);
                scope.spawn(move || {
                    start.wait();
                    task(n)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it ends"))
            .sum()
    })
}

fn passed_of_ten_thousand(limiter: &Limiter) -> u64 {
    let one = check(limiter, "rule", "a", 1);
    on_threads(TASKS, |task| {
        (ATTEMPTS * task / TASKS..ATTEMPTS * (task + 1) / TASKS)
            .map(|_| u64::from(acquire(limiter, &[one]).is_allowed()))
            .sum()
    })
}

#[test]
fn of_ten_thousand_attempts_exactly_the_limit_passes_on_the_systems_clock() {
    for quota in every_algorithm(1_000) {
        let store = MemoryStore::builder().clock(Clock::system()).build();
        let limiter = limiter(&store, [Rule::new("rule", quota)]);
        assert_eq!(passed_of_ten_thousand(&limiter), 1_000, "{quota:?}");
    }
}

#[test]
fn a_window_that_ends_meanwhile_is_never_used_twice() {
    // Time moves while others decide: each window of the grid admits its limit at most, whichever thread sees it first.
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let limiter = limiter(&store, [Rule::new("rule", Quota::fixed_window(3, SECOND))]);
    let one = check(&limiter, "rule", "a", 1);
    let windows: Vec<_> = (0..400).map(|_| AtomicU64::new(0)).collect();
    on_threads(8, |task| {
        let mut numbers = Numbers(task);
        for _ in 0..5_000 {
            if task == 0 && numbers.below(13) == 0 {
                clock.advance(SECOND);
            }
            let decision = acquire(&limiter, &[one]);
            if decision.is_allowed() {
                let window = decision.at() / 1_000_000 - 1_700_000_000;
                if let Some(window) = windows.get(window as usize) {
                    window.fetch_add(1, SeqCst);
                }
            }
        }
        0
    });
    for window in &windows {
        assert!(window.load(SeqCst) <= 3, "{windows:?}");
    }
}

#[test]
fn requests_whose_rules_overlap_in_any_order_do_not_block_each_other_for_good() {
    // One lock per shard, eight tables in two rule sets of opposite orders, one store.
    let store = MemoryStore::builder()
        .bytes_per_rule(64 << 10)
        .clock(ManualClock::new(1_000_000_000))
        .build();
    let names: Vec<_> = (0..8).map(|n| format!("rule-{n}")).collect();
    let quota = Quota::gcra(100_000, LONG);
    let rules = || names.iter().map(|name| Rule::new(&**name, quota));
    let forward = limiter(&store, rules());
    let backward = limiter(&store, rules().rev());
    let took = on_threads(8, |task| {
        let limiter = if task % 2 == 0 { &forward } else { &backward };
        let mut numbers = Numbers(task);
        let mut took = 0;
        for _ in 0..500 {
            let checks: Vec<_> = (0..1 + numbers.below(6))
                .map(|_| {
                    let name = &names[numbers.below(8) as usize];
                    let who = numbers.below(4).to_string();
                    check(limiter, name, &who, 1)
                })
                .collect();
            assert!(acquire(limiter, &checks).is_allowed());
            took += checks.len() as u64;
        }
        took
    });
    let used: u64 = names
        .iter()
        .flat_map(|name| (0..4).map(move |who| (name, who.to_string())))
        .map(|(name, who)| 100_000 - left(&forward, name, &who))
        .sum();
    assert_eq!(used, took);
}

#[test]
fn units_that_are_given_back_are_there_and_never_twice() {
    const HOLDERS: u64 = 8;
    for quota in every_algorithm(HOLDERS + 1) {
        let limiter = limiter(&frozen(), [Rule::new("rule", quota)]);
        let one = [check(&limiter, "rule", "a", 1)];
        let all = [check(&limiter, "rule", "a", HOLDERS + 1)];
        // One unit stays taken, so that a request for all is denied each time, and the deny cache holds it.
        assert!(acquire(&limiter, &one).is_allowed());
        let held = AtomicU64::new(1);
        on_threads(HOLDERS + 1, |task| {
            for _ in 0..1_000 {
                if task == HOLDERS {
                    assert!(!acquire(&limiter, &all).is_allowed(), "{quota:?}");
                    continue;
                }
                let decision = acquire(&limiter, &one);
                assert!(decision.is_allowed(), "{quota:?}: a unit for each is there");
                assert!(held.fetch_add(1, SeqCst) <= HOLDERS, "{quota:?}");
                held.fetch_sub(1, SeqCst);
                limiter.ticket(&one, &decision).cancel();
            }
            0
        });
        assert_eq!(left(&limiter, "rule", "a"), HOLDERS, "{quota:?}");
    }
}
