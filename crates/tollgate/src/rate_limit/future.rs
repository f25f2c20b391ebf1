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
use tollgate_core::Pending;
use tower_service::Service;

use crate::{
    observe::Route,
    rate_limit::{
        admit::{Admitted, Answered, Kept, One, Several, admit},
        body::ResponseBody,
        config::Config,
        decide::{Delayed, Progress, delay},
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
        Deciding { #[pin] decided: Pending<(Progress, KnownChecks)>, waiting: Option<Box<Waiting<S, B>>> },
        /// The request was admitted after a wait; the inner service becomes ready.
        Readying { service: S, request: Option<Request<B>>, admitted: Option<Admitted<Several>> },
        /// The request of one check was admitted; the inner service runs.
        InnerOfOne { #[pin] future: S::Future, admitted: Option<Admitted<One>> },
        /// Any request was admitted; the inner service runs.
        Inner { #[pin] future: S::Future, admitted: Option<Admitted<Several>> },
        /// The request was denied, and its denial is held back. Neither the service nor the request is kept.
        Held { #[pin] held: Pending<()>, response: Option<Box<Response<Bytes>>> },
        /// The request was denied; the inner service was not called.
        Rejected { response: Option<Box<Response<Bytes>>> },
    }
}

/// The service and the request, until the decision comes.
struct Waiting<S, B> {
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
    #[inline(always)]
    pub(crate) fn inner_of_one(future: S::Future, admitted: Admitted<One>) -> Self {
        Self {
            state: State::InnerOfOne {
                future,
                admitted: Some(admitted),
            },
        }
    }

    #[inline(always)]
    pub(crate) fn inner(future: S::Future, admitted: Option<Admitted<Several>>) -> Self {
        Self {
            state: State::Inner { future, admitted },
        }
    }

    pub(crate) fn rejected(response: Box<Response<Bytes>>) -> Self {
        Self {
            state: State::Rejected {
                response: Some(response),
            },
        }
    }

    /// The same rejection, sent later.
    pub(crate) fn held(self, held: Pending<()>) -> Self {
        let State::Rejected { response } = self.state else {
            return self;
        };
        Self {
            state: State::Held { held, response },
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
                waiting: Some(Box::new(Waiting {
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

impl<S: Clone, B> Waiting<S, B> {
    /// The request waits, if there is room, or else is decided again as one that may not.
    #[cold]
    fn delay(
        &mut self,
        delayed: Box<Delayed>,
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
            delayed,
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
                    decided: mut pending,
                    waiting,
                } => {
                    let (progress, checks) = ready!(pending.as_mut().poll(cx));
                    let decided = match progress {
                        Progress::Decided(decided) => decided,
                        Progress::Waits(delayed) => {
                            let waiting = waiting.as_mut().expect("polled after completion");
                            pending.set(waiting.delay(delayed, checks));
                            continue;
                        }
                    };
                    let Waiting {
                        mut service,
                        is_ready,
                        waits_since,
                        mut request,
                        config,
                    } = *waiting.take().expect("polled after completion");
                    let waited = waits_since.filter(|_| config.settings.server_timing);
                    let waited = waited.map(|since| since.elapsed());
                    match admit(config, &mut request, decided, &checks) {
                        Ok(admitted) => {
                            let admitted = admitted.map(|admitted| admitted.after(waited));
                            if is_ready {
                                let future = service.call(request);
                                state.set(State::Inner { future, admitted });
                            } else {
                                let request = Some(request);
                                state.set(State::Readying {
                                    service,
                                    request,
                                    admitted,
                                });
                            }
                        }
                        Err(Answered { response, held }) => match held {
                            None => return Poll::Ready(Ok(response.map(ResponseBody::full))),
                            Some(held) => {
                                let response = Some(response);
                                state.set(State::Held { held, response });
                            }
                        },
                    }
                }
                StateProj::Readying {
                    service,
                    request,
                    admitted,
                } => {
                    if let Err(error) = ready!(service.poll_ready(cx)) {
                        return Poll::Ready(settle(admitted, Err(error)));
                    }
                    let request = request.take().expect("polled after completion");
                    let future = service.call(request);
                    let admitted = admitted.take();
                    state.set(State::Inner { future, admitted });
                }
                StateProj::InnerOfOne { future, admitted } => {
                    return Poll::Ready(settle(admitted, ready!(future.poll(cx))));
                }
                StateProj::Inner { future, admitted } => {
                    return Poll::Ready(settle(admitted, ready!(future.poll(cx))));
                }
                StateProj::Held { held, response } => {
                    ready!(held.poll(cx));
                    let response = *response.take().expect("polled after completion");
                    return Poll::Ready(Ok(response.map(ResponseBody::full)));
                }
                StateProj::Rejected { response } => {
                    let response = *response.take().expect("polled after completion");
                    return Poll::Ready(Ok(response.map(ResponseBody::full)));
                }
            }
        }
    }
}

/// What follows from the result of the inner service.
#[inline(always)]
fn settle<K: Kept, B, E>(
    admitted: &mut Option<Admitted<K>>,
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
            State::InnerOfOne { .. } | State::Inner { .. } => "ResponseFuture::Inner",
            State::Held { .. } => "ResponseFuture::Held",
            State::Rejected { .. } => "ResponseFuture::Rejected",
        })
    }
}
