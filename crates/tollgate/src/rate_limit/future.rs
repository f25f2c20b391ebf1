//! The future of a response.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate_core::{Pending, layer::Waiting};
use tower_service::Service;

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        admit::Admitted,
        body::ResponseBody,
        decide::{Progress, delay},
        deny::{Answered, deny, reject},
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
        pub(super) stage: Stage<S, B>,
        // The request for whose response the inner service runs. Not a part of the stage, which would be moved with it.
        pub(super) admitted: Option<Admitted>,
    }
}

pin_project! {
    #[project = StageProj]
    pub(super) enum Stage<S, B>
    where
        S: Service<Request<B>>,
    {
        /// The inner service runs.
        Inner { #[pin] future: S::Future },
        /// What is before that, or in its place.
        Before { state: Option<Box<State<S, B>>> },
    }
}

pub(super) enum State<S, B> {
    /// The store or a look-up of the key is in flight, or the request waits. The inner service was not called.
    Deciding {
        decided: Pending<(Progress, KnownChecks)>,
        request: Option<PendingRequest<S, B>>,
    },
    /// The request was admitted; the inner service becomes ready, if it is not.
    Readying(Option<PendingRequest<S, B>>),
    /// The request was answered, and the answer may be held back. Neither the service nor the request is kept.
    Answered(Answered),
}

/// The service and the request, until the decision comes.
pub(super) struct PendingRequest<S, B> {
    pub(super) service: S,
    /// Whether this very instance was polled ready. It is not while the request waits: what it has reserved is for others then.
    pub(super) is_ready: bool,
    pub(super) request: Request<B>,
    pub(super) admitted: Admitted,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn before(state: State<S, B>) -> Self {
        Self {
            stage: Stage::Before {
                state: Some(Box::new(state)),
            },
            admitted: None,
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
        let config = Arc::clone(&self.admitted.config);
        let place = config.wait_room.enter(head_bytes(&self.request));
        let route = Route::of(self.request.extensions());
        Pending::new(delay(config, checks, waiting, place, route))
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    RB: Body,
{
    type Output = Result<Response<ResponseBody<RB>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let state = match this.stage.as_mut().project() {
                StageProj::Inner { future } => {
                    let result = ready!(future.poll(cx));
                    return Poll::Ready(match result {
                        Ok(response) => {
                            let acts = |it: &&mut Admitted| it.acts_on(&response);
                            let Some(admitted) = this.admitted.as_mut().filter(acts) else {
                                // It holds the configuration no longer.
                                *this.admitted = None;
                                let inner = |body| ResponseBody::inner(body, None);
                                return Poll::Ready(Ok(response.map(inner)));
                            };
                            let (mut parts, body) = response.into_parts();
                            let at_end = admitted.on_response(&mut parts);
                            *this.admitted = None;
                            let at_end = at_end.and_then(|it| it.unless_ended(&body));
                            let body = ResponseBody::inner(body, at_end);
                            Ok(Response::from_parts(parts, body))
                        }
                        Err(error) => {
                            if let Some(mut admitted) = this.admitted.take() {
                                admitted.on_error();
                            }
                            Err(error)
                        }
                    });
                }
                StageProj::Before { state } => state,
            };
            let current = &mut **state.as_mut().expect("polled after completion");
            match current {
                State::Deciding { decided, request } => {
                    let (progress, known) = ready!(Pin::new(&mut *decided).poll(cx));
                    let mut pending = request.take().expect("polled after completion");
                    let config = &pending.admitted.config;
                    let head = Head::from(&pending.request);
                    let answered = match progress {
                        Progress::Waits(waiting) => {
                            *decided = pending.delay(waiting, known);
                            *request = Some(pending);
                            continue;
                        }
                        Progress::Refused(refusal) => {
                            Answered::at_once(reject(config, &head, &refusal))
                        }
                        Progress::Decided(decision) if !decision.is_allowed() => {
                            deny(config, &head, &decision, &known.checks, &known.found)
                        }
                        Progress::Decided(decision) => {
                            (pending.admitted.checks, pending.admitted.decision) =
                                (known.checks, Some(decision));
                            match pending.admitted.enter(&mut pending.request) {
                                None => {
                                    *current = State::Readying(Some(pending));
                                    continue;
                                }
                                Some(answered) => answered,
                            }
                        }
                    };
                    *current = State::Answered(answered);
                }
                State::Readying(pending) => {
                    let unready = pending.as_mut().filter(|it| !it.is_ready);
                    let ready = match unready {
                        Some(pending) => ready!(pending.service.poll_ready(cx)),
                        None => Ok(()),
                    };
                    let mut pending = pending.take().expect("polled after completion");
                    if let Err(error) = ready {
                        pending.admitted.on_error();
                        return Poll::Ready(Err(error));
                    }
                    let future = pending.service.call(pending.request);
                    this.stage.set(Stage::Inner { future });
                    *this.admitted = Some(pending.admitted);
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

tollgate_core::debug_fields!(ResponseFuture<S, B> where S: Service<Request<B>>);
