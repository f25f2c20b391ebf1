//! The layer over tonic's channel.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::Request;
use http_body::Body;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    error::ClientRateLimitError, layer::ClientRateLimitLayer, replay_body::ReplayBody,
    service::ClientRateLimit,
};

impl ClientRateLimitLayer {
    /// Wraps a service that takes tonic's body, such as `tonic::transport::Channel`. Generated clients take the result:
    /// `GreeterClient::new(ClientRateLimitLayer::new().over_channel(channel))`.
    ///
    /// A channel goes to one server, which its calls do not name: what this returns, and its clones, have
    /// [partitions](Self::partition_by) of their own. Make it once for a channel, and clone it for each client. All gRPC calls are
    /// POST: mark those to retry with [`idempotent`](Self::idempotent). A call waits no longer than its own timeout. A
    /// [`ClientRateLimitError`](crate::ClientRateLimitError) arrives as the source of a `tonic::Status` with the code `RESOURCE_EXHAUSTED`,
    /// or with `UNKNOWN` if it has [no checks](crate::ClientRateLimitErrorKind::NoChecks).
    pub fn over_channel<S>(&self, channel: S) -> ClientRateLimit<OverChannel<S>> {
        let layer = self.clone().with(|it| {
            it.partitions = Arc::default();
            it.not_sent = with_status;
        });
        layer.layer(OverChannel { channel })
    }
}

/// tonic finds the status of a call among the sources of its error.
fn with_status(mut error: ClientRateLimitError) -> BoxError {
    error.source = Some(tonic::Status::resource_exhausted(error.to_string()).into());
    error.into()
}

/// Converts the bodies of [`ClientRateLimit`] to tonic's body. Made by [`ClientRateLimitLayer::over_channel`].
#[derive(Clone, Debug)]
pub struct OverChannel<S> {
    channel: S,
}

impl<S, B> Service<Request<ReplayBody<B>>> for OverChannel<S>
where
    S: Service<Request<tonic::body::Body>>,
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.channel.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReplayBody<B>>) -> S::Future {
        self.channel.call(request.map(tonic::body::Body::new))
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test]
    async fn a_service_of_tonics_body_gets_every_body() {
        let layer = ClientRateLimitLayer::new();
        let client = layer.over_channel(service_fn(async |request: Request<tonic::body::Body>| {
            Ok::<_, BoxError>(Response::new(request.into_body().size_hint().exact()))
        }));
        let text = client.clone().oneshot(Request::new(String::from("text")));
        assert_eq!(text.await.expect("an answer").into_body(), Some(4));
        let none = client.oneshot(Request::new(tonic::body::Body::empty()));
        assert_eq!(none.await.expect("an answer").into_body(), Some(0));
    }
}
