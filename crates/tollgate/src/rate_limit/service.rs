//! The service.

use std::{
    fmt,
    future::ready,
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::{Decision, Pending, Step, observe::Timer};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::{Admitted, Answered, answer_denied},
        body::ResponseBody,
        decide::{Progress, ask, attempt, is_preflight, look_up, report, wait},
        deny::reject,
        future::ResponseFuture,
        live_config::LiveConfig,
        request_rules::KnownChecks,
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
        // One configuration for all of the request.
        let mut admitted = Admitted::new(self.config.load());
        let head = Head::from(&request);
        let is_preflight = is_preflight(&head, || request.body().is_end_stream());
        match decide(&mut admitted, &head, is_preflight) {
            None => match admitted.enter(&mut request, None) {
                // Nothing to wait for: the inner service that was polled ready is called at once, without a clone.
                None => ResponseFuture::inner(self.inner.call(request), admitted),
                Some(answered) => self.answer(answered),
            },
            Some(Instead::Answered(answered)) => self.answer(answered),
            Some(Instead::Later(decided)) => {
                // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                ResponseFuture::deciding(decided, ready, request, admitted)
            }
        }
    }
}

impl<S: Clone> RateLimit<S> {
    /// The instance that was polled ready is not kept while a denial is held.
    fn answer<B>(&mut self, answered: Answered) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        // Dropping the instance frees what `poll_ready` has reserved (a permit, a place in a queue). Kept until the next call,
        // it would be missing elsewhere.
        self.inner = self.inner.clone();
        ResponseFuture::answered(answered)
    }
}

/// What comes in the place of the service, or before it.
enum Instead {
    Answered(Answered),
    /// The store or a look-up of the key is in flight, or the request waits.
    Later(Pending<(Progress, KnownChecks)>),
}

/// Decides a request by its head. `None`: it goes on to the service, and `admitted` has its checks and its decision. They are written
/// where they stay, because they are large to move.
fn decide(admitted: &mut Admitted, head: &Head<'_>, is_preflight: bool) -> Option<Instead> {
    let timer = Timer::start();
    let (config, checks) = (&admitted.config, &mut admitted.checks);
    match ask(config, head, is_preflight, checks) {
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
    let attempt = attempt(config, checks);
    match attempt.decide() {
        Step::Ready(decision) => {
            let decision = admitted.decision.insert(decision);
            if !attempt.waits(decision) {
                report(config, head, checks, decision, timer);
                return (!decision.is_allowed()).then(|| {
                    let answered = answer_denied(config, head, decision, checks, &[]);
                    Instead::Answered(answered)
                });
            }
            // With its place in the queue, which goes back also if the future is never polled.
            let decision = mem::replace(decision, Decision::unlimited(0));
            let waits = Progress::Waits(Box::new(attempt.wait(decision)));
            let known = mem::take(checks).into();
            Some(Instead::Later(Pending::new(ready((waits, known)))))
        }
        later => {
            let (config, known) = (Arc::clone(config), mem::take(checks).into());
            let decided = wait(config, known, later, timer, Route::of(head.extensions));
            Some(Instead::Later(Pending::new(decided)))
        }
    }
}
