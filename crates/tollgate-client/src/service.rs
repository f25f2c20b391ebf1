//! The service, and the future of a response: wait, send, retry.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response, request::Parts};
use http_body::Body;
use tokio::time::{Instant, sleep_until, timeout_at};
use tollgate_core::{Pending, grpc_timeout};
use tower::BoxError;
use tower_service::Service;

use crate::{
    acquire::acquire,
    advice::{ServerAdvice, ServerLimits},
    client_limit::{ClientLimit, RequestLimit},
    config::{Config, MAX_DURATION},
    error::ClientRateLimitError,
    partition::Permit,
    replay_body::ReplayBody,
    retry::{Retries, is_repeatable},
};

/// Sends requests to `S` as fast as their servers allow. Made by [`ClientRateLimitLayer`](crate::ClientRateLimitLayer).
///
/// See the [crate documentation](crate).
#[derive(Clone, Debug)]
pub struct ClientRateLimit<S> {
    pub(crate) inner: S,
    pub(crate) config: Arc<Config>,
    /// It keeps the names of the client's own rules in use. Requests in flight do not hold it.
    pub(crate) limit: Option<ClientLimit>,
}

impl<S> ClientRateLimit<S> {
    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, RB> Service<Request<B>> for ClientRateLimit<S>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<RB>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Body<Error: Into<BoxError>> + Send + 'static,
    RB: Send + 'static,
{
    type Response = Response<RB>;
    type Error = BoxError;
    type Future = ResponseFuture<RB>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<RB> {
        // The future takes the instance that was polled ready; the clone, which may not be ready, stays.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let limit = self.limit.as_ref().map(ClientLimit::of_request);
        Pending::new(respond(ready, request, Arc::clone(&self.config), limit))
    }
}

/// The response to an outgoing request, after waits and retries. Made by [`ClientRateLimit`](crate::ClientRateLimit).
///
/// # Cancel safety
///
/// Dropping it frees the request's places in queues and in flight.
// Boxed: the cost is negligible next to a network request, and the states (queues, limits, cooldowns, the inner future, retries) read as
// one function.
pub type ResponseFuture<RB> = Pending<Result<Response<RB>, BoxError>>;

/// Sends a request with the service that was polled ready, and retries it.
pub(crate) async fn respond<S, B, RB>(
    mut ready: S,
    request: Request<B>,
    config: Arc<Config>,
    limit: Option<impl FnOnce(&Parts) -> Result<Option<RequestLimit>, BoxError>>,
) -> Result<Response<RB>, BoxError>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
    B: Body<Error: Into<BoxError>>,
{
    let start = Instant::now();
    let (head, body) = request.into_parts();
    let max_wait = start + config.max_wait;
    // When the call ends by its own timeout.
    let ends = timeout_of(&head).map(|timeout| start + timeout);
    let deadline = ends.map_or(max_wait, |ends| ends.min(max_wait));
    let limit = match limit {
        Some(limit) => limit(&head).map_err(ClientRateLimitError::no_checks)?,
        None => None,
    };
    let partition = config
        .partitions
        .find_or_insert((config.partition_of)(&head));
    let most = is_repeatable(&config, &head).then_some(config.max_replay_bytes);
    let body = ReplayBody::new(body, most).await;
    let again = body.again().map(|again| (head.clone(), again));
    let request = Request::from_parts(head, body);

    let permit = acquire(limit.as_ref(), &partition, deadline)
        .await
        .map_err(config.not_sent)?;
    config.retry_budget.deposit();
    let (mut response, mut advice) =
        send(&mut ready, request, permit, &config, deadline, ends).await?;

    let Some((head, again)) = again else {
        return Ok(response);
    };
    let mut retries = Retries::new(config.retries);
    while let Some(at) = retries.next(&config, &advice, deadline)
        && let Some(body) = again.again()
    {
        sleep_until(at).await;
        // If anything prevents the retry from here on, the caller gets the response that there is.
        let is_ready = poll_fn(|cx| ready.poll_ready(cx).map(|ready| ready.is_ok()));
        if timeout_at(deadline, is_ready).await != Ok(true) {
            return Ok(response);
        }
        let Ok(permit) = acquire(limit.as_ref(), &partition, deadline).await else {
            return Ok(response);
        };
        drop(response);
        let request = Request::from_parts(head.clone(), body);
        (response, advice) = send(&mut ready, request, permit, &config, deadline, ends).await?;
    }
    Ok(response)
}

/// Sends a request, and applies what the server says about its limits.
async fn send<S, B, RB>(
    ready: &mut S,
    mut request: Request<ReplayBody<B>>,
    permit: Permit<'_>,
    config: &Config,
    deadline: Instant,
    ends: Option<Instant>,
) -> Result<(Response<RB>, ServerAdvice), BoxError>
where
    S: Service<Request<ReplayBody<B>>, Response = Response<RB>>,
    S::Error: Into<BoxError>,
{
    if let Some(ends) = ends {
        let left = ends.saturating_duration_since(Instant::now());
        request.headers_mut().insert(TIMEOUT, timeout_field(left));
    }
    let response = ready.call(request).await.map_err(Into::into)?;
    let (status, headers) = (response.status(), response.headers());
    let (now, longest) = (config.clock.now(), config.max_retry_after);
    let own = config
        .read_limits
        .as_ref()
        .map_or_else(ServerLimits::new, |read| read(status, headers));
    let advice = ServerAdvice::read(status, headers, own, now, longest, &config.limit_statuses);
    let cooldown = advice
        .retry_after
        .map(|asked| config.cooldown(asked, deadline));
    permit.on_response(&advice.budgets, cooldown);
    Ok((response, advice))
}

/// The field of a gRPC call that says how long its client waits.
const TIMEOUT: &str = "grpc-timeout";

fn timeout_of(head: &Parts) -> Option<Duration> {
    let timeout = grpc_timeout(head.headers.get(TIMEOUT)?.to_str().ok()?)?;
    Some(timeout.min(MAX_DURATION))
}

/// It has room for eight digits.
fn timeout_field(left: Duration) -> HeaderValue {
    let micros = left.as_micros();
    let text = match micros {
        0..100_000_000 => format!("{micros}u"),
        _ => format!("{}S", left.as_secs().min(99_999_999)),
    };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0u"))
}
