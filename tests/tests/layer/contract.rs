//! The contract of Tower, and what the inner service sees.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

use axum::body::Body;
use http::{Request, Response};
use tokio::task::JoinSet;
use tollgate::{MINUTE, Quota, RateLimitLayer, Rule, key::look_up, service::ResponseBody};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::{
    app::{all, per_minute, still, stores},
    probe::{Leaf, Probe},
};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};

/// Polls once: the answer is not there yet.
fn pending<F: Future>(future: Pin<&mut F>) -> bool {
    future
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

const SOON: Duration = Duration::from_millis(5);

fn layer(limit: u64, store: SwitchedStore) -> RateLimitLayer {
    RateLimitLayer::new(store, [all(per_minute("few", limit))]).expect("a valid rule")
}

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

/// The service once it is ready.
async fn readied<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Body>, Error = Infallible>,
{
    let Ok(service) = service.ready().await;
    service
}

/// The status of the answer to a request.
async fn send<S>(service: &mut S) -> u16
where
    S: Service<Request<Body>, Response = Response<ResponseBody<Body>>, Error = Infallible>,
{
    let Ok(response) = readied(service).await.call(request()).await;
    response.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn requests_at_the_same_time_each_bring_a_ready_instance() {
    for store in stores() {
        let leaf = Leaf::default();
        let inner = Probe::new(ConcurrencyLimit::new(Probe::new(leaf.clone()), 1));
        let mut service = layer(5, store).layer(inner);
        let mut answers = JoinSet::new();
        for _ in 0..8 {
            let ready = readied(&mut service).await;
            answers.spawn(ready.call(request()));
        }
        let answers = answers.join_all().await;
        let allowed = answers.into_iter().map(Result::unwrap);
        let allowed = allowed.filter(|response| response.status() == 200).count();
        assert_eq!((allowed, leaf.calls()), (5, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn a_future_dropped_while_it_waits_leaves_the_service_usable() {
    let (store, leaf) = (SwitchedStore::after(SOON, still().0), Leaf::default());
    let inner = Probe::new(ConcurrencyLimit::new(leaf.clone(), 1));
    let mut service = layer(3, store).layer(inner);
    for polled in [true, false] {
        let ready = readied(&mut service).await;
        let mut answer = Box::pin(ready.call(request()));
        if polled {
            assert!(pending(answer.as_mut()));
        }
        drop(answer);
    }
    // What the two had taken stays taken: one of three is left.
    for status in [200, 429] {
        assert_eq!(send(&mut service).await, status);
    }
    assert_eq!(leaf.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_keeps_no_place_in_the_inner_service() {
    for store in stores() {
        let inner = ConcurrencyLimit::new(Leaf::default(), 1);
        let layer = layer(1, store);
        let (mut one, mut other) = (layer.layer(inner.clone()), layer.layer(inner));
        for status in [200, 429] {
            assert_eq!(send(&mut one).await, status);
        }
        // `one` is kept, as a connection is between two requests. Its permit is free for others.
        let ready = tokio::time::timeout(MINUTE, readied(&mut other)).await;
        assert!(ready.is_ok(), "a denied request holds the only place");
        drop(one);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_is_waited_for_with_the_instance_that_was_ready() {
    let leaf = Leaf::default();
    let rule = Rule::new("few", Quota::fixed_window(2, MINUTE)).by(look_up(|_| async {
        tokio::time::sleep(SOON).await;
        Some("tenant")
    }));
    let layer = RateLimitLayer::new(still().0, [rule]).expect("a valid rule");
    let mut service = layer.layer(Probe::new(leaf.clone()));
    for status in [200, 200, 429] {
        assert_eq!(send(&mut service).await, status);
    }
    assert_eq!(leaf.calls(), 2);
}
