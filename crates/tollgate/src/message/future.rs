//! The future of a response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tollgate_core::Pending;
use tower_service::Service;

use crate::{
    head::Head,
    message::{body::MessageBody, call::Call, response_body::MessageLimitResponseBody},
    rate_limit::{
        config::Config,
        deny::reject,
        request_rules::{KnownChecks, Refusal},
    },
};

type LookUp = Pending<Result<KnownChecks, Box<Refusal>>>;

pin_project! {
    /// The response of the inner service, or the denial of a call whose messages were denied before there was one.
    #[must_use = "futures do nothing unless polled"]
    pub struct MessageLimitFuture<S, B>
    where
        S: Service<Request<MessageBody<B>>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B>
    where
        S: Service<Request<MessageBody<B>>>,
    {
        /// The key is being looked up. The inner service was not called.
        LookingUp { #[pin] look_up: LookUp, waiting: Option<Box<Waiting<S, B>>> },
        /// The inner service runs. `None`: its messages are not limited.
        Inner { #[pin] future: S::Future, call: Option<Arc<Call>> },
        /// The call was rejected by its head; the inner service was not called.
        Rejected { response: Option<Box<Response<Bytes>>> },
    }
}

/// The service that was polled ready and the request, until the look-up ends.
pub(super) struct Waiting<S, B> {
    pub(super) ready: S,
    pub(super) request: Request<B>,
    pub(super) config: Arc<Config>,
    pub(super) max_wait: Option<Duration>,
}

impl<S, B> MessageLimitFuture<S, B>
where
    S: Service<Request<MessageBody<B>>>,
{
    pub(super) fn inner(future: S::Future, call: Option<Arc<Call>>) -> Self {
        Self {
            state: State::Inner { future, call },
        }
    }

    pub(super) fn rejected(response: Response<Bytes>) -> Self {
        Self {
            state: State::Rejected {
                response: Some(Box::new(response)),
            },
        }
    }

    pub(super) fn looking_up(look_up: LookUp, waiting: Waiting<S, B>) -> Self {
        Self {
            state: State::LookingUp {
                look_up,
                waiting: Some(Box::new(waiting)),
            },
        }
    }
}

/// Calls the service that was polled ready, with a body that counts messages if there are checks.
pub(super) fn call<S, B>(
    ready: &mut S,
    request: Request<B>,
    config: &Arc<Config>,
    max_wait: Option<Duration>,
    checks: KnownChecks,
) -> (S::Future, Option<Arc<Call>>)
where
    S: Service<Request<MessageBody<B>>>,
{
    if checks.checks.is_empty() {
        return (ready.call(request.map(MessageBody::unlimited)), None);
    }
    let call = Call::new(Arc::clone(config), max_wait, checks, &Head::from(&request));
    let request = request.map(|body| MessageBody::counted(body, Arc::clone(&call)));
    (ready.call(request), Some(call))
}

impl<S, B, RB> Future for MessageLimitFuture<S, B>
where
    S: Service<Request<MessageBody<B>>, Response = Response<RB>>,
    RB: http_body::Body,
{
    type Output = Result<Response<MessageLimitResponseBody<RB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProj::LookingUp { look_up, waiting } => {
                    let checks = ready!(look_up.poll(cx));
                    let Waiting {
                        mut ready,
                        request,
                        config,
                        max_wait,
                    } = *waiting.take().expect("polled after completion");
                    match checks {
                        Ok(checks) => {
                            let (future, call) =
                                call(&mut ready, request, &config, max_wait, checks);
                            state.set(State::Inner { future, call });
                        }
                        Err(refusal) => {
                            let rejection = reject(&config, &Head::from(&request), &refusal);
                            return Poll::Ready(Ok(without_body(rejection)));
                        }
                    }
                }
                StateProj::Inner { future, call } => {
                    let Some(call) = call else {
                        let response = ready!(future.poll(cx))?;
                        return Poll::Ready(Ok(response.map(MessageLimitResponseBody::unlimited)));
                    };
                    let denied = call.poll_denied(cx);
                    let answer = match denied {
                        Poll::Ready(_) => None,
                        Poll::Pending => match future.poll(cx) {
                            Poll::Ready(answer) => Some(answer),
                            Poll::Pending if call.denied().is_none() => return Poll::Pending,
                            Poll::Pending => None,
                        },
                    };
                    // The client gets the denial, whatever the inner service makes of a stream that was cut off.
                    let response = match (call.denied(), answer) {
                        (Some(decision), _) => without_body(call.response(&decision)),
                        (None, Some(answer)) => {
                            let (mut head, body) = answer?.into_parts();
                            let body =
                                MessageLimitResponseBody::open(&mut head, body, Arc::clone(call));
                            Response::from_parts(head, body)
                        }
                        (None, None) => return Poll::Pending,
                    };
                    return Poll::Ready(Ok(response));
                }
                StateProj::Rejected { response } => {
                    let response = *response.take().expect("polled after completion");
                    return Poll::Ready(Ok(without_body(response)));
                }
            }
        }
    }
}

/// A gRPC denial without trailers: its head has the status.
fn without_body<RB>(response: Response<Bytes>) -> Response<MessageLimitResponseBody<RB>> {
    response.map(|_| MessageLimitResponseBody::ended())
}

impl<S, B> fmt::Debug for MessageLimitFuture<S, B>
where
    S: Service<Request<MessageBody<B>>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageLimitFuture").finish_non_exhaustive()
    }
}
