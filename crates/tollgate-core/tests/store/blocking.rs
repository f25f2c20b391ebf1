//! Threads that wait for units.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tollgate_core::{Key, Limiter, MemoryStore, Quota, Reason, Rule, types::WaitErrorKind};

use crate::check;

const PATIENT: Duration = Duration::from_secs(600);

fn limiter(quota: Quota) -> Limiter {
    Limiter::new(MemoryStore::new(), [Rule::new("rule", quota)]).expect("a valid rule")
}

#[test]
fn a_thread_waits_until_the_units_are_there() {
    let limiter = limiter(Quota::per_second(100).burst(1));
    let mut before = 0;
    for _ in 0..5 {
        let decision = limiter.wait_blocking("rule", &Key::of(["a"]), PATIENT);
        let decision = decision.expect("it was patient");
        assert!(decision.is_allowed());
        assert!(decision.at() >= before + 10_000, "a hundred a second");
        before = decision.at();
    }
}

#[test]
fn patience_runs_out_behind_others() {
    let limiter = limiter(Quota::gcra(1, Duration::from_millis(50)));
    let one = [check(&limiter, "rule", "a", 1)];
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let _ = limiter.acquire_within_blocking(&one, PATIENT);
            }
        });
        // With an empty queue it is decided at once; sooner or later the queue is not empty.
        let error = loop {
            if let Err(error) = limiter.acquire_within_blocking(&one, Duration::ZERO) {
                break error;
            }
            thread::yield_now();
        };
        ends.store(true, Ordering::Relaxed);
        assert_eq!(error.kind(), WaitErrorKind::TimedOut);
    });
}

#[test]
fn a_task_that_is_blocked_by_a_store_in_memory_waits_no_longer_than_it_said() {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(async {
        // No other task of this runtime can give the slot back meanwhile.
        let limiter = limiter(Quota::concurrent(1));
        let slots = limiter.wait_blocking("rule", &Key::of(["a"]), PATIENT);
        let _held = slots.expect("it is free");
        let short = Duration::from_millis(20);
        let denied = limiter.wait_blocking("rule", &Key::of(["a"]), short);
        assert_eq!(
            denied.expect("it is in front").reason(),
            Some(Reason::WaitExpired)
        );
        let late = limiter.wait_blocking("rule", &Key::of(["b"]), short);
        assert!(late.expect("it is free").is_allowed());
    });
}

#[test]
fn threads_that_give_slots_back_without_a_lock_exceed_no_limit_and_wake_who_waits() {
    let (limiter, running) = (limiter(Quota::concurrent(3)), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, running) = (&limiter, &running);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let slots = 1 + (thread + turn) % 3;
                    let asked = [check(limiter, "rule", "a", slots)];
                    let decision = limiter.acquire_within_blocking(&asked, PATIENT);
                    let decision = decision.expect("it was patient");
                    assert!(decision.is_allowed(), "a slot that came back woke nobody");
                    let before = running.fetch_add(slots, Ordering::SeqCst);
                    assert!(before + slots <= 3, "{before} ran, and {slots} were given");
                    thread::yield_now();
                    running.fetch_sub(slots, Ordering::SeqCst);
                }
            });
        }
    });
    let all = limiter.acquire_within_blocking(&[check(&limiter, "rule", "a", 3)], Duration::ZERO);
    assert!(all.is_ok_and(|all| all.is_allowed()), "all came back");
}
