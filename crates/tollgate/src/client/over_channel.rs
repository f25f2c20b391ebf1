//! tonic's channel under the layer.

use std::task::{Context, Poll};

use http::Request;
use http_body::Body;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use crate::client::{layer::PaceLayer, replay_body::ReplayBody, service::Pace};

impl PaceLayer {
    /// The layer over a service that takes tonic's body, such as `tonic::transport::Channel`. What it returns is what
    /// a generated client takes: `GreeterClient::new(PaceLayer::new().over_channel(channel))`.
    ///
    /// Calls to one channel go to one server and are one [scope](Self::scope_by). Calls of gRPC are POST: say with
    /// [`idempotent`](Self::idempotent) which are sent again. A [`PaceError`](crate::client::PaceError) comes as the
    /// source of a `tonic::Status` with the code `UNKNOWN`.
    pub fn over_channel<S>(&self, channel: S) -> Pace<OverChannel<S>> {
        self.layer(OverChannel { channel })
    }
}

/// Gives a service that takes tonic's body the bodies of [`Pace`]. Made by [`PaceLayer::over_channel`].
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
