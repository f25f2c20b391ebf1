//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tollgate_core::{Pending, layer::Waiting};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::{Admitted, Answered, Entry, answer_denied},
        body::ResponseBody,
        config::Config,
        decide::{Progress, delay},
        deny::reject,
        request_rules::KnownChecks,
        wait_room::head_bytes,
    },
};

pin_project! {
    /// The response of the inner service, or a rejection.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        kind: Kind<S, B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<S, B>
    where
        S: Service<Request<B>>,
    {
        /// The inner service runs. `None`: no rule counts the request.
        Inner { #[pin] future: S::Future, admitted: Option<Admitted> },
        /// What is before that, or in its place.
        Before { state: Option<Box<State<S, B>>> },
    }
}

enum State<S, B> {
    /// The store or a look-up of the key is in flight, or the request waits. The inner service was not called.
    Deciding {
        decided: Pending<(Progress, KnownChecks)>,
        request: Option<PendingRequest<S, B>>,
    },
    /// The request was admitted after a wait; the inner service becomes ready.
    Readying(Option<(PendingRequest<S, B>, Box<Admitted>)>),
    /// The request was answered, and the answer may be held back. Neither the service nor the request is kept.
    Answered(Answered),
}

/// The service and the request, until the decision comes.
struct PendingRequest<S, B> {
    service: S,
    /// Whether this very instance was polled ready. It is not while the request waits: what it has reserved is for others then.
    is_ready: bool,
    /// When the wait has begun.
    waits_since: Option<Instant>,
    request: Request<B>,
    config: Arc<Config>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn inner(future: S::Future, admitted: Option<Admitted>) -> Self {
        Self {
            kind: Kind::Inner { future, admitted },
        }
    }

    pub(crate) fn answered(answered: Answered) -> Self {
        Self::before(State::Answered(answered))
    }

    pub(crate) fn deciding(
        decided: Pending<(Progress, KnownChecks)>,
        ready: S,
        request: Request<B>,
        config: Arc<Config>,
    ) -> Self {
        Self::before(State::Deciding {
            decided,
            request: Some(PendingRequest {
                service: ready,
                is_ready: true,
                waits_since: None,
                request,
                config,
            }),
        })
    }

    fn before(state: State<S, B>) -> Self {
        Self {
            kind: Kind::Before {
                state: Some(Box::new(state)),
            },
        }
    }
}

impl<S: Clone, B> PendingRequest<S, B> {
    /// The request waits, if there is room, or else is decided again as one that may not.
    fn delay(
        &mut self,
        waiting: Box<Waiting>,
        checks: KnownChecks,
    ) -> Pending<(Progress, KnownChecks)> {
        // Dropping the instance frees what `poll_ready` has reserved. The clone becomes ready after the wait.
        self.service = self.service.clone();
        self.is_ready = false;
        self.waits_since = Some(Instant::now());
        let place = self.config.wait_room.enter(head_bytes(&self.request));
        let route = Route::of(self.request.extensions());
        Pending::new(delay(
            Arc::clone(&self.config),
            checks,
            waiting,
            place,
            route,
        ))
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
{
    type Output = Result<Response<ResponseBody<RB>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kind = self.project().kind;
        loop {
            let state = match kind.as_mut().project() {
                KindProj::Inner { future, admitted } => {
                    return Poll::Ready(match ready!(future.poll(cx)) {
                        Ok(mut response) => {
                            let settle = |it: &mut Admitted| it.on_response(&mut response);
                            let at_end = admitted.as_mut().and_then(settle);
                            // It holds the configuration no longer.
                            *admitted = None;
                            Ok(response.map(|body| ResponseBody::inner(body, at_end)))
                        }
                        Err(error) => {
                            if let Some(mut admitted) = admitted.take() {
                                admitted.on_error();
                            }
                            Err(error)
                        }
                    });
                }
                KindProj::Before { state } => state,
            };
            match &mut **state.as_mut().expect("polled after completion") {
                State::Deciding { decided, request } => {
                    let (progress, known) = ready!(Pin::new(&mut *decided).poll(cx));
                    let mut pending = request.take().expect("polled after completion");
                    let config = Arc::clone(&pending.config);
                    let head = Head::from(&pending.request);
                    let answered = match progress {
                        Progress::Waits(waiting) => {
                            *decided = pending.delay(waiting, known);
                            *request = Some(pending);
                            continue;
                        }
                        Progress::Denied(decision) => {
                            let KnownChecks { checks, found } = &known;
                            answer_denied(&config, &head, &decision, checks, found)
                        }
                        Progress::Refused(refusal) => {
                            Answered::at_once(reject(&config, &head, &refusal))
                        }
                        Progress::Allowed(decision) => {
                            let checks = known.checks;
                            let shows_wait = config.settings.server_timing;
                            let since = pending.waits_since.filter(|_| shows_wait);
                            let waited = since.map(|since| since.elapsed());
                            let request = &mut pending.request;
                            let entry = Entry::of(&config, &checks, &decision, request, waited);
                            let head = Head::from(&*request);
                            let answer = config.rules.challenge(&head, &decision);
                            let admitted = Admitted::new(config, checks, decision, entry);
                            match answer {
                                Some(answer) => admitted.answer(answer),
                                None if pending.is_ready => {
                                    let future = pending.service.call(pending.request);
                                    let admitted = Some(admitted);
                                    kind.set(Kind::Inner { future, admitted });
                                    continue;
                                }
                                None => {
                                    let readying = Some((pending, Box::new(admitted)));
                                    *state = Some(Box::new(State::Readying(readying)));
                                    continue;
                                }
                            }
                        }
                    };
                    *state = Some(Box::new(State::Answered(answered)));
                }
                State::Readying(readying) => {
                    let (pending, _) = readying.as_mut().expect("polled after completion");
                    let ready = ready!(pending.service.poll_ready(cx));
                    let (mut pending, admitted) = readying.take().expect("it is there");
                    let mut admitted = *admitted;
                    if let Err(error) = ready {
                        admitted.on_error();
                        return Poll::Ready(Err(error));
                    }
                    let future = pending.service.call(pending.request);
                    let admitted = Some(admitted);
                    kind.set(Kind::Inner { future, admitted });
                }
                State::Answered(answered) => {
                    if let Some(held) = &mut answered.held {
                        ready!(Pin::new(held).poll(cx));
                    }
                    let response = std::mem::take(&mut answered.response);
                    *state = None;
                    return Poll::Ready(Ok(response.map(ResponseBody::full)));
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.kind {
            Kind::Inner { .. } => None,
            Kind::Before { state } => state.as_deref(),
        };
        f.write_str(match state {
            Some(State::Deciding { .. }) => "ResponseFuture::Deciding",
            Some(State::Readying(_)) => "ResponseFuture::Readying",
            Some(State::Answered(_)) => "ResponseFuture::Answered",
            None => "ResponseFuture::Inner",
        })
    }
}
