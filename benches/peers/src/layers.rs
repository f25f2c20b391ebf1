//! A request through a layer, without a network.

use std::{hint::black_box, time::Duration};

use axum::body::Body;
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware};
use http::Request;
use tollgate::{HeaderStyle, RateLimit};
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
    harness::{Compared, repeat},
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

/// tower_governor's configuration: one unit each `interval`, `burst` at once.
pub(crate) fn configuration(
    interval: Duration,
    burst: u32,
) -> GovernorConfigBuilder<ByApiKey, NoOpMiddleware> {
    let mut builder = GovernorConfigBuilder::default().key_extractor(ByApiKey);
    builder.period(interval).burst_size(burst);
    builder
}

pub(crate) const WIDE_NUMBERS: (Duration, u32) = (Duration::from_micros(1), 4_000_000_000);
pub(crate) const TIGHT_NUMBERS: (Duration, u32) = (Duration::from_secs(3_600), 1);

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

/// What two layers add to the bare service: their times less its own, round by round.
fn added(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> Compared {
    let mut bare = sender(Service_::new());
    let rounds: Vec<_> = (0..=rounds)
        .map(|_| {
            let before = repeat(&mut bare);
            let (ours, theirs) = (repeat(&mut ours), repeat(&mut theirs));
            let bare = f64::midpoint(before, repeat(&mut bare));
            (ours - bare, theirs - bare)
        })
        .collect();
    Compared::of(&rounds[1..])
}

fn total(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> Compared {
    let rounds: Vec<_> = (0..=rounds)
        .map(|_| (repeat(&mut ours), repeat(&mut theirs)))
        .collect();
    Compared::of(&rounds[1..])
}

/// The rows.
pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) {
    let (interval, burst) = WIDE_NUMBERS;
    let allowed = added(
        rounds,
        sender(ours(WIDE, 1, HeaderStyle::NONE)),
        sender(governed(configuration(interval, burst).finish())),
    );
    let what = "layer, no headers: added to a bare service";
    print(Row::compared(what, "ns", "tower_governor", allowed).gate(1.0));

    let gcra =
        axum_gcra::gcra::Quota::new(interval, u64::from(burst).try_into().expect("not zero"));
    let compared = added(
        rounds,
        sender(ours(WIDE, 1, HeaderStyle::NONE)),
        sender(
            axum_gcra::RateLimitLayer::<ApiKey>::builder()
                .with_default_quota(gcra)
                .build()
                .layer(Service_::new()),
        ),
    );
    print(Row::compared("the same", "ns", "axum_gcra", compared));

    let compared = added(
        rounds,
        sender(ours(WIDE, 1, HeaderStyle::DRAFT_11)),
        sender(governed(
            configuration(interval, burst).use_headers().finish(),
        )),
    );
    let what = "layer, two headers, allowed: added";
    print(Row::compared(what, "ns", "tower_governor", compared).gate(1.0));

    let (interval, burst) = TIGHT_NUMBERS;
    let compared = total(
        rounds,
        sender(ours(TIGHT, 1, HeaderStyle::DRAFT_11)),
        sender(governed(
            configuration(interval, burst).use_headers().finish(),
        )),
    );
    let what = "layer, headers, denied: whole request";
    print(
        Row::compared(what, "ns", "tower_governor", compared)
            .gate_on_ours(600.0)
            .direction(300.0),
    );
    let mut bare = sender(Service_::new());
    let bare = Compared::of(
        &(0..rounds)
            .map(|_| (repeat(&mut bare), 1.0))
            .collect::<Vec<_>>(),
    );
    print(Row::alone("bare service: whole request", "ns", bare.ours));
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
