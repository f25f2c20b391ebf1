//! What is asked of the store, and when.

use std::{convert::Infallible, num::NonZeroU32, pin::pin, task::Poll, time::Duration};

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tollgate::{
    Block, MINUTE, OnStoreError, Quota, Rule, SECOND,
    key::constant,
    message::{MessageBody, MessageLimitLayer},
};
use tollgate_conformance::SwitchedStore;
use tollgate_tests::counted::Metrics;
use tower::{Layer, ServiceExt, service_fn};

use crate::grpc::messages::by_hand::{
    MESSAGE, fed, limits, messages, poll, read, rule, status, still,
};

#[tokio::test]
async fn those_of_a_frame_that_fit_pass_at_the_cost_that_the_head_says() {
    let store = SwitchedStore::at_once(still());
    let rule = rule(100).by(constant("all")).cost_by(|_| 7);
    let limits = MessageLimitLayer::new(store.clone(), [rule]).expect("a valid rule");
    let (reported, mut received) = mpsc::channel(1);
    let reads = move |request: Request<MessageBody<Body>>| {
        let reported = reported.clone();
        async move {
            let response = read(request).await?;
            reported
                .send(response.headers()["bytes"].clone())
                .await
                .ok();
            Ok::<_, Infallible>(response)
        }
    };
    let service = limits.layer(service_fn(reads));
    let Ok(response) = service.oneshot(messages(50)).await;
    assert_eq!(status(&response), Some("8"));
    // 14 of them cost 98.
    assert_eq!(received.try_recv().expect("it was read"), "74");
    // All, 14; all of the rest, 1.
    assert_eq!(store.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_times_out_ends_the_call_with_deny() {
    let lost = || tollgate::key::look_up(|_| std::future::pending::<Option<String>>());
    for (answer, expected) in [
        (OnStoreError::LocalShare, None),
        (OnStoreError::Deny, Some("14")),
    ] {
        let rule = rule(4).on_store_error(answer).by(lost());
        let limits = MessageLimitLayer::new(still(), [rule])
            .expect("a valid rule")
            .look_up_deadline(Duration::from_millis(30));
        let before = tokio::time::Instant::now();
        let Ok(response) = limits.layer(service_fn(read)).oneshot(messages(4)).await;
        assert_eq!(status(&response), expected);
        assert_eq!(before.elapsed(), Duration::from_millis(30));
    }
}

#[tokio::test]
async fn a_frame_above_the_share_of_a_process_passes_in_parts_while_the_store_fails() {
    let store = SwitchedStore::at_once(still());
    let limits = limits(store.clone(), 8).instances(NonZeroU32::new(2).expect("two"));
    let service = limits.expect("a share").layer(service_fn(read));
    store.switch(false);
    // The share is four of eight, and more at once never fit into it.
    let Ok(response) = service.clone().oneshot(messages(3)).await;
    assert_eq!(status(&response), None);
    let Ok(response) = service.clone().oneshot(messages(6)).await;
    assert_eq!(status(&response), Some("8"));
    // The share is used up: one has passed of the six.
    let Ok(response) = service.oneshot(messages(1)).await;
    assert_eq!(status(&response), Some("8"));
}

#[tokio::test]
async fn a_frame_that_a_rule_denies_while_the_store_fails_is_asked_about_once() {
    let deny = || {
        Rule::new("all", Quota::fixed_window(8, MINUTE))
            .on_store_error(OnStoreError::Deny)
            .by(constant("all"))
    };
    // Also next to a share that would hold fewer.
    for rules in [vec![deny()], vec![rule(8).by(constant("all")), deny()]] {
        let store = SwitchedStore::at_once(still());
        let limits = MessageLimitLayer::new(store.clone(), rules).expect("valid rules");
        let limits = limits.instances(NonZeroU32::new(2).expect("two"));
        let service = limits.expect("a share").layer(service_fn(read));
        store.switch(false);
        let Ok(response) = service.oneshot(messages(6)).await;
        assert_eq!((status(&response), store.calls()), (Some("14"), 1));
    }
}

#[tokio::test]
async fn decisions_are_counted_with_the_units_of_their_messages() {
    let metrics = Metrics::record();
    let shadow = Rule::new("stricter", Quota::fixed_window(100, MINUTE)).shadow();
    let rules = [rule(3).by(constant("all")), shadow.by(constant("all"))];
    let limits = MessageLimitLayer::new(still(), rules).expect("valid rules");
    let service = limits.layer(service_fn(read));
    let Ok(_) = service.oneshot(messages(5)).await;
    let counted = metrics.counted();
    let requests = "tollgate_requests_total";
    let units = "tollgate_cost_units_total";
    for (metric, rule, decision, expected) in [
        (requests, "messages", "allowed", 1),
        (units, "messages", "allowed", 3),
        (requests, "messages", "denied", 1),
        (units, "messages", "denied", 1),
        (requests, "stricter", "shadow_allowed", 2),
    ] {
        let count = counted.sum(metric, &[("rule", rule), ("decision", decision)]);
        assert_eq!(count, expected, "{metric} {rule} {decision}");
    }
}

#[tokio::test]
async fn a_message_is_not_handed_on_before_it_is_counted() {
    let (_feed, mut body) = {
        let (sender, mut receiver) = mpsc::channel(1);
        let keeps = move |request: Request<MessageBody<Body>>| {
            sender.try_send(request.into_body()).expect("one request");
            std::future::pending::<Result<Response<Body>, Infallible>>()
        };
        let (feed, request) = fed();
        let store = SwitchedStore::after(Duration::ZERO, still());
        let service = limits(store, 1).layer(service_fn(keeps));
        let _ = poll(pin!(service.oneshot(request)));
        feed.try_send(MESSAGE[..3].to_vec().into()).unwrap();
        feed.try_send(MESSAGE[3..].to_vec().into()).unwrap();
        (feed, receiver.try_recv().expect("a body"))
    };
    let Poll::Ready(Some(Ok(frame))) = poll(pin!(body.frame())) else {
        panic!("the beginning of a prefix is handed on");
    };
    assert_eq!(frame.into_data().expect("data").len(), 3);
    // The store has not answered.
    assert!(poll(pin!(body.frame())).is_pending());
    let Poll::Ready(Some(Ok(frame))) = poll(pin!(body.frame())) else {
        panic!("the store has answered");
    };
    assert_eq!(frame.into_data().expect("data").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_frame_of_several_messages_counts_one_denial_towards_a_block() {
    for (limit, block_after, waits, blocks) in [(5, 2, false, 0), (2, 1, false, 1), (5, 2, true, 0)]
    {
        let metrics = Metrics::record();
        let rule = rule(limit).block(Block::after(block_after));
        let limits = MessageLimitLayer::new(still(), [rule.by(constant("all"))]);
        let limits = limits.expect("a valid rule");
        let limits = match waits {
            true => limits.wait_up_to(SECOND),
            false => limits,
        };
        let service = limits.layer(service_fn(read));
        let Ok(response) = service.clone().oneshot(messages(limit as usize - 1)).await;
        assert_eq!(status(&response), None);
        // One of them fits.
        let Ok(response) = service.oneshot(messages(3)).await;
        assert_eq!(status(&response), Some("8"));
        let counted = metrics.counted();
        let allowed = [("rule", "messages"), ("decision", "allowed")];
        let units = counted.sum("tollgate_cost_units_total", &allowed);
        let begun = counted.sum("tollgate_blocks_total", &[("rule", "messages")]);
        assert_eq!((units, begun), (limit, blocks), "{block_after} {waits}");
    }
}

#[tokio::test]
async fn a_rule_tells_of_denials_with_the_fields_of_the_call() {
    let (reported, mut received) = mpsc::channel(1);
    let rule = rule(1).by(constant("all")).on_denied(move |head, _, _| {
        let _ = reported.try_send(head.headers.get("user-agent").cloned());
    });
    let limits = MessageLimitLayer::new(still(), [rule]).expect("a valid rule");
    let mut request = messages(2);
    let agent = http::HeaderValue::from_static("grpc-rust");
    request.headers_mut().insert("user-agent", agent.clone());
    let Ok(response) = limits.layer(service_fn(read)).oneshot(request).await;
    assert_eq!(status(&response), Some("8"));
    assert_eq!(received.try_recv().expect("it was denied"), Some(agent));
}
