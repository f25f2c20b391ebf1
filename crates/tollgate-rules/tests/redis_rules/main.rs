//! Rules that processes share through Redis.

mod audit;
mod decision;
mod dump;
mod fleet;
mod operators;
mod policies;
mod pushes;
mod servers;
mod trust;

use std::{convert::Infallible, fmt::Display, time::Duration};

use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tollgate::RateLimitLayer;
use tollgate_redis::Secret;
use tollgate_rules::{
    Author, Bindings, Format, LiveRules, OperatorEntry, RuleText,
    operators::EntryStatus,
    redis::{PushError, RedisRules},
};
use tollgate_test_servers::redis_server::RedisServer;
use tower::{Layer, ServiceExt, service_fn};

/// A key that must not be found anywhere.
const KEY: &str = "acme-key-4711";

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32]).expect("32 bytes")
}

fn redis(server: &RedisServer) -> RedisRules {
    RedisRules::new(server.url(), "shop", &secret(7)).expect("an address")
}

fn alice() -> Author {
    Author::new("alice").because("ticket 4711")
}

fn limits(limit: &str) -> RuleText {
    let text = format!(
        "# a comment about {KEY}\nversion = 1\n[[rules]]\nname = 'api'\nlimit = '{limit}'\nby = 'header:x-api-key'\n"
    );
    RuleText::named("limits.toml", text, Format::Toml)
}

fn with_override(limit: &str) -> RuleText {
    let text =
        format!("version = 1\n[[overrides]]\nrule = 'api'\nkey = '{KEY}'\nlimit = '{limit}'\n");
    limits("fixed_window 3/h").and(RuleText::new(text, Format::Toml))
}

async fn push(redis: &RedisRules, text: RuleText) -> u64 {
    let pushed = redis.push(text, &Bindings::new(), &alice()).await;
    pushed.expect("it is pushed")
}

/// Sets an override or a switch, by Alice.
async fn set(redis: &RedisRules, entry: OperatorEntry) -> Result<u64, PushError> {
    redis.set(&[entry], &Bindings::new(), &alice()).await
}

/// A server with rules of this limit.
async fn started(limit: &str) -> (RedisServer, RedisRules) {
    let server = RedisServer::start(&[]).await;
    let redis = redis(&server);
    push(&redis, limits(limit)).await;
    (server, redis)
}

/// The overrides and switches that are stored.
async fn entries(redis: &RedisRules) -> Vec<EntryStatus> {
    let stored = redis.stored(&Bindings::new()).await.expect("signed");
    stored.expect("there are rules").document.entries()
}

async fn follow(redis: &RedisRules) -> LiveRules {
    let followed = LiveRules::follow(redis.source(), Bindings::new()).await;
    followed.expect("there are rules")
}

/// An error or a status says this.
#[track_caller]
fn says(what: impl Display, words: &str) {
    let said = what.to_string();
    assert!(said.contains(words), "{said}");
}

/// Waits until it holds, with a deadline.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}

fn limit_of(rules: &LiveRules) -> u64 {
    rules.document().limiter_rules()[0].quota().limit()
}

/// The limit that a client with this key is limit_shown.
async fn limit_shown(layer: &RateLimitLayer, key: &str) -> String {
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let request = Request::get("/")
        .header("x-api-key", key)
        .body(String::new());
    let Ok(response) = service.oneshot(request.expect("a request")).await;
    let policy = response.headers().get("ratelimit-policy");
    let policy = policy.and_then(|policy| policy.to_str().ok()).unwrap_or("");
    policy.to_owned()
}

#[test]
fn a_process_plays_its_role() {
    fleet::play();
}
