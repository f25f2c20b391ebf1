//! The contract of Tower, and rules that the layer refuses.

use axum::body::Body;
use http::Request;
use tollgate::{Missing, key::look_up, message::MessageLimitLayer};
use tollgate_tests::probe::{Leaf, Probe};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimit};

use crate::grpc::messages::by_hand::{limits, messages, rule, status, still};

/// Layers that answer at once, and that look a key up first.
fn with_and_without_look_up(limit: u64) -> [MessageLimitLayer; 2] {
    let found = look_up(|_| async {
        tokio::task::yield_now().await;
        Some("all")
    });
    let rule = rule(limit).by(found);
    [
        limits(still(), limit),
        MessageLimitLayer::new(still(), [rule]).expect("a valid rule"),
    ]
}

#[tokio::test]
async fn the_instance_that_was_ready_is_the_one_that_is_called() {
    for layer in with_and_without_look_up(9) {
        let leaf = Leaf::default();
        let inner = Probe::new(ConcurrencyLimit::new(Probe::new(leaf.clone()), 1));
        let mut service = layer.layer(inner);
        for _ in 0..3 {
            let Ok(ready) = ServiceExt::<Request<Body>>::ready(&mut service).await;
            let Ok(response) = ready.call(messages(1)).await;
            assert_eq!(response.status(), 200);
        }
        assert_eq!(leaf.calls(), 3);
    }
}

#[tokio::test]
async fn a_rejected_call_frees_its_permit() {
    let rule = rule(1)
        .by(tollgate::key::header("x-api-key"))
        .when_missing(Missing::Reject(http::StatusCode::UNAUTHORIZED));
    let layer = MessageLimitLayer::new(still(), [rule]).expect("a valid rule");
    let inner = ConcurrencyLimit::new(Leaf::default(), 1);
    let mut service = layer.layer(inner.clone());
    let Ok(ready) = ServiceExt::<Request<Body>>::ready(&mut service).await;
    let Ok(response) = ready.call(messages(1)).await;
    assert_eq!(status(&response), Some("16"));
    let mut other = layer.layer(inner);
    let Ok(_) = ServiceExt::<Request<Body>>::ready(&mut other).await;
}
