//! Nobody waits for ever.

use std::{collections::BTreeSet, time::Duration};

use tokio::{task::JoinSet, time::Instant};
use tollgate::client::{PaceError, PaceErrorKind, PaceLayer};
use tower::BoxError;

use crate::provider::{Provider, answer, client, get, send};

fn held(error: &BoxError) -> Option<Duration> {
    let error = error.downcast_ref::<PaceError>().expect("a PaceError");
    assert_eq!(error.kind(), PaceErrorKind::Held);
    error.retry_after()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_asks_for_too_long_a_wait_is_the_callers_at_once() {
    let provider = Provider::new([answer(503, &[("retry-after", "31")])]);
    let client = client(PaceLayer::new(), &provider);
    let before = Instant::now();
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    assert_eq!(Instant::now(), before);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_refused_at_once_and_told_how_long() {
    let provider = Provider::new([answer(503, &[("retry-after", "31")])]);
    let client = client(
        PaceLayer::new().retry_jitter(0).expect("a share"),
        &provider,
    );
    send(&client, get()).await.unwrap();
    let before = Instant::now();
    let error = send(&client, get()).await.unwrap_err();
    assert_eq!(held(&error), Some(Duration::from_secs(31)));
    assert_eq!(Instant::now(), before);
    assert_eq!(provider.calls(), 1);
    assert!(error.to_string().contains("31.0 s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_are_held_together_do_not_come_back_together() {
    for refused in [
        answer(503, &[("retry-after", "100")]),
        answer(
            200,
            &[
                ("content-type", "application/grpc"),
                ("grpc-status", "8"),
                ("grpc-retry-pushback-ms", "100000"),
            ],
        ),
    ] {
        let mut holds = BTreeSet::new();
        for _ in 0..20 {
            let provider = Provider::new([refused.clone()]);
            let client = client(PaceLayer::new(), &provider);
            send(&client, get()).await.unwrap();
            let error = send(&client, get()).await.unwrap_err();
            holds.extend(held(&error));
        }
        let (least, most) = (Duration::from_secs(100), Duration::from_secs(110));
        assert!(holds.first() >= Some(&least) && holds.last() <= Some(&most));
        assert!(holds.len() > 1, "{holds:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_patience_is_for_all_waits_together() {
    let provider = Provider::new((0..9).map(|_| answer(503, &[("retry-after", "4")])));
    let layer = PaceLayer::new().patience(Duration::from_secs(10));
    let client = client(layer, &provider);
    let before = Instant::now();
    assert_eq!(send(&client, get()).await.unwrap(), 503);
    assert!(before.elapsed() <= Duration::from_secs(10));
    assert_eq!(provider.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn whatever_a_server_says_it_is_believed_for_ten_minutes_at_the_most() {
    for fields in [
        [("retry-after", "999999999999999999999"), ("x-a", "")],
        [
            ("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"),
            ("x-a", ""),
        ],
        [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "999999999999"),
        ],
        [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "9999-01-01T00:00Z"),
        ],
        [("ratelimit", r#""a";r=0;t=999999999999999"#), ("x-a", "")],
    ] {
        let provider = Provider::new([answer(429, &fields)]);
        let layer = PaceLayer::new().without_retries();
        let hour = PaceLayer::new()
            .without_retries()
            .patience(Duration::from_secs(3_600));
        send(&client(layer.clone(), &provider), get())
            .await
            .unwrap();
        let error = send(&client(layer, &provider), get()).await.unwrap_err();
        assert_eq!(held(&error), Some(Duration::from_secs(600)), "{fields:?}");
        // A patient one waits as long and no longer.
        let provider = Provider::new([answer(429, &fields)]);
        let client = client(hour, &provider);
        send(&client, get()).await.unwrap();
        assert_eq!(send(&client, get()).await.unwrap(), 200);
        let [_, second] = provider.seconds()[..] else {
            panic!("it was not sent")
        };
        assert!(second <= 601, "{second}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_hold_is_what_the_layer_was_told() {
    let provider = Provider::new([answer(503, &[("retry-after", "3600")])]);
    let layer = PaceLayer::new().longest_hold(Duration::from_secs(2));
    let client = client(layer, &provider);
    assert_eq!(send(&client, get()).await.unwrap(), 200);
    assert_eq!(provider.seconds(), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn those_behind_others_in_line_give_up_as_well() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let provider = provider.taking(Duration::from_secs(3));
    let client = client(
        PaceLayer::new().patience(Duration::from_secs(10)),
        &provider,
    );
    send(&client, get()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        tasks.spawn(async move { send(&client, get()).await });
    }
    let before = Instant::now();
    let answers = tasks.join_all().await;
    assert!(before.elapsed() <= Duration::from_secs(13));
    assert!(answers.iter().any(Result::is_ok));
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        held(error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_the_line_to_the_next() {
    let provider = Provider::new([answer(200, &[("ratelimit", r#""a";r=0;t=9"#)])]);
    let client = client(PaceLayer::new(), &provider);
    send(&client, get()).await.unwrap();
    let first = tokio::spawn({
        let client = client.clone();
        async move { send(&client, get()).await }
    });
    tokio::task::yield_now().await;
    let second = tokio::spawn({
        let client = client.clone();
        async move { send(&client, get()).await }
    });
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(second.await.unwrap().unwrap(), 200);
    assert_eq!(provider.seconds(), [0, 9]);
}

#[tokio::test(start_paused = true)]
async fn the_greatest_durations_are_no_trouble() {
    let provider = Provider::new([answer(503, &[("retry-after", "1")])]);
    let layer = PaceLayer::new()
        .patience(Duration::MAX)
        .longest_hold(Duration::MAX);
    assert_eq!(send(&client(layer, &provider), get()).await.unwrap(), 200);
}
