//! The door for Envoy's rate limit service, with `grpc.health.v1`.

use std::{
    future::ready,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use metrics::counter;
use prost::Message as _;
use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate::{
    RateLimitLayer,
    siblings::{PartsDecision, grpc_timeout},
};
use tonic::Status;
use tonic_health::pb::health_server::{Health, HealthServer};
use tower_service::Service as _;

use crate::{
    descriptors::{check_numbers, parts_of, status_of},
    listener::Door,
    metrics::{Checks, Code},
    proto::{
        HeaderValue as Field, RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code as Answer, DescriptorStatus},
    },
    settings::MAX_WAIT,
};

/// The method of Envoy's service.
const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// The most bytes of a message. A client's fields are in it, of which Envoy takes 60 KiB, and each of 32 descriptors may repeat one.
const MAX_MESSAGE: usize = 4 << 20;
/// What is in front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
const INVALID: &str = "tollgate_invalid_messages_total";
/// What the way back takes.
const WAY_BACK: Duration = Duration::from_millis(3);

/// Answers Envoy. The frame of gRPC is written here: tonic's takes more time than all that is decided.
pub(crate) struct RlsDoor<H> {
    pub(crate) rls: Rls,
    pub(crate) health: HealthServer<H>,
}

/// The service, without its frame.
pub(crate) struct Rls {
    layer: RateLimitLayer,
    max_wait: Duration,
    checks: Checks,
}

impl<H: Health> Door for RlsDoor<H> {
    const NAME: &'static str = "grpc";

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if path.starts_with("/grpc.health.v1.Health/") {
            let Ok(response) = self.health.clone().call(request).await;
            return response.map(Body::new);
        }
        if path != METHOD {
            let message = "tollgate-server has envoy.service.ratelimit.v3 and grpc.health.v1";
            return Status::unimplemented(message).into_http();
        }
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let answered = match message_of(body).await {
            Ok(message) => {
                let waits = patience(&head.headers, self.rls.max_wait);
                self.rls.should_rate_limit(message, began, waits).await
            }
            Err(wrong) => Err(unread(wrong)),
        };
        answered.map_or_else(
            |wrong| Status::invalid_argument(wrong).into_http(),
            |answer| response(&answer),
        )
    }

    fn refuse(&self) -> Response<Body> {
        Status::permission_denied("this peer may not ask; see `allow` and `tls` of tollgate-server")
            .into_http()
    }
}

/// Counts a message that cannot be read.
fn unread(wrong: String) -> String {
    counter!(INVALID).increment(1);
    wrong
}

/// The message of a call, as it was sent.
async fn message_of(body: Incoming) -> Result<Bytes, String> {
    let too_long = |_| format!("a message is longer than {MAX_MESSAGE} bytes, or it ends early");
    let body = Limited::new(body, PREFIX + MAX_MESSAGE).collect().await;
    let mut bytes = body.map_err(too_long)?.to_bytes();
    let is_whole = bytes
        .split_first_chunk::<PREFIX>()
        .is_some_and(|(prefix, message)| *prefix == frame_prefix(message.len()));
    if !is_whole {
        return Err("a call has one message, which is not compressed".to_owned());
    }
    Ok(bytes.split_off(PREFIX))
}

/// What is in front of a message that is not compressed.
fn frame_prefix(length: usize) -> [u8; PREFIX] {
    // Messages are shorter than 4 GiB.
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

/// The response of a call that has succeeded.
fn response(answer: &RateLimitResponse) -> Response<Body> {
    const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
    const STATUS: HeaderName = HeaderName::from_static("grpc-status");
    let length = answer.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.extend(frame_prefix(length));
    answer.encode_raw(&mut bytes);
    let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from(bytes)).with_trailers(ready(Some(Ok(trailers))));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// How long the answer to a message is, as it was sent: for a fuzzer, which sends any bytes.
#[doc(hidden)]
pub async fn answer_to(layer: &RateLimitLayer, bytes: &[u8]) -> Result<usize, String> {
    let (rls, bytes) = (
        Rls::new(layer.clone(), MAX_WAIT),
        Bytes::copy_from_slice(bytes),
    );
    let answer = rls.should_rate_limit(bytes, Instant::now(), MAX_WAIT);
    answer.await.map(|answer| answer.encoded_len())
}

impl Rls {
    pub(crate) fn new(layer: RateLimitLayer, max_wait: Duration) -> Self {
        let checks = Checks::new("grpc");
        // So that the first one is not missed that somebody waits for.
        for metric in [INVALID, NEGATIVE_HITS.metric, OVERRIDES.metric] {
            counter!(metric).increment(0);
        }
        Self {
            layer,
            max_wait,
            checks,
        }
    }

    async fn should_rate_limit(
        &self,
        message: Bytes,
        began: Instant,
        waits: Duration,
    ) -> Result<RateLimitResponse, String> {
        // Its domain may be anything.
        let invalid = |_: &String| self.checks.count("", Code::Invalid, began);
        check_numbers(&message).inspect_err(invalid)?;
        let message =
            RateLimitRequest::decode(message).map_err(|wrong| unread(wrong.to_string()))?;
        let domain = message.domain.clone();
        let give_back = message.descriptors.iter().map(|it| it.is_negative_hits);
        let give_back: SmallVec<[bool; 8]> = give_back.collect();
        let overrides = message.descriptors.iter().filter(|it| it.limit.is_some());
        left_out(&OVERRIDES, overrides.count());
        let parts = parts_of(message).inspect_err(invalid)?;
        let decided = self.layer.decide(parts, Some(began + waits)).await;
        let answer = self.answer_of(decided, &give_back);
        let is_allowed = answer.overall_code() == Answer::Ok;
        self.checks.count(&domain, Code::of(is_allowed), began);
        Ok(answer)
    }

    /// The message about a decision, with a status for each descriptor.
    fn answer_of(&self, decided: PartsDecision, give_back: &[bool]) -> RateLimitResponse {
        self.checks.note(decided.decision());
        let is_allowed = decided.decision().is_allowed();
        let (mut part, mut unmatched) = (0, 0);
        let statuses = give_back.iter().map(|gives_back| {
            if *gives_back {
                let code = Answer::Ok.into();
                return DescriptorStatus {
                    code,
                    ..DescriptorStatus::default()
                };
            }
            let status = status_of(&decided, part);
            unmatched += u64::from(decided.verdicts_of(part).next().is_none());
            part += 1;
            status
        });
        let statuses: Vec<_> = statuses.collect();
        self.checks.unmatched.increment(unmatched);
        left_out(&NEGATIVE_HITS, statuses.len() - part);
        let (head, body) = decided.into_response().into_parts();
        // A call of gRPC ends by the message that a service would have given it.
        let raw_body = match Status::from_header_map(&head.headers) {
            Some(status) => status.message().to_owned().into(),
            None => body,
        };
        RateLimitResponse {
            overall_code: match is_allowed {
                true => Answer::Ok.into(),
                false => Answer::OverLimit.into(),
            },
            statuses,
            response_headers_to_add: fields(&head.headers),
            raw_body,
        }
    }
}

/// The fields of a response for Envoy's client. Envoy writes the status itself, and the length.
fn fields(headers: &HeaderMap) -> Vec<Field> {
    let is_grpc = headers.contains_key("grpc-status");
    let is_own = |name: &str| {
        name == CONTENT_LENGTH
            || ["grpc-status", "grpc-message"].contains(&name)
            || is_grpc && name == CONTENT_TYPE
    };
    let fields = headers
        .iter()
        .filter(|(name, _)| !is_own(name.as_str()))
        .filter_map(|(name, value)| {
            Some(Field {
                key: name.as_str().to_owned(),
                value: value.to_str().ok()?.to_owned(),
            })
        });
    fields.collect()
}

/// How long the store may take, by what Envoy still waits.
fn patience(headers: &HeaderMap, max_wait: Duration) -> Duration {
    let left = grpc_timeout(headers);
    left.map_or(max_wait, |left| left.saturating_sub(WAY_BACK).min(max_wait))
}

/// What descriptors may say that is not done.
struct LeftOut {
    metric: &'static str,
    message: &'static str,
    is_said: AtomicBool,
}

static NEGATIVE_HITS: LeftOut = LeftOut {
    metric: "tollgate_negative_hits_total",
    message: "Envoy gives hits back, by is_negative_hits: such descriptors are answered with OK, and nothing is given back",
    is_said: AtomicBool::new(false),
};
static OVERRIDES: LeftOut = LeftOut {
    metric: "tollgate_limit_overrides_total",
    message: "Envoy sends limits of its own, by rate_limits[].limit: the limits of the rules apply; take a rule with plans or overrides",
    is_said: AtomicBool::new(false),
};

/// Counts such descriptors, and says so once.
fn left_out(what: &LeftOut, descriptors: usize) {
    if descriptors == 0 {
        return;
    }
    counter!(what.metric).increment(descriptors as u64);
    if !what.is_said.swap(true, Ordering::Relaxed) {
        tracing::warn!(target: "tollgate", "{}", what.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_may_take_what_envoy_waits_less_the_way_back() {
        for (timeout, patience) in [
            ("18m", 10),
            ("9m", 6),
            ("8000u", 5),
            ("2m", 0),
            ("1S", 10),
            ("99999999H", 10),
            ("", 10),
            ("m", 10),
            ("-1m", 10),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", timeout.parse().unwrap());
            assert_eq!(
                super::patience(&headers, MAX_WAIT),
                Duration::from_millis(patience),
                "{timeout}"
            );
        }
        let long = Duration::from_millis(200);
        assert_eq!(super::patience(&HeaderMap::new(), long), long);
    }
}
