//! A request through a layer, without a network.

use std::{hint::black_box, sync::Arc};

use axum::body::Body;
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware};
use http::Request;
use tollgate::{header::HeaderStyle, service::RateLimit};
use tollgate_benches::{
    check::{TIGHT, WIDE},
    layer::{API_KEY, Bare, layer, request, send},
};
use tower::{Layer, Service};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::{Governor, GovernorConfig, GovernorConfigBuilder},
    key_extractor::KeyExtractor,
};

use crate::{
    harness::Rounds,
    numbers::{Numbers, TIGHT_NUMBERS, WIDE_NUMBERS},
    reference::{BareLimit, LossyTable, by_header},
    table::Row,
};

type Service_ = Bare<Body>;

/// Counts by the same header as ours, in the way of tower_governor's examples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByApiKey;

impl KeyExtractor for ByApiKey {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        request
            .headers()
            .get(API_KEY)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

/// tower_governor's configuration.
pub(crate) fn configuration(
    (interval, burst): Numbers,
) -> GovernorConfigBuilder<ByApiKey, NoOpMiddleware> {
    let mut builder = GovernorConfigBuilder::default().key_extractor(ByApiKey);
    builder.period(interval).burst_size(burst);
    builder
}

type Theirs<M> = Governor<ByApiKey, M, Service_, Body>;

fn governed<M>(configuration: Option<GovernorConfig<ByApiKey, M>>) -> Theirs<M>
where
    M: RateLimitingMiddleware<governor::clock::QuantaInstant>,
{
    GovernorLayer::new(configuration.expect("neither number is zero")).layer(Service_::new())
}

fn ours(quota: tollgate::Quota, rules: usize, headers: HeaderStyle) -> RateLimit<Service_> {
    layer(quota, rules, headers)
        .expect("valid rules")
        .layer(Service_::new())
}

/// One request, its making and the dropping of its answer included.
fn sender<S: Service<Request<Body>>>(mut service: S) -> impl FnMut() {
    move || {
        let _ = black_box(send(&mut service, request()).is_ok());
    }
}

fn reference(numbers: Numbers, fields: bool) -> BareLimit<Service_> {
    let table = Arc::new(LossyTable::new(numbers));
    BareLimit::new(Service_::new(), table, by_header, fields)
}

/// The rows.
pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) {
    let (interval, burst) = WIDE_NUMBERS;
    let gcra =
        axum_gcra::gcra::Quota::new(interval, u64::from(burst).try_into().expect("not zero"));
    let axum_gcra = axum_gcra::RateLimitLayer::<ApiKey>::builder()
        .with_default_quota(gcra)
        .build();
    let measured = Rounds::measure(
        rounds,
        &mut [
            &mut sender(Service_::new()),
            &mut sender(ours(WIDE, 1, HeaderStyle::NONE)),
            &mut sender(governed(configuration(WIDE_NUMBERS).finish())),
            &mut sender(axum_gcra.layer(Service_::new())),
            &mut sender(reference(WIDE_NUMBERS, false)),
        ],
    );
    let row = |peer, theirs| {
        let what = "layer, no headers: added to a bare service";
        Row::compared(what, "ns", peer, measured.compare_above(0, 1, theirs))
    };
    print(row("tower_governor", 2).gate(1.0));
    print(row("axum_gcra", 3));
    print(row("reference", 4));

    let with_fields = configuration(WIDE_NUMBERS).use_headers().finish();
    let measured = Rounds::measure(
        rounds,
        &mut [
            &mut sender(Service_::new()),
            &mut sender(ours(WIDE, 1, HeaderStyle::DRAFT_11)),
            &mut sender(governed(with_fields)),
            &mut sender(reference(WIDE_NUMBERS, true)),
        ],
    );
    let row = |peer, theirs| {
        let what = "layer, two headers, allowed: added";
        Row::compared(what, "ns", peer, measured.compare_above(0, 1, theirs))
    };
    print(row("tower_governor", 2).gate(1.0));
    print(row("reference", 3));
    let bare = measured.median(0);

    let with_fields = configuration(TIGHT_NUMBERS).use_headers().finish();
    let measured = Rounds::measure(
        rounds,
        &mut [
            &mut sender(ours(TIGHT, 1, HeaderStyle::DRAFT_11)),
            &mut sender(governed(with_fields)),
            &mut sender(reference(TIGHT_NUMBERS, true)),
        ],
    );
    let row = |peer, theirs| {
        let what = "layer, headers, denied: whole request";
        Row::compared(what, "ns", peer, measured.compare(0, theirs))
    };
    let denied = row("tower_governor", 1);
    print(denied.gate_on_ours(600.0).direction(300.0));
    print(row("reference", 2));
    print(Row::alone("bare service: whole request", "ns", bare));
}

/// The key of axum_gcra, which extracts with the traits of axum 0.7.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ApiKey(String);

#[async_trait::async_trait]
impl<S: Sync> axum_core_04::extract::FromRequestParts<S> for ApiKey {
    type Rejection = http::StatusCode;

    async fn from_request_parts(
        parts: &mut http::request::Parts,
        _: &S,
    ) -> Result<Self, Self::Rejection> {
        parts
            .headers
            .get(API_KEY)
            .and_then(|value| value.to_str().ok())
            .map(|value| Self(value.to_owned()))
            .ok_or(http::StatusCode::BAD_REQUEST)
    }
}
