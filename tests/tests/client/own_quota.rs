//! A quota of the client's own.

use std::time::Duration;

use http::StatusCode;
use tokio::{task::JoinSet, time::Instant};
use tollgate::{
    Clock, MINUTE, MemoryStore, Missing, Quota, Rule, RuleErrorKind, SECOND,
    client::{PaceError, PaceErrorKind, PaceLayer},
    key::{authority, constant, header},
};

use crate::provider::{Provider, answer, client, get, send};

fn store() -> MemoryStore {
    MemoryStore::builder().clock(Clock::tokio()).build()
}

fn ten_a_second() -> PaceLayer {
    let rule = Rule::new("provider", Quota::gcra(10, SECOND)).by(authority());
    PaceLayer::new().limit(store(), [rule]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn many_tasks_keep_to_it_and_all_are_answered() {
    let provider = Provider::new([]);
    let client = client(ten_a_second(), &provider);
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await, [200; 100]);
    let seen = provider.seen();
    // Ten at once, and then one every 100 ms.
    for (number, seen) in seen.iter().enumerate() {
        let due = 100 * (number as u64).saturating_sub(9);
        assert!(
            (due..=due + 10).contains(&seen.millis),
            "{number}: {seen:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_waited_for_the_server_does_not_go_out_all_at_once() {
    let provider = Provider::new([answer(503, &[("retry-after", "20")])]);
    let client = client(ten_a_second().without_retries(), &provider);
    send(&client, get()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..60 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await.unwrap() });
    }
    assert_eq!(tasks.join_all().await, [200; 60]);
    let seen = provider.seen();
    for window in seen[1..].windows(21) {
        // Ten of the burst and ten of the second.
        assert!(window[20].millis - window[0].millis >= 1_000, "{window:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_takes_a_unit_as_well() {
    let provider = Provider::new([answer(503, &[]), answer(503, &[])]);
    let rule = Rule::new("provider", Quota::gcra(1, MINUTE).burst(2)).by(constant("all"));
    let layer = PaceLayer::new().limit(store(), [rule]).unwrap();
    let client = client(layer, &provider);
    // The third attempt has no unit within the patience, so the second answer is the caller's.
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_room_within_the_patience_is_an_error_at_once() {
    let provider = Provider::new([]);
    let rule = Rule::new("provider", Quota::gcra(1, MINUTE)).by(constant("all"));
    let layer = PaceLayer::new().limit(store(), [rule]).unwrap();
    let client = client(layer, &provider);
    send(&client, get()).await.unwrap();
    let before = Instant::now();
    let error = send(&client, get()).await.unwrap_err();
    let error = error.downcast_ref::<PaceError>().unwrap();
    assert_eq!(error.kind(), PaceErrorKind::OwnQuota);
    let wait = error.retry_after().unwrap();
    assert!(
        (Duration::from_secs(59)..=MINUTE).contains(&wait),
        "{wait:?}"
    );
    assert_eq!(Instant::now(), before);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_can_be_refused() {
    let provider = Provider::new([]);
    let rule = Rule::new("per-account", Quota::gcra(1, MINUTE))
        .by(header("x-account"))
        .when_missing(Missing::Reject(StatusCode::BAD_REQUEST));
    let layer = PaceLayer::new().limit(store(), [rule]).unwrap();
    let error = send(&client(layer, &provider), get()).await.unwrap_err();
    let error = error.downcast_ref::<PaceError>().unwrap();
    assert_eq!(error.kind(), PaceErrorKind::NoKey);
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_units_of_one_key_does_not_stop_another() {
    let provider = Provider::new([]);
    let rule = Rule::new("per-account", Quota::gcra(1, SECOND * 20)).by(header("x-account"));
    let layer = PaceLayer::new().limit(store(), [rule]).unwrap();
    let client = client(layer, &provider);
    let of = |account: &str| {
        let mut request = get();
        let account = account.parse().unwrap();
        request.headers_mut().insert("x-account", account);
        request
    };
    send(&client, of("a")).await.unwrap();
    let waits = tokio::spawn({
        let (client, request) = (client.clone(), of("a"));
        async move { send(&client, request).await.unwrap() }
    });
    tokio::task::yield_now().await;
    let before = Instant::now();
    send(&client, of("b")).await.unwrap();
    assert_eq!(Instant::now(), before);
    assert_eq!(waits.await.unwrap(), 200);
}

#[test]
fn a_rule_that_is_left_to_a_handler_is_refused() {
    let rule = Rule::new("later", Quota::gcra(1, SECOND)).by_handler();
    let error = PaceLayer::new()
        .limit(MemoryStore::new(), [rule])
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.rule()),
        (RuleErrorKind::Key, Some("later"))
    );
    assert!(error.to_string().contains("by_handler"), "{error}");
}
