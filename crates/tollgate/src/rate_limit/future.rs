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
use tollgate_core::{Checks, Pending};
use tower_service::Service;

use crate::rate_limit::{
    admit::{Admitted, Kept, One, Several, admit},
    body::ResponseBody,
    config::Config,
    decide::Decided,
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
        /// The store or a look-up of the key is in flight. The inner service was not called.
        Deciding { #[pin] decided: Pending<(Decided, Checks)>, waiting: Option<Box<Waiting<S, B>>> },
        /// The request of one check was admitted; the inner service runs.
        InnerOfOne { #[pin] future: S::Future, admitted: Option<Admitted<One>> },
        /// Any request was admitted; the inner service runs.
        Inner { #[pin] future: S::Future, admitted: Option<Admitted<Several>> },
        /// The request was denied; the inner service was not called.
        Rejected { response: Option<Box<Response<Bytes>>> },
    }
}

/// The service that was polled ready and the request, until the decision comes.
struct Waiting<S, B> {
    ready: S,
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

    pub(crate) fn deciding(
        decided: Pending<(Decided, Checks)>,
        ready: S,
        request: Request<B>,
        config: Arc<Config>,
    ) -> Self {
        Self {
            state: State::Deciding {
                decided,
                waiting: Some(Box::new(Waiting {
                    ready,
                    request,
                    config,
                })),
            },
        }
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
{
    type Output = Result<Response<ResponseBody<RB>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::Deciding { decided, waiting } => {
                    let (decided, checks) = ready!(decided.poll(cx));
                    let Waiting {
                        mut ready,
                        request,
                        config,
                    } = *waiting.take().expect("polled after completion");
                    let (mut head, body) = request.into_parts();
                    match admit(config, &mut head, decided, &checks) {
                        Ok(admitted) => {
                            let future = ready.call(Request::from_parts(head, body));
                            state.set(State::Inner { future, admitted });
                        }
                        Err(rejection) => {
                            return Poll::Ready(Ok(rejection.map(ResponseBody::full)));
                        }
                    }
                }
                StateProj::InnerOfOne { future, admitted } => {
                    return Poll::Ready(settle(admitted, ready!(future.poll(cx))));
                }
                StateProj::Inner { future, admitted } => {
                    return Poll::Ready(settle(admitted, ready!(future.poll(cx))));
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
            State::InnerOfOne { .. } | State::Inner { .. } => "ResponseFuture::Inner",
            State::Rejected { .. } => "ResponseFuture::Rejected",
        })
    }
}
