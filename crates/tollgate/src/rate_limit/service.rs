//! The service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tollgate_core::{Decision, Pending, Step, observe::Timer, store::Checks};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::{Admitted, Answered, Marks, answer_denied, challenged, only_one, pass},
        body::ResponseBody,
        config::Config,
        decide::{
            Asked, Delayed, Progress, acquire_first, ask, is_done, jitter_seed, look_up, report,
            wait, waits,
        },
        future::ResponseFuture,
        live_config::LiveConfig,
        request_rules::{KnownChecks, RequestChecks},
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
    fn call(&mut self, mut request: Request<B>) -> ResponseFuture<S, B> {
        let timer = Timer::start();
        let mut checks = RequestChecks::default();
        // One configuration for all of the request.
        let config = self.config.load();
        let admitted = match ask(
            &config,
            &Head::from(&request),
            !request.body().is_end_stream(),
            &mut checks,
        ) {
            Asked::Nothing => pass(config, &mut request),
            Asked::Checks => match acquire_first(&config, &checks.checks) {
                // By reference: a decision and its checks are large to move.
                Some(Step::Ready(ref mut decision)) => {
                    let checks = &checks.checks;
                    if waits(&config, decision) {
                        return self.delay(Some(&*decision), checks, request, config);
                    }
                    report(&config, &Head::from(&request), checks, decision, timer);
                    if !decision.is_allowed() {
                        let seed = jitter_seed(checks);
                        let answered =
                            answer_denied(&config, &Head::from(&request), decision, seed, &[]);
                        return self.answer(answered);
                    }
                    if config.rules.has_challenges()
                        && let Some(response) = challenged(&config, &mut request, decision, checks)
                    {
                        return self.reject(response);
                    }
                    if is_done(&config, decision) {
                        None
                    } else if let Some((check, verdict)) = only_one(&config, decision, checks) {
                        let at = decision.at();
                        let marked = config.duplicates.mark(request.extensions_mut(), at);
                        let future = self.inner.call(request);
                        // Written where it stays, not moved there: the processor would wait for each piece.
                        let kept = Admitted::one(config, *check, *verdict, at, marked);
                        return ResponseFuture::inner_of_one(future, kept);
                    } else {
                        let marks = Marks::set(&config, &mut request, decision, checks);
                        let future = self.inner.call(request);
                        let kept = Admitted::several(config, decision, checks, marks);
                        return ResponseFuture::inner(future, Some(kept));
                    }
                }
                Some(Step::Wait(reply)) => {
                    let route = Route::of(request.extensions());
                    let decided = wait(Arc::clone(&config), checks.checks, reply, timer, route);
                    return self.decide_later(Pending::new(decided), request, config);
                }
                None => return self.delay(None, &checks.checks, request, config),
            },
            Asked::LookUps => {
                let route = Route::of(request.extensions());
                let decided = look_up(Arc::clone(&config), checks, timer, route);
                return self.decide_later(Pending::new(decided), request, config);
            }
            Asked::Rejected(response) => return self.reject(response),
        };
        // Nothing to wait for: the inner service that was polled ready is called at once, without a clone.
        ResponseFuture::inner(self.inner.call(request), admitted)
    }
}

impl<S: Clone> RateLimit<S> {
    fn reject<B>(&mut self, response: Box<Response<Bytes>>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        // Dropping the instance frees what `poll_ready` has reserved (a permit, a place in a queue). Kept until the next call,
        // it would be missing elsewhere.
        self.inner = self.inner.clone();
        ResponseFuture::rejected(response)
    }

    /// The instance that was polled ready is not kept while a denial is held.
    fn answer<B>(&mut self, answered: Answered) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        let rejected = self.reject(answered.response);
        match answered.held {
            None => rejected,
            Some(held) => rejected.held(held),
        }
    }

    #[cold]
    fn delay<B>(
        &mut self,
        decision: Option<&Decision>,
        checks: &Checks,
        request: Request<B>,
        config: Arc<Config>,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        let delayed = Delayed::new(&config.rules.limiter, checks, decision.cloned());
        let progress = (Progress::Waits(delayed), checks.clone().into());
        let progress = Pending::new(std::future::ready(progress));
        self.decide_later(progress, request, config)
    }

    #[inline(never)]
    fn decide_later<B>(
        &mut self,
        decided: Pending<(Progress, KnownChecks)>,
        request: Request<B>,
        config: Arc<Config>,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        ResponseFuture::deciding(decided, ready, request, config)
    }
}
