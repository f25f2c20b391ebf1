//! Messages that wait for their turn, in tokio's paused time.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tollgate::{
    MINUTE, MemoryStore, Quota, Rule, SECOND, clock::Clock, key::constant,
    message::MessageLimitLayer,
};
use tollgate_tests::{
    counted::Metrics,
    weather::{Mild, report},
};
use tower::{Layer, ServiceExt, service_fn};

use crate::grpc::messages::{
    by_hand::{MESSAGE, grpc, messages, poll, read, status},
    served::piped,
};

#[tokio::test(start_paused = true)]
async fn nothing_is_read_while_a_message_waits() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let rule = Rule::new("messages", Quota::gcra(1, SECOND)).by(constant("all"));
    let limits = MessageLimitLayer::new(store, [rule]).expect("a valid rule");
    let service = limits.wait_up_to(MINUTE).layer(service_fn(read));
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    let frames = tokio_stream::iter(0..10).map(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&MESSAGE)))
    });
    let mut answer = pin!(service.oneshot(grpc(Body::new(StreamBody::new(frames)))));
    assert!(poll(answer.as_mut()).is_pending());
    assert_eq!(taken.load(Ordering::SeqCst), 2);
    let Ok(response) = answer.await;
    assert_eq!(response.headers()["bytes"], "50");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_leaves_the_line() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let rule = Rule::new("messages", Quota::gcra(6, MINUTE).burst(1)).by(constant("all"));
    let limits = MessageLimitLayer::new(store, [rule]).expect("a valid rule");
    let service = limits.wait_up_to(MINUTE).layer(service_fn(read));
    let begun = Instant::now();
    let Ok(_) = service.clone().oneshot(messages(1)).await;
    let mut first = Box::pin(service.clone().oneshot(messages(1)));
    let mut second = Box::pin(service.oneshot(messages(1)));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    drop(first);
    let Ok(response) = second.await;
    assert_eq!((status(&response), begun.elapsed().as_secs()), (None, 10));
}

#[tokio::test(start_paused = true)]
async fn messages_that_wait_are_counted_by_what_becomes_of_them() {
    let metrics = Metrics::record();
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let rule = Rule::new("waiting-messages", Quota::gcra(6, MINUTE).burst(2));
    let limits = MessageLimitLayer::new(store, [rule.by(constant("all"))]).expect("a valid rule");
    let service = limits.wait_up_to(15 * SECOND).layer(service_fn(read));
    let counts = |outcomes: &[(&str, u64)]| {
        let counted = metrics.counted();
        for (outcome, times) in outcomes {
            let name = format!("tollgate_waits_total{{rule=waiting-messages,outcome={outcome}}}");
            assert_eq!(counted.count(&name), *times, "{outcome}");
        }
        counted
    };
    // Three at once do not fit, two do; the third one waits.
    let mut first = Box::pin(service.clone().oneshot(messages(3)));
    let mut second = Box::pin(service.clone().oneshot(messages(1)));
    let mut late = Box::pin(service.oneshot(messages(1)));
    for waits in [&mut first, &mut second, &mut late] {
        assert!(poll(waits.as_mut()).is_pending());
    }
    let counted = counts(&[("admitted", 0), ("denied", 0), ("wait_expired", 0)]);
    let now = "tollgate_waiting{rule=waiting-messages}";
    assert_eq!(counted.gauge(now), 3.0);
    drop(second);
    let (Ok(_), Ok(denied)) = tokio::join!(first, late);
    assert_eq!(status(&denied), Some("8"));
    let counted = counts(&[("admitted", 1), ("denied", 1), ("abandoned", 1)]);
    assert_eq!(counted.gauge(now), -3.0);
    let waited = counted.recorded("tollgate_wait_seconds{rule=waiting-messages}");
    assert_eq!(waited, [10.0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_with_many_messages_does_not_overtake_others() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let rule = Rule::new("messages", Quota::gcra(1, SECOND).burst(1)).by(constant("all"));
    let limits = MessageLimitLayer::new(store, [rule]).expect("a valid rule");
    let service = limits.wait_up_to(MINUTE).layer(service_fn(read));
    let begun = Instant::now();
    let Ok(_) = service.clone().oneshot(messages(1)).await;
    let mut one = Box::pin(service.clone().oneshot(messages(1)));
    assert!(poll(one.as_mut()).is_pending());
    let mut many = Box::pin(service.oneshot(messages(5)));
    assert!(poll(many.as_mut()).is_pending());
    // Both are woken at the same instant; either may be polled first.
    let both = tokio::join!(many, async {
        let Ok(response) = one.await;
        (status(&response).is_none(), begun.elapsed().as_secs())
    });
    assert_eq!(both.1, (true, 1));
    assert_eq!(begun.elapsed().as_secs(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_if_the_queue_is_full() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let rule = Rule::new("messages", Quota::gcra(1, MINUTE)).by(constant("all"));
    let limits = MessageLimitLayer::new(store, [rule]).expect("a valid rule");
    let service = limits.wait_up_to(10 * MINUTE).layer(service_fn(read));
    let Ok(_) = service.clone().oneshot(messages(1)).await;
    let mut waiting = Vec::new();
    for _ in 0..256 {
        let mut answer = Box::pin(service.clone().oneshot(messages(1)));
        assert!(poll(answer.as_mut()).is_pending());
        waiting.push(answer);
    }
    let Ok(response) = service.oneshot(messages(1)).await;
    assert_eq!(status(&response), Some("8"));
    let fields = response.headers();
    assert_eq!(fields["grpc-message"], "too many requests wait");
    assert_eq!(fields["retry-after"], "60");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_would_fit_is_denied_where_the_queue_is_full() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let denials = Arc::new(AtomicUsize::new(0));
    let denied = Arc::clone(&denials);
    let rule = Rule::new("messages", Quota::gcra(10, MINUTE).burst(10))
        .by(constant("all"))
        .cost_by(|head| head.uri.path()[1..].parse().unwrap_or(1))
        .on_denied(move |_, _, _| {
            denied.fetch_add(1, Ordering::SeqCst);
        });
    let limits = MessageLimitLayer::new(store, [rule]).expect("a valid rule");
    let service = limits.wait_up_to(60 * MINUTE).layer(service_fn(read));
    let of_cost = |cost: u64| {
        let mut request = messages(1);
        *request.uri_mut() = format!("/{cost}").parse().expect("a path");
        service.clone().oneshot(request)
    };
    let Ok(_) = of_cost(5).await;
    // A dear one is the first of those that wait.
    let mut waiting: Vec<_> = (0..256)
        .map(|it| Box::pin(of_cost(if it == 0 { 6 } else { 1 })))
        .collect();
    for answer in &mut waiting {
        assert!(poll(answer.as_mut()).is_pending());
    }
    let Ok(response) = of_cost(1).await;
    assert_eq!(response.headers()["grpc-message"], "too many requests wait");
    assert_eq!(response.headers()["retry-after"], "3600");
    assert_eq!(denials.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn all_messages_of_a_stream_that_waits_come_in_the_end() {
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let rule = Rule::new("messages", Quota::gcra(2, SECOND).burst(2)).by(constant("all"));
    let limits = MessageLimitLayer::new(store, [rule]).expect("a valid rule");
    let weather = Mild::default();
    let served = piped(&weather, limits.wait_up_to(MINUTE)).await;
    let begun = Instant::now();
    let summary = served
        .client
        .clone()
        .record(tokio_stream::iter(vec![report("Oslo"); 12]))
        .await
        .expect("they wait");
    assert_eq!((summary.get_ref().reports, weather.messages()), (12, 12));
    // Two at once, and one each half second.
    assert_eq!(begun.elapsed().as_secs(), 5);
}
