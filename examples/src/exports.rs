//! Exports that take long: at most three at once and ten an hour for each tenant. A request that finds no free slot waits.

use std::{convert::Infallible, env, time::Duration};

use axum::{Router, body::Body, extract::Query, routing::get};
use http::StatusCode;
use serde::Deserialize;
use tokio::time::interval;
use tokio_stream::{StreamExt, wrappers::IntervalStream};
use tollgate::{
    HOUR, Key, Missing, Protocol, Quota, RateLimitLayer, Rule, RuleError, Store, key::computed,
};

/// How often a line of an export is sent.
const LINE: Duration = Duration::from_millis(100);

/// What an operator sets.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a request may wait for a slot; zero: it is denied at once.
    pub wait: Duration,
    /// How many exports a tenant has each hour.
    pub per_hour: u64,
}

impl Settings {
    /// From `$WAIT_MS`, by default 5000, and `$PER_HOUR`, by default 10.
    ///
    /// # Errors
    ///
    /// One of them is not a number.
    pub fn from_env() -> Result<Self, String> {
        Ok(Self {
            wait: millis("WAIT_MS", 5_000)?,
            per_hour: number("PER_HOUR", 10)?,
        })
    }
}

/// So many milliseconds as the environment says, or else `default`.
///
/// # Errors
///
/// It is not a number.
pub fn millis(variable: &str, default: u64) -> Result<Duration, String> {
    Ok(Duration::from_millis(number(variable, default)?))
}

fn number(variable: &str, default: u64) -> Result<u64, String> {
    let Ok(text) = env::var(variable) else {
        return Ok(default);
    };
    text.parse().map_err(|_| {
        format!("{variable} is {text:?} and no number; take {default}, or leave it out")
    })
}

/// `GET /export?seconds=3`, with its limits in `store`.
///
/// # Errors
///
/// A rule that the store cannot serve.
pub fn app(store: impl Store, settings: Settings) -> Result<Router, RuleError> {
    // A real service has checked the key in front: see the guide on keys.
    let tenant = || {
        computed(|head| {
            let key = head.headers.get("x-api-key")?.to_str().ok()?;
            Some(Key::of(key.split_once('.')?.0))
        })
    };
    let mut at_once = Rule::new("exports-at-once", Quota::concurrent(3));
    if !settings.wait.is_zero() {
        at_once = at_once.wait(settings.wait);
    }
    let limits = RateLimitLayer::new(
        store,
        [
            at_once
                .by(tenant())
                .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
            Rule::new(
                "exports-per-hour",
                Quota::sliding_log(settings.per_hour, HOUR),
            )
            .by(tenant())
            .when_missing(Missing::Reject(StatusCode::UNAUTHORIZED)),
        ],
    )?
    .server_timing()
    .protocol(Protocol::Http);
    Ok(Router::new().route("/export", get(export).route_layer(limits)))
}

#[derive(Deserialize)]
struct Export {
    #[serde(default = "three")]
    seconds: u16,
}

fn three() -> u16 {
    3
}

/// A line each 100 ms. The slot is held until the last one is sent, or the client has gone.
async fn export(Query(Export { seconds }): Query<Export>) -> Body {
    let lines = usize::from(seconds) * 10;
    let lines = IntervalStream::new(interval(LINE)).take(lines);
    let mut line = 0;
    Body::from_stream(lines.map(move |_| {
        line += 1;
        Ok::<_, Infallible>(format!("line {line}\n"))
    }))
}
