//! The service.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::Pending;
use tower::BoxError;
use tower_service::Service;

use crate::{
    client_limit::ClientLimit,
    config::Config,
    future::{ResponseFuture, respond},
    replay_body::ReplayBody,
};

/// Sends requests to `S` as fast as their servers allow. Made by [`ClientRateLimitLayer`](crate::ClientRateLimitLayer).
///
/// See the [crate documentation](crate).
#[derive(Clone, Debug)]
pub struct ClientRateLimit<S> {
    inner: S,
    config: Arc<Config>,
    /// It keeps the names of the client's own rules in use. Requests in flight do not hold it.
    limit: Option<ClientLimit>,
}

impl<S> ClientRateLimit<S> {
    pub(crate) fn new(inner: S, config: Arc<Config>, limit: Option<ClientLimit>) -> Self {
        Self {
            inner,
            config,
            limit,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, RB> Service<Request<B>> for ClientRateLimit<S>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<RB>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body + Send + 'static,
    RB: Send + 'static,
{
    type Response = Response<RB>;
    type Error = BoxError;
    type Future = ResponseFuture<RB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<RB> {
        // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let limit = self.limit.as_ref().map(ClientLimit::of_request);
        Pending::new(respond(ready, request, Arc::clone(&self.config), limit))
    }
}
