//! Requests and handlers without a wire.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tollgate::{
    MINUTE, MemoryStore, Quota, Rule,
    key::constant,
    message::{MessageBody, MessageLimitLayer},
};

/// A store whose time stands still.
pub(crate) fn still() -> MemoryStore {
    tollgate_tests::app::still().0
}

/// An empty message is its prefix.
pub(crate) const MESSAGE: [u8; 5] = [0; 5];

pub(crate) fn rule(limit: u64) -> Rule {
    Rule::new("messages", Quota::fixed_window(limit, MINUTE))
}

pub(crate) fn limits(store: impl tollgate::Store, limit: u64) -> MessageLimitLayer {
    MessageLimitLayer::new(store, [rule(limit).by(constant("all"))]).expect("a valid rule")
}

pub(crate) fn grpc(body: impl Into<Body>) -> Request<Body> {
    Request::post("/weather.v1.Weather/Record")
        .header("content-type", "application/grpc")
        .body(body.into())
        .expect("a request")
}

/// Messages in one frame.
pub(crate) fn messages(number: usize) -> Request<Body> {
    grpc(MESSAGE.repeat(number))
}

/// A body that is fed by hand.
pub(crate) fn fed() -> (mpsc::Sender<Bytes>, Request<Body>) {
    let (feed, frames) = mpsc::channel::<Bytes>(16);
    let frames = ReceiverStream::new(frames).map(|data| Ok::<_, Infallible>(Frame::data(data)));
    (feed, grpc(Body::new(StreamBody::new(frames))))
}

/// Reads the request to its end, whatever that is, and says how many bytes came.
pub(crate) async fn read(
    request: Request<MessageBody<Body>>,
) -> Result<Response<Body>, Infallible> {
    let mut body = request.into_body();
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
    Ok(Response::builder()
        .header("bytes", bytes)
        .body(Body::from("swallowed"))
        .expect("a response"))
}

pub(crate) fn status<B>(response: &Response<B>) -> Option<&str> {
    response.headers().get("grpc-status")?.to_str().ok()
}

/// Polls once.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
