//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tollgate_core::{Pending, layer::Waiting};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::{Admitted, Answered, Entry, answer_denied, enter},
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
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        /// The store or a look-up of the key is in flight, or the request waits. The inner service was not called.
        Deciding { #[pin] decided: Pending<(Progress, KnownChecks)>, request: Option<Box<PendingRequest<S, B>>> },
        /// The request was admitted after a wait; the inner service becomes ready.
        Readying { request: Option<Box<PendingRequest<S, B>>>, admitted: Option<Admitted> },
        /// The request was admitted; the inner service runs.
        Inner { #[pin] future: S::Future, admitted: Option<Admitted> },
        /// The request was answered, and the answer may be held back. Neither the service nor the request is kept.
        Answered { held: Option<Pending<()>>, response: Option<Box<Response<Bytes>>> },
    }
}

impl<S: Service<Request<B>>, B> State<S, B> {
    fn answered(Answered { held, response }: Answered) -> Self {
        let response = Some(response);
        Self::Answered { held, response }
    }
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
            state: State::Inner { future, admitted },
        }
    }

    pub(crate) fn answered(answered: Answered) -> Self {
        Self {
            state: State::answered(answered),
        }
    }

    pub(crate) fn deciding(
        decided: Pending<(Progress, KnownChecks)>,
        ready: S,
        request: Request<B>,
        config: Arc<Config>,
    ) -> Self {
        Self {
            state: State::Deciding {
                decided,
                request: Some(Box::new(PendingRequest {
                    service: ready,
                    is_ready: true,
                    waits_since: None,
                    request,
                    config,
                })),
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
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Deciding {
                    mut decided,
                    request: pending,
                } => {
                    let (progress, known) = ready!(decided.as_mut().poll(cx));
                    let mut this = pending.take().expect("polled after completion");
                    let config = Arc::clone(&this.config);
                    let head = Head::from(&this.request);
                    let admitted = match progress {
                        Progress::Waits(waiting) => {
                            decided.set(this.delay(waiting, known));
                            *pending = Some(this);
                            continue;
                        }
                        Progress::Denied(decision) => {
                            let KnownChecks { checks, found } = &known;
                            Err(answer_denied(&config, &head, &decision, checks, found))
                        }
                        Progress::Refused(refusal) => {
                            let response = Box::new(reject(&config, &head, &refusal));
                            Err(Answered::at_once(response))
                        }
                        Progress::Allowed(decision) => {
                            match enter(&config, &mut this.request, &decision, &known.checks) {
                                Entry::Answered(response) => Err(Answered::at_once(response)),
                                Entry::Done => Ok(None),
                                Entry::Kept(marks) => {
                                    Ok(Some(Admitted::new(config, decision, known.checks, marks)))
                                }
                            }
                        }
                    };
                    let admitted = match admitted {
                        Ok(admitted) => admitted,
                        Err(answered) => {
                            state.set(State::answered(answered));
                            continue;
                        }
                    };
                    let since = this.waits_since;
                    let since = since.filter(|_| this.config.settings.server_timing);
                    let admitted =
                        admitted.map(|it: Admitted| it.after(since.map(|since| since.elapsed())));
                    if this.is_ready {
                        let future = this.service.call(this.request);
                        state.set(State::Inner { future, admitted });
                    } else {
                        let request = Some(this);
                        state.set(State::Readying { request, admitted });
                    }
                }
                StateProj::Readying { request, admitted } => {
                    let waiting = request.as_mut().expect("polled after completion");
                    if let Err(error) = ready!(waiting.service.poll_ready(cx)) {
                        return Poll::Ready(settle(admitted, Err(error)));
                    }
                    let mut waiting = request.take().expect("it is there");
                    let future = waiting.service.call(waiting.request);
                    let admitted = admitted.take();
                    state.set(State::Inner { future, admitted });
                }
                StateProj::Inner { future, admitted } => {
                    return Poll::Ready(settle(admitted, ready!(future.poll(cx))));
                }
                StateProj::Answered { held, response } => {
                    if let Some(held) = held {
                        ready!(Pin::new(held).poll(cx));
                    }
                    let response = *response.take().expect("polled after completion");
                    return Poll::Ready(Ok(response.map(ResponseBody::full)));
                }
            }
        }
    }
}

/// What follows from the result of the inner service.
fn settle<B, E>(
    admitted: &mut Option<Admitted>,
    mut result: Result<Response<B>, E>,
) -> Result<Response<ResponseBody<B>>, E> {
    let mut at_end = None;
    if let Some(settled) = admitted {
        match &mut result {
            Ok(response) => at_end = settled.on_response(response),
            Err(_) => settled.on_error(),
        }
        // It holds the configuration no longer.
        *admitted = None;
    }
    result.map(|response| response.map(|body| ResponseBody::inner(body, at_end)))
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Deciding { .. } => "ResponseFuture::Deciding",
            State::Readying { .. } => "ResponseFuture::Readying",
            State::Inner { .. } => "ResponseFuture::Inner",
            State::Answered { .. } => "ResponseFuture::Answered",
        })
    }
}
