//! The door for Envoy's rate limit service, with `grpc.health.v1`.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use http::{
    HeaderMap, Request, Response,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use hyper::body::Incoming;
use metrics::counter;
use tokio::time::Instant;
use tollgate::{RateLimitLayer, service::RequestPart};
use tonic::{Code as Grpc, Status, body::Body};
use tonic_health::pb::health_server::{Health, HealthServer};
use tower_service::Service as _;

use crate::{
    descriptors::parts_of,
    limit_status::status_of,
    listener::Door,
    metrics::{Checks, Code},
    proto::{
        HeaderValue, RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code as Answer, DescriptorStatus},
        rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
    },
};

/// The most bytes of a message. A client's fields are in it, of which Envoy takes 60 KiB.
const MAX_MESSAGE: usize = 256 << 10;
/// How long a store may take. Envoy waits for 20 ms by default, and then lets its client pass.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(10);
/// What the way back takes.
const WAY_BACK: Duration = Duration::from_millis(3);

/// Answers Envoy.
pub(crate) struct RlsDoor<H> {
    rls: RateLimitServiceServer<Rls>,
    health: HealthServer<H>,
}

impl<H: Health> RlsDoor<H> {
    pub(crate) fn new(layer: RateLimitLayer, health: HealthServer<H>) -> Self {
        let checks = Checks::new(<Self as Door>::NAME);
        let rls = RateLimitServiceServer::new(Rls { layer, checks });
        Self {
            rls: rls.max_decoding_message_size(MAX_MESSAGE),
            health,
        }
    }
}

impl<H: Health> Door for RlsDoor<H> {
    type Body = Body;
    const NAME: &'static str = "grpc";

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path().starts_with("/grpc.health.v1.Health/") {
            let Ok(response) = self.health.clone().call(request).await;
            return response;
        }
        let Ok(response) = self.rls.clone().call(request).await;
        match Status::from_header_map(response.headers()) {
            // The message is too long, or no message.
            Some(status) if matches!(status.code(), Grpc::OutOfRange | Grpc::Internal) => {
                counter!("tollgate_invalid_messages_total").increment(1);
                Status::invalid_argument(status.message()).into_http()
            }
            _ => response,
        }
    }

    fn refuse(&self) -> Response<Body> {
        Status::permission_denied("this peer may not ask; see `allow` and `tls` of tollgate-server")
            .into_http()
    }
}

/// Envoy's rate limit service.
struct Rls {
    layer: RateLimitLayer,
    checks: Checks,
}

#[tonic::async_trait]
impl RateLimitService for Rls {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, Status> {
        let began = Instant::now();
        let patience = patience(request.metadata().as_ref());
        let message = request.into_inner();
        let domain = message.domain.clone();
        let answered = match parts_of(message) {
            Ok(parts) => Ok(self.decide(parts, began + patience).await),
            Err(wrong) => Err(Status::invalid_argument(wrong)),
        };
        match &answered {
            Ok(answer) => {
                let is_allowed = answer.overall_code() == Answer::Ok;
                self.checks.count(&domain, Code::of(is_allowed), began);
            }
            // Its domain may be anything.
            Err(_) => self.checks.count("", Code::Invalid, began),
        }
        answered.map(tonic::Response::new)
    }
}

impl Rls {
    async fn decide(
        &self,
        asked: Vec<Option<RequestPart>>,
        deadline: Instant,
    ) -> RateLimitResponse {
        let given_back = asked.iter().filter(|part| part.is_none()).count();
        if given_back > 0 {
            told_of_negative_hits(given_back);
        }
        let are_parts: Vec<bool> = asked.iter().map(Option::is_some).collect();
        let parts: Vec<RequestPart> = asked.into_iter().flatten().collect();
        let decided = self.layer.decide(&parts, Some(deadline)).await;
        self.checks.note(decided.decision());
        let unmatched = (0..parts.len()).filter(|part| decided.verdicts_of(*part).next().is_none());
        self.checks.unmatched.increment(unmatched.count() as u64);
        let is_allowed = decided.decision().is_allowed();
        let mut places = 0..parts.len();
        let statuses = are_parts.into_iter().map(|is_part| {
            let part = if is_part { places.next() } else { None };
            part.map_or_else(passed, |part| status_of(&decided, part))
        });
        let statuses = statuses.collect();
        let (head, body) = decided.into_response().into_parts();
        // A call of gRPC ends by the message that a service would have given it.
        let raw_body = match Status::from_header_map(&head.headers) {
            Some(status) => status.message().to_owned().into(),
            None => body,
        };
        RateLimitResponse {
            overall_code: if is_allowed {
                Answer::Ok
            } else {
                Answer::OverLimit
            }
            .into(),
            statuses,
            response_headers_to_add: fields(&head.headers),
            raw_body,
        }
    }
}

/// The status of a descriptor that no rule is about.
fn passed() -> DescriptorStatus {
    DescriptorStatus {
        code: Answer::Ok.into(),
        ..DescriptorStatus::default()
    }
}

/// The fields of a response for Envoy's client. Envoy writes the status itself, and the length.
fn fields(headers: &HeaderMap) -> Vec<HeaderValue> {
    let is_grpc = headers.contains_key("grpc-status");
    let is_own = |name: &str| {
        name == CONTENT_LENGTH
            || ["grpc-status", "grpc-message"].contains(&name)
            || is_grpc && name == CONTENT_TYPE
    };
    let fields = headers.iter().filter(|(name, _)| !is_own(name.as_str()));
    let fields = fields.filter_map(|(name, value)| {
        Some(HeaderValue {
            key: name.as_str().to_owned(),
            value: value.to_str().ok()?.to_owned(),
        })
    });
    fields.collect()
}

/// How long the store may take, by what Envoy still waits.
fn patience(headers: &HeaderMap) -> Duration {
    let left = headers
        .get("grpc-timeout")
        .and_then(|value| timeout(value.to_str().ok()?));
    left.map_or(MAX_WAIT, |left| left.saturating_sub(WAY_BACK).min(MAX_WAIT))
}

/// `18m` is 18 ms.
fn timeout(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok().filter(|_| number.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

fn told_of_negative_hits(descriptors: usize) {
    counter!("tollgate_negative_hits_total").increment(descriptors as u64);
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            target: "tollgate",
            "Envoy gives hits back, by is_negative_hits: such descriptors are answered with OK, and nothing is given back"
        );
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
                super::patience(&headers),
                Duration::from_millis(patience),
                "{timeout}"
            );
        }
        assert_eq!(super::patience(&HeaderMap::new()), MAX_WAIT);
    }
}
