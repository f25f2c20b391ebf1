//! The client's own limit.

use std::{error::Error, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tollgate::{
    Key, LiveLimiter, MINUTE, MemoryStore, Quota, Rule, RuleError, SECOND, clock::Clock,
};
use tollgate_client::{ClientRateLimitError, ClientRateLimitErrorKind, ClientRateLimitLayer};
use tollgate_tests::counted::Metrics;
use tower::{BoxError, Service as _};

use crate::client::provider::{Provider, answer, client, get, send};

fn store() -> MemoryStore {
    MemoryStore::builder().clock(Clock::tokio()).build()
}

/// A layer whose requests all count against one budget.
fn limit(quota: Quota) -> ClientRateLimitLayer {
    let limiter = LiveLimiter::new(store(), [Rule::new("provider", quota)]).unwrap();
    by_provider(limiter).unwrap()
}

fn by_provider(limiter: LiveLimiter) -> Result<ClientRateLimitLayer, RuleError> {
    ClientRateLimitLayer::new().limit(limiter, |limiter, _| {
        limiter
            .check("provider", &Key::shared())
            .map(|check| [check])
    })
}

/// A layer whose requests count by their `x-account`.
fn limit_accounts(quota: Quota) -> ClientRateLimitLayer {
    let limiter = LiveLimiter::new(store(), [Rule::new("per-account", quota)]).unwrap();
    let layer = ClientRateLimitLayer::new().limit(limiter, |limiter, head| {
        let account = head.headers.get("x-account").ok_or("no account")?;
        let key = Key::of(account.as_bytes());
        Ok::<_, BoxError>([limiter.check("per-account", &key)?])
    });
    layer.unwrap()
}

fn ten_a_second() -> ClientRateLimitLayer {
    limit(Quota::gcra(10, SECOND))
}

#[tokio::test(start_paused = true)]
async fn many_tasks_keep_to_the_limit_and_all_get_a_response() {
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

/// Requests that all wait for the server, and then come at ten a second.
async fn waited_for_the_server(rule: Rule) {
    let limiter = LiveLimiter::new(store(), [rule]).unwrap();
    let layer = by_provider(limiter).unwrap();
    let provider = Provider::new([answer(503, &[("retry-after", "20")])]);
    let client = client(layer.retries(0), &provider);
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
async fn requests_that_waited_for_the_server_do_not_exceed_the_limit() {
    waited_for_the_server(Rule::new("provider", Quota::gcra(10, SECOND))).await;
}

#[tokio::test(start_paused = true)]
async fn nor_that_of_a_rule_that_waits() {
    let rule = Rule::new("provider", Quota::gcra(10, SECOND));
    waited_for_the_server(rule.wait(MINUTE)).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_takes_a_unit_too() {
    let provider = Provider::new([answer(503, &[]), answer(503, &[])]);
    let client = client(limit(Quota::gcra(1, MINUTE).burst(2)), &provider);
    // The third attempt gets no unit within `max_wait`, so the caller gets the second response.
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_room_within_max_wait_is_an_error_at_once() {
    let provider = Provider::new([]);
    let client = client(limit(Quota::gcra(1, MINUTE)), &provider);
    send(&client, get()).await.unwrap();
    let before = Instant::now();
    let error = send(&client, get()).await.unwrap_err();
    let error = error.downcast_ref::<ClientRateLimitError>().unwrap();
    assert_eq!(error.kind(), ClientRateLimitErrorKind::ClientLimit);
    let wait = error.retry_after().unwrap();
    assert!(
        (Duration::from_secs(59)..=MINUTE).contains(&wait),
        "{wait:?}"
    );
    assert_eq!(Instant::now(), before);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_closure_is_the_source_of_the_error() {
    let provider = Provider::new([]);
    let layer = limit_accounts(Quota::gcra(1, MINUTE));
    let error = send(&client(layer, &provider), get()).await.unwrap_err();
    let error = error.downcast_ref::<ClientRateLimitError>().unwrap();
    assert_eq!(error.kind(), ClientRateLimitErrorKind::NoChecks);
    assert_eq!(error.source().unwrap().to_string(), "no account");
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_closure_runs_in_the_task_that_polls_the_response() {
    tokio::task_local!(static ACCOUNT: String);

    let rule = Rule::new("per-account", Quota::gcra(1, MINUTE));
    let limiter = LiveLimiter::new(store(), [rule]).unwrap();
    let layer = ClientRateLimitLayer::new().limit(limiter, |limiter, _| {
        let key = ACCOUNT.try_with(|account| Key::of(account))?;
        Ok::<_, BoxError>([limiter.check("per-account", &key)?])
    });
    let mut client = client(layer.unwrap(), &Provider::new([]));
    let response = client.call(get());
    let response = ACCOUNT.scope("acme".to_owned(), response).await;
    assert_eq!(response.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_one_key_does_not_block_another() {
    let provider = Provider::new([]);
    let client = client(limit_accounts(Quota::gcra(1, SECOND * 20)), &provider);
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

#[tokio::test(start_paused = true)]
async fn the_decision_of_a_request_that_waited_for_the_server_is_counted_once() {
    let metrics = Metrics::record();
    let provider = Provider::new([answer(503, &[("retry-after", "5")])]);
    let layer = limit(Quota::gcra(9, MINUTE));
    let client = client(layer.retries(0), &provider);
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    assert_eq!(send(&client, get()).await.unwrap(), 200);
    let requests = |labels: &[_]| metrics.counted().sum("tollgate_requests_total", labels);
    assert_eq!(requests(&[("decision", "allowed")]), 2);
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_comes_while_the_server_is_closed_is_given_back() {
    let busy = answer(503, &[("retry-after", "20")]);
    let provider = Provider::new([busy]).taking(SECOND * 30);
    let layer = limit(Quota::gcra(1, SECOND * 40)).max_wait(MINUTE * 2);
    let layer = layer.retry_jitter(0).expect("a share");
    let client = client(layer.retries(0), &provider);
    let first = tokio::spawn({
        let client = client.clone();
        async move { send(&client, get()).await.unwrap() }
    });
    tokio::task::yield_now().await;
    // Its unit comes at 40 s, and from 30 s to 50 s the server is closed.
    assert_eq!(send(&client, get()).await.unwrap(), 200);
    assert_eq!(first.await.unwrap(), 503);
    assert_eq!(provider.seconds(), [0, 50]);
}

/// A layer by rules that can be replaced, with its handle.
fn live(quota: Quota) -> (ClientRateLimitLayer, LiveLimiter, MemoryStore) {
    let store = store();
    let limiter = LiveLimiter::new(store.clone(), [Rule::new("provider", quota)]).unwrap();
    let layer = by_provider(limiter.clone()).unwrap();
    (layer, limiter, store)
}

#[tokio::test(start_paused = true)]
async fn replaced_rules_hold_for_requests_that_begin_afterwards_with_what_was_used() {
    let provider = Provider::new([]);
    let (layer, handle, _) = live(Quota::gcra(3, MINUTE));
    let client = client(layer.max_wait(SECOND), &provider);
    for _ in 0..3 {
        assert_eq!(send(&client, get()).await.unwrap(), 200);
    }
    assert!(send(&client, get()).await.is_err());
    let more = [Rule::new("provider", Quota::gcra(5, MINUTE))];
    let changes = handle.replace(more).unwrap();
    assert_eq!(changes.len(), 1);
    // Three of the five are used.
    for _ in 0..2 {
        assert_eq!(send(&client, get()).await.unwrap(), 200);
    }
    assert!(send(&client, get()).await.is_err());
    // Without the rule, its requests are not sent.
    handle
        .replace([Rule::new("other", Quota::gcra(5, MINUTE))])
        .unwrap();
    let error = send(&client, get()).await.unwrap_err();
    let error = error.downcast_ref::<ClientRateLimitError>().unwrap();
    assert_eq!(error.kind(), ClientRateLimitErrorKind::NoChecks);
    assert_eq!(provider.calls(), 5);
}

#[tokio::test(start_paused = true)]
async fn slots_are_refused_because_they_would_be_free_while_the_request_runs() {
    let provider = Provider::new([]);
    let slots = || Rule::new("provider", Quota::concurrent(3));
    let limiter = LiveLimiter::new(store(), [slots()]).unwrap();
    let refused = by_provider(limiter).expect_err("it is refused").to_string();
    assert!(refused.contains("\"provider\""), "{refused}");
    assert!(refused.contains("a limiter of its own"), "{refused}");
    // They come later.
    let (layer, handle, _) = live(Quota::gcra(3, MINUTE));
    let client = client(layer, &provider);
    handle.replace([slots()]).unwrap();
    let error = send(&client, get()).await.expect_err("it is refused");
    let error = error.downcast::<ClientRateLimitError>().expect("ours");
    let source = error.source().expect("it says why").to_string();
    assert!(source.contains("\"provider\""), "{source}");
    assert!(source.contains("hold the ticket"), "{source}");
    assert!(provider.seen().is_empty());
}
