//! Partial grants.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::{Clock, Limiter, MemoryStore, Quota, Rule};

use crate::{LONG, check};

#[tokio::test]
async fn a_grant_of_two_checks_on_one_state_is_found_in_a_few_steps() {
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let clock = Clock::custom(move || {
        count.fetch_add(1, Ordering::Relaxed);
        1_000_000
    });
    let store = MemoryStore::builder().clock(clock).build();
    let limiter = Limiter::new(
        store,
        [Rule::new("rule", Quota::fixed_window(200_000, LONG))],
    )
    .expect("valid");
    let one = check(&limiter, "rule", "ann", 1);
    reads.store(0, Ordering::Relaxed);
    let grant = limiter.acquire_up_to(&[one, one], 200_000).await;
    // Both take as much, and there is room for a hundred thousand each.
    assert_eq!(grant.units, 100_000);
    assert!(grant.decision.is_allowed());
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < 10, "the clock was read {reads} times");
}
