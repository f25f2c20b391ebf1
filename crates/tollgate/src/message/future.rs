//! The future of a response.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_LENGTH};
use pin_project_lite::pin_project;
use tollgate_core::Pending;
use tower_service::Service;

use crate::{
    head::Head,
    message::{
        body::{MessageBody, MessageLimitResponseBody},
        call::Call,
    },
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
        pub(super) state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(super) enum State<S, B>
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
}

/// Calls the service that was polled ready, with a body that counts messages if there are checks.
pub(super) fn call<S, B>(
    ready: &mut S,
    request: Request<B>,
    config: &Arc<Config>,
    checks: KnownChecks,
) -> State<S, B>
where
    S: Service<Request<MessageBody<B>>>,
{
    let call = match checks.checks.is_empty() {
        true => None,
        false => Some(Call::new(Arc::clone(config), checks, &Head::from(&request))),
    };
    let request = request.map(|body| MessageBody::new(body, call.clone()));
    let future = ready.call(request);
    State::Inner { future, call }
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
                    let mut waiting = waiting.take().expect("polled after completion");
                    let (request, config) = (waiting.request, waiting.config);
                    match checks {
                        Ok(checks) => {
                            let called = call(&mut waiting.ready, request, &config, checks);
                            state.set(called);
                        }
                        Err(refusal) => {
                            let rejection = reject(&config, &Head::from(&request), &refusal);
                            return Poll::Ready(Ok(without_body(rejection)));
                        }
                    }
                }
                StateProj::Inner { future, call } => {
                    let answer = match call.as_ref().map(|call| call.poll_denied(cx)) {
                        Some(Poll::Ready(_)) => Poll::Pending,
                        Some(Poll::Pending) | None => future.poll(cx),
                    };
                    let denied = call.as_ref().and_then(|call| Some((call, call.denied()?)));
                    // The client gets the denial, whatever the inner service makes of a stream that was cut off.
                    let response = match (denied, answer) {
                        (Some((call, decision)), _) => without_body(call.response(decision)),
                        (None, Poll::Ready(answer)) => {
                            let (mut head, body) = answer?.into_parts();
                            let call = call.take().filter(|_| !body.is_end_stream());
                            if call.is_some() {
                                // The body may become shorter.
                                head.headers.remove(CONTENT_LENGTH);
                            }
                            let body = MessageLimitResponseBody::new(Some(body), call);
                            Response::from_parts(head, body)
                        }
                        (None, Poll::Pending) => return Poll::Pending,
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
    response.map(|_| MessageLimitResponseBody::new(None, None))
}

tollgate_core::debug_fields!(MessageLimitFuture<S, B> where S: Service<Request<MessageBody<B>>>);
