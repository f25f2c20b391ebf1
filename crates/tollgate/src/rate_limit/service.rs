//! The service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::rate_limit::{
    admit::admit,
    body::ResponseBody,
    decide::{Deciding, decide},
    future::ResponseFuture,
    live_config::LiveConfig,
    request_rules::RequestChecks,
};

/// Limits the requests to `S`. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Requests may have any [`Body`]; responses any body whose data is [`Bytes`](bytes::Bytes), as in axum, tonic and hyper.
///
/// See the [module documentation](crate).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<LiveConfig>,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, config: Arc<LiveConfig>) -> Self {
        Self { inner, config }
    }

    /// The inner service.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for RateLimit<S> {
    const NAME: &'static str = S::NAME;
}

impl<S: fmt::Debug> fmt::Debug for RateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .field("config", &self.config)
            .finish()
    }
}

impl<S, B, RB> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    B: Body,
{
    type Response = Response<ResponseBody<RB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let (mut head, body) = request.into_parts();
        let mut checks = RequestChecks::default();
        // One snapshot for all of the request.
        let snapshot = self.config.load();
        let config = &snapshot.config;
        match decide(config, &head, !body.is_end_stream(), &mut checks) {
            // Nothing to wait for: the inner service that was polled ready is called at once, without a clone.
            Deciding::Now(decided) => {
                match admit(config, &mut head, decided, checks.checks) {
                    Ok(admitted) => {
                        let request = Request::from_parts(head, body);
                        ResponseFuture::inner(self.inner.call(request), admitted)
                    }
                    Err(rejection) => {
                        // Dropping the instance frees what `poll_ready` has reserved (a permit, a place in a queue). Kept until
                        // the next call, it would be missing elsewhere.
                        self.inner = self.inner.clone();
                        ResponseFuture::rejected(rejection)
                    }
                }
            }
            Deciding::Later(decided) => {
                // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                let request = Request::from_parts(head, body);
                ResponseFuture::deciding(decided, ready, request, Arc::clone(config))
            }
        }
    }
}
