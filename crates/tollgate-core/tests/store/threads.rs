//! Threads that wait for slots.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use tokio::runtime::Builder;
use tollgate_core::{Limiter, MemoryStore, Quota, Rule};

use crate::check;

#[test]
fn threads_that_give_slots_back_without_a_lock_exceed_no_limit_and_wake_who_waits() {
    let rules = [Rule::new("rule", Quota::concurrent(3))];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("a valid rule");
    let running = AtomicU64::new(0);
    let taken = |slots, patience| {
        let runtime = Builder::new_current_thread().enable_time().build();
        let asked = [check(&limiter, "rule", "a", slots)];
        let decision = limiter.acquire_within(&asked, patience);
        let decision = runtime.expect("a runtime").block_on(decision);
        decision.expect("it was patient")
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            let (taken, running) = (&taken, &running);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let slots = 1 + (thread + turn) % 3;
                    let decision = taken(slots, Duration::from_secs(600));
                    assert!(decision.is_allowed(), "a slot that came back woke nobody");
                    let before = running.fetch_add(slots, Ordering::SeqCst);
                    assert!(before + slots <= 3, "{before} ran, and {slots} were given");
                    thread::yield_now();
                    running.fetch_sub(slots, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(taken(3, Duration::ZERO).is_allowed(), "all came back");
}
