//! The service: one outgoing request.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower::BoxError;
use tower_service::Service;

use crate::{
    client::{config::Config, future::ResponseFuture, replay_body::ReplayBody},
    live::Live,
};

/// Sends requests to `S` as its servers want them. Made by [`PaceLayer`](crate::client::PaceLayer).
///
/// See the [module documentation](crate::client).
#[derive(Clone)]
pub struct Pace<S> {
    inner: S,
    config: Arc<Live<Config>>,
}

impl<S> Pace<S> {
    pub(super) fn new(inner: S, config: Arc<Live<Config>>) -> Self {
        Self { inner, config }
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: fmt::Debug> fmt::Debug for Pace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("inner", &self.inner)
            .field("config", &**self.config)
            .finish()
    }
}

impl<S, B, RB> Service<Request<B>> for Pace<S>
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
        // The instance that was polled ready goes with the future, the clone stays behind: a clone need not be ready.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::new(ready, request, Arc::clone(&**self.config))
    }
}
