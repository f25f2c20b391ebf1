//! The service.

use std::{
    fmt,
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tollgate_core::{Check, Decision, Pending, Step, observe::Timer, store::Checks};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::{Admitted, Answered, Entry, answer_denied},
        body::ResponseBody,
        config::Config,
        decide::{Progress, ask, attempt, look_up, report, wait},
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
        let timer = Timer::start();
        // One configuration for all of the request.
        let config = self.config.load();
        let head = Head::from(&request);
        let has_body = !request.body().is_end_stream();
        let mut checks = Checks::new();
        match ask(&config, &head, has_body, &mut checks) {
            Ok(None) if checks.is_empty() && !config.attach_decision => {
                return ResponseFuture::inner(self.inner.call(request), None);
            }
            Ok(None) => {}
            Err(refusal) => {
                return self.answer(Answered::at_once(reject(&config, &head, &refusal)));
            }
            Ok(Some(look_ups)) => {
                let route = Route::of(head.extensions);
                let decided = look_up(Arc::clone(&config), checks, look_ups, timer, route);
                return self.decide_later(Pending::new(decided), request, config);
            }
        }
        let asked: &[Check] = &checks;
        let attempt = attempt(&config, asked);
        let decided = match asked.is_empty() {
            true => Step::Ready(Decision::unlimited(0)),
            false => attempt.decide(),
        };
        // It stays where it was written until the service is called: each move takes time.
        let decision = match &decided {
            Step::Ready(decision) if !attempt.waits(decision) => decision,
            _ => {
                let pending = match decided {
                    // With its place in the queue, which goes back also if the future is never polled.
                    Step::Ready(decision) => {
                        let waits = Progress::Waits(Box::new(attempt.wait(decision)));
                        Pending::new(ready((waits, checks.into())))
                    }
                    reply => {
                        let (route, known) = (Route::of(head.extensions), checks.into());
                        Pending::new(wait(Arc::clone(&config), known, reply, timer, route))
                    }
                };
                return self.decide_later(pending, request, config);
            }
        };
        if !asked.is_empty() {
            report(&config, &head, asked, decision, timer);
        }
        if !decision.is_allowed() {
            let answered = answer_denied(&config, &head, decision, asked, &[]);
            return self.answer(answered);
        }
        let entry = Entry::of(&config, &checks, decision, &mut request, None);
        if config.rules.has_challenges()
            && let Some(answer) = config.rules.challenge(&Head::from(&request), decision)
        {
            let admitted = Admitted::new(config, checks, decision.clone(), entry);
            return self.answer(admitted.answer(answer));
        }
        // Nothing to wait for: the inner service that was polled ready is called at once, without a clone.
        let inner = self.inner.call(request);
        let Step::Ready(decision) = decided else {
            unreachable!("it was looked at");
        };
        // Put together in its place, after the call: the future is not moved.
        ResponseFuture::inner(inner, Some(Admitted::new(config, checks, decision, entry)))
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
