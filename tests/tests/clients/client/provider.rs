//! A scripted provider that records the requests it gets.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::{Duration, Instant, sleep};
use tollgate_client::{ClientRateLimit, ClientRateLimitLayer, ReplayBody};
use tower::{BoxError, Layer, Service, ServiceExt};

pub(crate) type Bytes = Full<bytes::Bytes>;

/// Returns the given responses in order, then 200.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    script: Arc<Mutex<Script>>,
    takes: Duration,
}

#[derive(Debug)]
struct Script {
    answers: VecDeque<Response<()>>,
    seen: Vec<Seen>,
    start: Instant,
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) millis: u64,
    pub(crate) path: String,
    pub(crate) body: String,
}

impl Provider {
    /// Returns these responses without delay.
    pub(crate) fn new(answers: impl IntoIterator<Item = Response<()>>) -> Self {
        Self {
            script: Arc::new(Mutex::new(Script {
                answers: answers.into_iter().collect(),
                seen: Vec::new(),
                start: Instant::now(),
            })),
            takes: Duration::ZERO,
        }
    }

    /// Takes as long as this for each answer.
    pub(crate) fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.lock().unwrap().seen.clone()
    }

    /// When requests came, in whole seconds.
    pub(crate) fn seconds(&self) -> Vec<u64> {
        self.seen().iter().map(|seen| seen.millis / 1_000).collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.script.lock().unwrap().seen.len()
    }
}

impl<B> Service<Request<B>> for Provider
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Response<()>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answer = {
            let mut script = self.script.lock().unwrap();
            let seen = Seen {
                millis: script.start.elapsed().as_millis() as u64,
                path: request.uri().path().to_owned(),
                body: String::new(),
            };
            script.seen.push(seen);
            let place = script.seen.len() - 1;
            (place, script.answers.pop_front().unwrap_or_default())
        };
        let (script, takes) = (Arc::clone(&self.script), self.takes);
        Box::pin(async move {
            let (place, answer) = answer;
            let body = request.into_body().collect().await.map_err(Into::into)?;
            let body = String::from_utf8(body.to_bytes().into())?;
            script.lock().unwrap().seen[place].body = body;
            if !takes.is_zero() {
                sleep(takes).await;
            }
            Ok(answer)
        })
    }
}

/// An answer with these header fields.
pub(crate) fn answer(status: u16, fields: &[(&str, &str)]) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).expect("valid fields")
}

/// A request.
pub(crate) fn request(method: &str, path: &str, body: &str) -> Request<Bytes> {
    Request::builder()
        .method(method)
        .uri(format!("http://api.example{path}"))
        .body(Full::from(body.to_owned()))
        .expect("a valid request")
}

pub(crate) fn get() -> Request<Bytes> {
    request("GET", "/", "")
}

/// Sends a request and returns the status of the response.
pub(crate) async fn send<S>(
    client: &ClientRateLimit<S>,
    request: Request<Bytes>,
) -> Result<u16, BoxError>
where
    S: Service<Request<ReplayBody<Bytes>>, Response = Response<()>, Error = BoxError>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    let response = client.clone().oneshot(request).await?;
    Ok(response.status().as_u16())
}

#[expect(clippy::needless_pass_by_value, reason = "a layer is made in the call")]
pub(crate) fn client(
    layer: ClientRateLimitLayer,
    provider: &Provider,
) -> ClientRateLimit<Provider> {
    layer.layer(provider.clone())
}
