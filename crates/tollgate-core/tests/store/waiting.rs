//! Stores that have to be waited for.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_conformance::{Fault, RemoteStore};
use tollgate_core::{Limiter, MemoryStore, OnStoreError, Quota, Reason, Rule, Step};

use crate::{LONG, check};

fn limiter(store: RemoteStore) -> Limiter {
    let rule = Rule::new("rule", Quota::sliding_log(2, LONG)).on_store_error(OnStoreError::Deny);
    Limiter::new(store, [rule]).expect("a valid rule")
}

#[test]
fn memory_answers_at_once() {
    let rules = [Rule::new("rule", Quota::gcra(2, LONG))];
    let limiter = Limiter::new(MemoryStore::new(), rules).expect("a valid rule");
    let one = check(&limiter, "rule", "a", 1);
    assert!(matches!(limiter.acquire(&[one]), Step::Ready(_)));
    assert!(matches!(limiter.peek(&[one]), Step::Ready(_)));
}

#[tokio::test(start_paused = true)]
async fn a_remote_answer_comes_after_its_delay() {
    let store = RemoteStore::new(MemoryStore::new()).delay(Duration::from_millis(20));
    let limiter = limiter(store);
    let start = Instant::now();
    let answer = limiter.acquire(&[check(&limiter, "rule", "a", 1)]);
    assert!(matches!(answer, Step::Wait(_)));
    assert!(answer.await.is_allowed());
    assert_eq!(start.elapsed(), Duration::from_millis(20));
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_the_deadline() {
    let silent = |_| Some(Fault::Silent);
    for store in [
        RemoteStore::new(MemoryStore::new()).faults(silent),
        RemoteStore::new(MemoryStore::new()).delay(Duration::from_secs(3_600)),
    ] {
        let limiter = limiter(store.deadline(Duration::from_millis(50)));
        let start = Instant::now();
        let decision = limiter.acquire(&[check(&limiter, "rule", "a", 1)]).await;
        assert_eq!(start.elapsed(), Duration::from_millis(50));
        assert_eq!(decision.reason(), Some(Reason::StoreFailed));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_dropped_before_the_call_runs_takes_nothing() {
    let memory = MemoryStore::new();
    let store = RemoteStore::new(memory.clone()).delay(Duration::from_millis(20));
    let limiter = limiter(store.clone());
    let one = [check(&limiter, "rule", "a", 1)];
    drop(limiter.acquire(&one));
    let early = tokio::time::timeout(Duration::from_millis(5), async {
        limiter.acquire(&one).await
    });
    assert!(early.await.is_err());
    assert_eq!(store.calls(), 1);
    let decision = limiter.acquire(&one).await;
    assert_eq!(decision.verdicts()[0].remaining(), 1);
}

#[test]
fn an_answer_that_must_be_waited_for_is_not_tried() {
    let limiter = limiter(RemoteStore::new(MemoryStore::new()));
    let error = limiter.try_acquire("rule", &tollgate_core::Key::shared());
    assert!(
        error
            .expect_err("it is remote")
            .to_string()
            .contains("use `acquire`")
    );
}
