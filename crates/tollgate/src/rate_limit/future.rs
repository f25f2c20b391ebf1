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
    admit::{Admitted, admit},
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
        /// The request was admitted; the inner service runs.
        Inner { #[pin] future: S::Future, admitted: Option<Admitted> },
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
    pub(crate) fn inner(future: S::Future, admitted: Option<Admitted>) -> Self {
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
                    match admit(&config, &mut head, decided, checks) {
                        Ok(admitted) => {
                            let future = ready.call(Request::from_parts(head, body));
                            state.set(State::Inner { future, admitted });
                        }
                        Err(rejection) => {
                            return Poll::Ready(Ok(rejection.map(ResponseBody::full)));
                        }
                    }
                }
                StateProj::Inner { future, admitted } => {
                    let response = match ready!(future.poll(cx)) {
                        Ok(response) => response,
                        Err(error) => {
                            if let Some(admitted) = admitted.take() {
                                admitted.on_error();
                            }
                            return Poll::Ready(Err(error));
                        }
                    };
                    let (mut head, body) = response.into_parts();
                    if let Some(admitted) = admitted.take() {
                        admitted.on_response(&mut head);
                    }
                    return Poll::Ready(Ok(Response::from_parts(head, ResponseBody::inner(body))));
                }
                StateProj::Rejected { response } => {
                    let response = *response.take().expect("polled after completion");
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
        f.write_str(match &self.state {
            State::Deciding { .. } => "ResponseFuture::Deciding",
            State::Inner { .. } => "ResponseFuture::Inner",
            State::Rejected { .. } => "ResponseFuture::Rejected",
        })
    }
}
