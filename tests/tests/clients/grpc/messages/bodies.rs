//! What handlers read, and what their clients get whatever the handler does with it.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use proptest::{collection::vec, prelude::*, sample::Index};
use tokio::{sync::mpsc, time::timeout};
use tollgate::{
    MINUTE, Missing, OnStoreError,
    decision::Reason,
    key::constant,
    message::{MessageBody, MessageLimitError, MessageLimitLayer},
    rejection::Protocol,
};
use tollgate_conformance::SwitchedStore;
use tonic::{Code, Status};
use tower::{Layer, ServiceExt, service_fn};

use crate::grpc::messages::{
    by_hand::{MESSAGE, fed, grpc, limits, messages, poll, read, rule, status, still},
    served::HANGS,
};

#[tokio::test]
async fn a_handler_that_swallows_the_error_hides_nothing() {
    let service = limits(still(), 2).layer(service_fn(read));
    let Ok(response) = service.oneshot(messages(3)).await;
    assert_eq!(status(&response), Some("8"));
    assert!(http_body::Body::is_end_stream(response.body()));
}

#[tokio::test]
async fn a_response_that_has_begun_ends_even_if_its_service_hangs() {
    // The request is read elsewhere, and the response never ends by itself.
    let silent = |request: Request<MessageBody<Body>>| async move {
        tokio::spawn(read(request));
        let never = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
        Ok::<_, Infallible>(Response::new(Body::new(never)))
    };
    let service = limits(still(), 1).layer(service_fn(silent));
    let (feed, request) = fed();
    feed.send(MESSAGE.to_vec().into())
        .await
        .expect("it is open");
    let Ok(response) = service.oneshot(request).await;
    let end = tokio::spawn(response.into_body().collect());
    feed.send(MESSAGE.to_vec().into())
        .await
        .expect("it is open");
    let end = timeout(HANGS, end).await.expect("it ends");
    let end = end.expect("no panic").expect("no error");
    assert_eq!(end.trailers().expect("trailers")["grpc-status"], "8");
}

#[tokio::test]
async fn a_call_denied_before_its_response_ends_even_if_its_service_hangs() {
    let silent = |request: Request<MessageBody<Body>>| async move {
        tokio::spawn(read(request));
        std::future::pending::<Result<Response<Body>, Infallible>>().await
    };
    let service = limits(still(), 1).layer(service_fn(silent));
    let answer = timeout(HANGS, service.oneshot(messages(2))).await;
    let Ok(response) = answer.expect("an answer");
    assert_eq!(status(&response), Some("8"));
}

#[tokio::test]
async fn a_handler_reads_an_error_in_place_of_the_denied_message() {
    let (reported, mut received) = mpsc::channel(1);
    let reads = move |request: Request<MessageBody<Body>>| {
        let reported = reported.clone();
        async move {
            let mut body = request.into_body();
            let frame = body.frame().await.expect("a frame").expect("no error");
            let bytes = frame.into_data().expect("data");
            let error = body.frame().await.expect("more").expect_err("an error");
            let end = body.frame().await.is_none();
            reported
                .send((bytes, error, end))
                .await
                .expect("it listens");
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    };
    let service = limits(still(), 2).layer(service_fn(reads));
    let Ok(_) = service.oneshot(messages(7)).await;
    let (bytes, error, end) = received.try_recv().expect("it was read");
    // Two messages, and a prefix that is not whole.
    assert_eq!((bytes.len(), end), (2 * 5 + 4, true));
    let limit: &MessageLimitError = error.downcast_ref().expect("it says why");
    assert_eq!(limit.reason(), Reason::Quota);
    assert_eq!(limit.retry_after(), Some(MINUTE));
    // tonic hands this to its handlers.
    assert_eq!(Status::from_error(error).code(), Code::ResourceExhausted);
}

proptest! {
    #[test]
    fn a_handler_reads_all_of_the_messages_that_are_admitted_however_they_are_framed(
        lengths in vec(0..40_usize, 1..12), admitted in 1..12_u64, waits: bool, at in vec(any::<Index>(), 0..20),
    ) {
        let message = |length: &usize| [&[0, 0, 0, 0, *length as u8][..], &vec![0xa5; *length]].concat();
        let bytes = Bytes::from(lengths.iter().flat_map(message).collect::<Vec<_>>());
        let mut cuts: Vec<_> = at.iter().map(|at| at.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let frames = cuts.windows(2).map(|cut| Ok::<_, Infallible>(Frame::data(bytes.slice(cut[0]..cut[1]))));
        let body = Body::new(StreamBody::new(tokio_stream::iter(frames.collect::<Vec<_>>())));
        let handed_on = Arc::new(Mutex::new(Vec::new()));
        let reads = |request: Request<MessageBody<Body>>| {
            let handed_on = Arc::clone(&handed_on);
            async move {
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    handed_on.lock().unwrap().extend(frame.into_data().expect("data"));
                }
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        };
        // The next one is denied at once, or waits and the handler has the others meanwhile.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _guard = runtime.enter();
        let limits = limits(still(), admitted);
        let limits = if waits { limits.wait_up_to(MINUTE) } else { limits };
        let _ = poll(pin!(limits.layer(service_fn(reads)).oneshot(grpc(body))));
        let whole: usize = lengths.iter().take(admitted as usize).map(|length| 5 + length).sum();
        let handed_on = handed_on.lock().unwrap();
        prop_assert!((whole..whole + 5).contains(&handed_on.len()), "{} of {whole}", handed_on.len());
        prop_assert_eq!(&handed_on[..], &bytes[..handed_on.len()]);
    }
}

#[tokio::test]
async fn a_handler_reads_that_the_store_failed() {
    let store = SwitchedStore::at_once(still());
    let rule = rule(9)
        .on_store_error(OnStoreError::Deny)
        .by(constant("all"));
    let limits = MessageLimitLayer::new(store.clone(), [rule]).expect("a valid rule");
    store.switch(false);
    let reads = |request: Request<MessageBody<Body>>| async move {
        let error = request.into_body().collect().await.expect_err("it failed");
        let limit: &MessageLimitError = error.downcast_ref().expect("it says why");
        assert_eq!(limit.reason(), Reason::StoreFailed);
        assert_eq!(limit.retry_after(), None);
        let text = limit.to_string();
        assert_eq!(text, "the store of the limit on messages failed");
        Ok::<_, Infallible>(Response::new(Body::empty()))
    };
    let Ok(response) = limits.layer(service_fn(reads)).oneshot(messages(1)).await;
    assert_eq!(status(&response), Some("14"));
}

#[tokio::test]
async fn a_response_that_may_be_cut_off_does_not_tell_its_length() {
    let sized = |_: Request<MessageBody<Body>>| async {
        let response = Response::builder().header("content-length", 4);
        Ok::<_, Infallible>(response.body(Body::from("size")).expect("a response"))
    };
    let limits = limits(still(), 9).protocol(Protocol::Auto);
    let service = limits.layer(service_fn(sized));
    let Ok(limited) = service.clone().oneshot(messages(1)).await;
    assert_eq!(limited.headers().get("content-length"), None);
    assert_eq!(http_body::Body::size_hint(limited.body()).exact(), None);
    let rest = Request::get("/items").body(Body::empty());
    let Ok(response) = service.oneshot(rest.expect("a request")).await;
    assert_eq!(response.headers()["content-length"], "4");
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(4));
}

#[tokio::test]
async fn with_auto_requests_without_a_grpc_content_type_pass_unchanged() {
    let limits = limits(still(), 1).protocol(Protocol::Auto);
    let service = limits.layer(service_fn(read));
    for (method, content_type) in [
        (Method::POST, "application/json"),
        (Method::POST, "application/connect+proto"),
        (Method::PUT, "application/grpc"),
    ] {
        let mut request = messages(9);
        *request.method_mut() = method;
        let value = http::HeaderValue::from_static(content_type);
        request.headers_mut().insert("content-type", value);
        let Ok(response) = service.clone().oneshot(request).await;
        assert_eq!(response.headers()["bytes"], "45", "{content_type}");
    }
}

#[tokio::test]
async fn with_auto_rest_requests_need_no_key() {
    let rule = rule(1)
        .by(tollgate::key::header("x-api-key"))
        .when_missing(Missing::Reject(http::StatusCode::UNAUTHORIZED));
    let layer = MessageLimitLayer::new(still(), [rule]).expect("a valid rule");
    let service = layer.protocol(Protocol::Auto).layer(service_fn(read));
    let get = Request::get("/items").body(Body::empty());
    let Ok(response) = service.clone().oneshot(get.expect("a request")).await;
    assert_eq!(response.headers()["bytes"], "0");
    let Ok(response) = service.oneshot(messages(1)).await;
    assert_eq!(status(&response), Some("16"));
}

#[tokio::test]
async fn a_preflight_needs_no_key_unless_it_brings_messages() {
    let rule = rule(1)
        .by(tollgate::key::header("x-api-key"))
        .when_missing(Missing::Reject(http::StatusCode::UNAUTHORIZED));
    let layer = MessageLimitLayer::new(still(), [rule]).expect("a valid rule");
    let service = layer.layer(service_fn(read));
    for (body, expected) in [
        (Body::empty(), None),
        (Body::from(&MESSAGE[..]), Some("16")),
    ] {
        let preflight = Request::options("/weather.v1.Weather/Record")
            .header("origin", "https://example.com")
            .header("access-control-request-method", "POST")
            .body(body);
        let preflight = preflight.expect("a request");
        let Ok(response) = service.clone().oneshot(preflight).await;
        assert_eq!(status(&response), expected);
    }
}
