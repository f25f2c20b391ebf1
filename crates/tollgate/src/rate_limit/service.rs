//! The service.

use std::{
    future::ready,
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::{Pending, Step, observe::Timer};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::Admitted,
        body::ResponseBody,
        decide::{Progress, is_preflight, look_up, wait},
        deny::{Answered, deny, reject},
        future::{PendingRequest, ResponseFuture, Stage, State},
        live_config::ServiceConfig,
        request_rules::KnownChecks,
    },
};

/// Limits the requests to `S`. Made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// Requests may have any [`Body`]; responses any body whose data is [`Bytes`](bytes::Bytes), as in axum, tonic and hyper.
///
/// See the [module documentation](crate).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    pub(super) inner: S,
    pub(super) config: ServiceConfig,
}

impl<S> RateLimit<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

#[cfg(feature = "tonic")]
impl<S: tonic::server::NamedService> tonic::server::NamedService for RateLimit<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, RB> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    B: Body,
    RB: Body,
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
        // One configuration for all of the request.
        let mut admitted = Admitted::new(self.config.load());
        let head = Head::from(&request);
        let is_preflight = is_preflight(&head, || request.body().is_end_stream());
        let answered = match decide(&mut admitted, &head, is_preflight) {
            None => match admitted.enter(&mut request) {
                // Nothing to wait for: the inner service that was polled ready is called at once, without a clone.
                None => {
                    let future = self.inner.call(request);
                    return ResponseFuture {
                        stage: Stage::Inner { future },
                        admitted: Some(admitted),
                    };
                }
                Some(answered) => answered,
            },
            Some(Instead::Answered(answered)) => answered,
            Some(Instead::Later(decided)) => {
                // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
                let clone = self.inner.clone();
                let request = Some(PendingRequest {
                    service: mem::replace(&mut self.inner, clone),
                    is_ready: true,
                    request,
                    admitted,
                });
                return ResponseFuture::before(State::Deciding { decided, request });
            }
        };
        // Dropping the instance frees what `poll_ready` has reserved (a permit, a place in a queue). Kept until the next call,
        // it would be missing elsewhere.
        self.inner = self.inner.clone();
        ResponseFuture::before(State::Answered(answered))
    }
}

/// What comes in the place of the service, or before it.
enum Instead {
    Answered(Answered),
    /// The store or a look-up of the key is in flight, or the request waits.
    Later(Pending<(Progress, KnownChecks)>),
}

/// Decides a request by its head. `None`: it goes on to the service, and `admitted` has its checks and its decision. The checks
/// are written where they stay, because they are large to move.
#[inline]
fn decide(admitted: &mut Admitted, head: &Head<'_>, is_preflight: bool) -> Option<Instead> {
    let timer = Timer::start();
    let (config, checks) = (&admitted.config, &mut admitted.checks);
    if is_preflight && !config.settings.count_preflight {
        config.rules.observer.preflight();
        return None;
    }
    match config.rules.collect(head, false, checks) {
        Ok(None) if checks.is_empty() => return None,
        Ok(None) => {}
        Ok(Some(look_ups)) => {
            let (config, checks) = (Arc::clone(config), mem::take(checks));
            let decided = look_up(config, checks, look_ups, timer, Route::of(head.extensions));
            return Some(Instead::Later(Pending::new(decided)));
        }
        Err(refusal) => {
            let response = reject(config, head, &refusal);
            return Some(Instead::Answered(Answered::at_once(response)));
        }
    }
    let limiter = &config.rules.limiter;
    let attempt = limiter.attempt(checks);
    Some(match attempt.decide() {
        Step::Ready(decision) if attempt.waits(&decision) => {
            // With its place in the queue, which goes back also if the future is never polled.
            let waits = Progress::Waits(Box::new(attempt.wait(decision)));
            let known = mem::take(checks).into();
            Instead::Later(Pending::new(ready((waits, known))))
        }
        Step::Ready(decision) if decision.is_allowed() => {
            limiter.report(checks, &decision, timer, Route::default().as_str());
            admitted.decision = Some(decision);
            return None;
        }
        Step::Ready(decision) => {
            let route = Route::of(head.extensions);
            limiter.report(checks, &decision, timer, route.as_str());
            Instead::Answered(deny(config, head, &decision, checks, &[]))
        }
        later => {
            let (config, known) = (Arc::clone(config), mem::take(checks).into());
            let decided = wait(config, known, later, timer, Route::of(head.extensions));
            Instead::Later(Pending::new(decided))
        }
    })
}
