//! The service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::observe::Timer;
use tower_service::Service;

use crate::{
    head::Head,
    rate_limit::{
        admit::{Admitted, Decided},
        body::ResponseBody,
        future::ResponseFuture,
        live_config::LiveConfig,
        service_config::ServiceConfig,
    },
};

/// Limits the requests to `S`. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Requests may have any [`Body`]; responses any body whose data is [`Bytes`](bytes::Bytes), as in axum, tonic and hyper.
///
/// See the [module documentation](crate).
#[derive(Clone)]
pub struct RateLimit<S> {
    inner: S,
    config: ServiceConfig,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, config: Arc<LiveConfig>) -> Self {
        Self {
            inner,
            config: ServiceConfig::new(config),
        }
    }

    /// The inner service.
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
    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let timer = Timer::start();
        let mut future = ResponseFuture::new();
        // Written where it stays: each move takes time. One configuration for all of the request.
        let admitted = future.admitted.insert(Admitted::new(self.config.load()));
        let has_body = !request.body().is_end_stream();
        let answered = match admitted.decide(&Head::from(&request), has_body, timer) {
            Decided::Allowed => admitted.enter(&mut request),
            Decided::Unlimited => {
                future.admitted = None;
                None
            }
            Decided::Answered(answered) => Some(answered),
            Decided::Later(pending) => {
                let config = admitted.config();
                // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                future.decide_later(pending, ready, request, config);
                return future;
            }
        };
        match answered {
            // Nothing to wait for: the inner service that was polled ready is called at once, without a clone.
            None => future.inner = Some(self.inner.call(request)),
            Some(answered) => {
                // Dropping the instance frees what `poll_ready` has reserved (a permit, a place in a queue). Kept until the
                // next call, it would be missing elsewhere, also while the denial is held.
                self.inner = self.inner.clone();
                future.answer(answered);
            }
        }
        future
    }
}
