//! The future of a response: waiting, sending, and sending again.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower::BoxError;
use tower_service::Service;

use crate::client::{
    advice::Said,
    config::Config,
    replay_body::{Replay, ReplayBody},
    retry::Retries,
    scope::Pass,
};

/// The response to a request that was sent in its turn. Made by [`Pace`](crate::client::Pace).
///
/// # Cancel safety
///
/// Dropping it gives back the request's place in line and in flight.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<RB> {
    // A request goes over the network: a box is nothing beside that, and the states (lines, quota, holds, the inner
    // future, retries) read as one function.
    inner: Pin<Box<dyn Future<Output = Result<Response<RB>, BoxError>> + Send>>,
}

impl<RB> ResponseFuture<RB> {
    pub(super) fn new<S, B>(ready: S, request: Request<B>, config: Arc<Config>) -> Self
    where
        S: Service<Request<ReplayBody<B>>, Response = Response<RB>> + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Body + Send + 'static,
        RB: Send + 'static,
    {
        Self {
            inner: Box::pin(respond(ready, request, config)),
        }
    }
}

impl<RB> Future for ResponseFuture<RB> {
    type Output = Result<Response<RB>, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(cx)
    }
}

impl<RB> fmt::Debug for ResponseFuture<RB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Sends a request with the service that was polled ready, and again where that is right.
async fn respond<S, B, RB>(
    mut ready: S,
    request: Request<B>,
    config: Arc<Config>,
) -> Result<Response<RB>, BoxError>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    B: Body,
{
    let deadline = config.deadline();
    let (head, body) = request.into_parts();
    let scope = config.scopes.find((config.scope_of)(&head));
    let checks = config.own_checks(&head, deadline).await?;
    let (request, again) = first(&config, head, body);

    let pass = config.turn(&scope, &checks, deadline).await?;
    config.retry_budget.deposit();
    let (mut response, mut said) = send(&mut ready, request, pass, &config, deadline).await?;

    let Some(Again { head, replay }) = again else {
        return Ok(response);
    };
    let mut retries = Retries::new(config.retries);
    while replay.is_whole()
        && let Some(at) = retries.next(&config, &said, deadline)
    {
        sleep_until(at).await;
        // From here on, whatever stands in the way of another try leaves the caller with the answer there is.
        let is_ready = poll_fn(|cx| ready.poll_ready(cx).map(|answer| answer.is_ok()));
        if timeout_at(deadline, is_ready).await != Ok(true) {
            return Ok(response);
        }
        let Ok(pass) = config.turn(&scope, &checks, deadline).await else {
            return Ok(response);
        };
        let Some(body) = replay.again() else {
            return Ok(response);
        };
        drop(response);
        let request = Request::from_parts(head.clone(), body);
        (response, said) = send(&mut ready, request, pass, &config, deadline).await?;
    }
    Ok(response)
}

/// What it takes to send a request again.
struct Again<B> {
    head: Parts,
    replay: Replay<B>,
}

/// The request to send first, and what it takes to send it again.
fn first<B: Body>(
    config: &Config,
    head: Parts,
    body: B,
) -> (Request<ReplayBody<B>>, Option<Again<B>>) {
    if !config.may_repeat(&head) {
        return (Request::from_parts(head, ReplayBody::once(body)), None);
    }
    let (body, replay) = ReplayBody::kept(body, config.kept_bytes);
    let again = replay.map(|replay| Again {
        head: head.clone(),
        replay,
    });
    (Request::from_parts(head, body), again)
}

/// Sends a request, and hears what the server says of its limits.
async fn send<S, B, RB>(
    ready: &mut S,
    request: Request<ReplayBody<B>>,
    pass: Pass<'_>,
    config: &Config,
    deadline: Instant,
) -> Result<(Response<RB>, Said), BoxError>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
{
    let response = ready.call(request).await.map_err(Into::into)?;
    let said = Said::read(
        response.status(),
        response.headers(),
        config.clock.now(),
        config.longest_hold(),
    );
    let hold = said.retry_after.map(|asked| config.hold(asked, deadline));
    pass.answered(&said.budgets, hold);
    Ok((response, said))
}
