//! Slots that a decision and its clones hold.

use std::time::Duration;

use tollgate_conformance::{Fault, RemoteStore};
use tollgate_core::{
    Decision, Limiter, MemoryStore, Quota, Rule, SECOND, Source,
    algorithm::{GcraState, Taken},
    store::Hold,
};

use crate::{at_once, check, left};

fn one_at_a_time() -> Limiter {
    let rule = Rule::new("at-once", Quota::concurrent(1));
    Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule")
}

fn acquire(limiter: &Limiter) -> Decision {
    at_once(limiter.acquire(&[check(limiter, "at-once", "a", 1)]))
}

#[test]
fn slots_go_back_on_another_thread_and_as_a_thread_ends() {
    thread_local! {
        static LAST: std::cell::RefCell<Option<Decision>> = const { std::cell::RefCell::new(None) };
    }
    let limiter = one_at_a_time();
    for _ in 0..3 {
        let decision = acquire(&limiter);
        assert!(decision.is_allowed());
        let ends = std::thread::spawn(move || LAST.set(Some(decision)));
        ends.join().expect("it does not panic");
    }
    assert!(acquire(&limiter).is_allowed());
}

#[test]
fn a_decision_holds_nothing_of_one_before_it() {
    let limiter = one_at_a_time();
    let check = check(&limiter, "at-once", "a", 1);
    let place = Hold::in_queue(check, Taken::new(0, 1), GcraState::default());
    drop(Decision::unlimited(0).delayed(SECOND, [place]));
    let decision = acquire(&limiter);
    assert!(decision.is_allowed());
    assert_eq!(decision.delay(), Duration::ZERO);
    assert!(decision.queue_places().is_empty());
}

#[tokio::test(start_paused = true)]
async fn slots_of_the_store_and_of_a_share_go_back_each_to_where_they_are_from() {
    let memory = MemoryStore::new();
    // A call for each rule, and only the first one is answered.
    let store = RemoteStore::new(memory.clone()).partitioned();
    let store = store.faults(|call| (call > 1).then_some(Fault::Refused));
    let rules = ["stored", "shared"].map(|name| Rule::new(name, Quota::concurrent(3)));
    let limiter = Limiter::new(store, rules.clone()).expect("valid rules");
    let behind = Limiter::new(memory, rules).expect("valid rules");
    let in_store = || ["stored", "shared"].map(|rule| left(&behind, rule, "a"));

    let checks = ["stored", "shared"].map(|rule| check(&limiter, rule, "a", 1));
    let decision = limiter.acquire(&checks).await;
    assert!(decision.is_allowed());
    let sources = [0, 1].map(|index: usize| decision.verdicts()[index].source());
    assert_eq!(sources, [Source::Store, Source::Fallback]);
    assert_eq!(in_store(), [2, 3]);
    let all_of_the_share = [checks[1].with_cost(3)];
    assert!(!limiter.acquire(&all_of_the_share).await.is_allowed());

    drop(decision);
    assert_eq!(in_store(), [3, 3]);
    assert!(limiter.acquire(&all_of_the_share).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_holds_no_slot_that_the_store_has_given_it_before_it_failed() {
    let memory = MemoryStore::new();
    let store = RemoteStore::new(memory.clone()).partitioned();
    let store = store.faults(|call| (call > 1).then_some(Fault::Refused));
    let fails = Rule::new("fails", Quota::concurrent(3));
    let rules = [
        Rule::new("stored", Quota::concurrent(3)),
        fails.on_store_error(tollgate_core::OnStoreError::Deny),
    ];
    let limiter = Limiter::new(store, rules.clone()).expect("valid rules");
    let behind = Limiter::new(memory, rules).expect("valid rules");
    let checks = ["stored", "fails"].map(|rule| check(&limiter, rule, "a", 1));
    let denied = limiter.acquire(&checks).await;
    assert!(!denied.is_allowed());
    assert_eq!(left(&behind, "stored", "a"), 3);
    assert!(denied.take_slots().is_none());
}
