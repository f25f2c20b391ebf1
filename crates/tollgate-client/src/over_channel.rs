//! The layer over tonic's channel.

use std::sync::Arc;

use http::Request;
use tonic::body::Body;
use tower::util::MapRequest;
use tower_layer::Layer;

use crate::{layer::ClientRateLimitLayer, replay_body::ReplayBody, service::ClientRateLimit};

/// A service that takes tonic's body, behind the conversion of those of [`ClientRateLimit`]. Made by
/// [`ClientRateLimitLayer::over_channel`].
pub type OverChannel<S> = MapRequest<S, fn(Request<ReplayBody<Body>>) -> Request<Body>>;

impl ClientRateLimitLayer {
    /// Wraps a service that takes tonic's body, such as `tonic::transport::Channel`. Generated clients take the result:
    /// `GreeterClient::new(ClientRateLimitLayer::new().over_channel(channel))`.
    ///
    /// A channel goes to one server, which its calls do not name: what this returns, and its clones, have
    /// [partitions](Self::partition_by) of their own. Make it once for a channel, and clone it for each client. All gRPC calls are
    /// POST: mark those to retry with [`idempotent`](Self::idempotent). A [`ClientRateLimitError`](crate::ClientRateLimitError)
    /// arrives as the source of a `tonic::Status` with the code `UNKNOWN`.
    pub fn over_channel<S>(&self, channel: S) -> ClientRateLimit<OverChannel<S>> {
        let layer = self.clone().with(|it| it.partitions = Arc::default());
        layer.layer(MapRequest::new(channel, |it| it.map(Body::new)))
    }
}
