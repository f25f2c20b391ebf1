//! The service: one request.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::{
    rate_limit::body::ResponseBody, rate_limit::config::Config, rate_limit::decide::Judged,
    rate_limit::future::ResponseFuture, rate_limit::live::Live, rate_limit::request_rules::Asked,
};

/// Limits the requests to `S`. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Requests may have any [`Body`]; responses any body whose data is [`Bytes`](bytes::Bytes), as in axum, tonic and hyper.
///
/// See the [module documentation](crate).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<Live<Config>>,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, config: Arc<Live<Config>>) -> Self {
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
            .field("config", &**self.config)
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
        let mut asked = Asked::default();
        match self.config.judge(&head, !body.is_end_stream(), &mut asked) {
            // Nothing to wait for: the inner service that was polled ready is called at once, with no clone of it.
            Judged::Now(judgement) => match self.config.admit(&mut head, judgement, asked.checks) {
                Ok(after) => {
                    let request = Request::from_parts(head, body);
                    ResponseFuture::inner(self.inner.call(request), after)
                }
                Err(rejection) => {
                    // What `poll_ready` has reserved (a place under a concurrency limit, in a queue) is given up with
                    // the instance that holds it. Kept until the next call, it would be missing elsewhere.
                    self.inner = self.inner.clone();
                    ResponseFuture::rejected(rejection)
                }
            },
            Judged::Later(judgement) => {
                // The instance that was polled ready goes with the future, the clone stays behind: a clone need not be
                // ready.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                let request = Request::from_parts(head, body);
                ResponseFuture::judging(judgement, ready, request, Arc::clone(&**self.config))
            }
        }
    }
}
