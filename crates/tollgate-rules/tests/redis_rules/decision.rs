//! A list, an operator's override, a growing block, a rate, slots and waiting in one decision, in memory and on Redis.

use std::{
    convert::Infallible,
    fs,
    ops::Range,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use axum::body::{Body, Bytes};
use http::{HeaderValue, Request, Response};
use tokio::time::{Instant, sleep};
use tollgate::{MemoryStore, RateLimitLayer, Rejection, Store, clock::Clock};
use tollgate_redis::{Keys, RedisStore};
use tollgate_rules::{Author, Bindings, LiveRules, OperatorEntry};
use tollgate_test_servers::redis_server::RedisServer;
use tower::{Layer, ServiceExt, service_fn};

const LIMITS: &str = r#"
version = 1
lists.abusive = { file = "abusive.txt" }
rules = [
    { name = "listed", limit = "none", by = "header:x-api-key", when = { in_list = "abusive", by = "header:x-api-key" } },
    { name = "rate", limit = "sliding_log 2/h", by = "header:x-api-key" },
    { name = "failures", limit = "fixed_window 9/d", by = "header:x-api-key", count_if = { status = 401 }, block = { after = 2, within = "1h", for = "10min" } },
    { name = "at-once", limit = "concurrent 1 typically 20s", by = "header:x-api-key" },
    { name = "paced", limit = "5/s burst 1", by = "header:x-api-key", wait = "20s" },
]
"#;

struct Service(RateLimitLayer);

impl Service {
    fn request(client: &str, status: &str) -> Request<Body> {
        let request = Request::get("/").header("x-api-key", client);
        let request = request.header("x-status", status);
        request.body(Body::empty()).expect("a request")
    }

    /// The response of a request, whose slot is held until it is dropped.
    async fn send(&self, client: &str, status: &str) -> Response<Body> {
        let service = self.0.layer(service_fn(async |request: Request<Body>| {
            let mut response = Response::new(Body::empty());
            let status = request.headers()["x-status"].to_str().expect("a text");
            *response.status_mut() = status.parse().expect("a status");
            Ok::<_, Infallible>(response)
        }));
        let Ok(response) = service.oneshot(Self::request(client, status)).await;
        response.map(Body::new)
    }

    /// What is left of the rates of a client.
    async fn left(&self, client: &str) -> Vec<u64> {
        let head = Self::request(client, "200").into_parts().0;
        let limiter = self.0.limiter();
        let mut left = Vec::new();
        for rule in ["rate", "failures"] {
            let key = self.0.key_of(rule, &head).expect("it has a key");
            let look = limiter.peek(&[limiter.check(rule, &key).expect("a rule")]);
            left.push(look.await.verdicts()[0].remaining());
        }
        left
    }

    /// A request is denied for this reason, and may be sent again after so many seconds. It takes nothing.
    async fn denies(&self, client: &str, reason: &str, retry: Option<Range<u64>>) {
        let before = self.left(client).await;
        let response = self.send(client, "200").await;
        let (told, seconds) = denial(&response);
        assert_eq!(told, Some(reason), "{client}");
        let is_expected = match (seconds, &retry) {
            (Some(seconds), Some(retry)) => retry.contains(&seconds),
            (seconds, retry) => seconds.is_none() && retry.is_none(),
        };
        assert!(is_expected, "{client}, {reason}: {seconds:?}");
        assert_eq!(self.left(client).await, before, "{reason}");
    }

    /// Asks until the answer is this reason and a time or none.
    async fn until(&self, client: &str, reason: Option<&str>, has_retry: bool) {
        let begin = Instant::now();
        loop {
            let response = self.send(client, "200").await;
            let (told, seconds) = denial(&response);
            if told == reason && seconds.is_some() == has_retry {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{response:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Why a request was denied, and when it may be sent again.
fn denial(response: &Response<Body>) -> (Option<&str>, Option<u64>) {
    let told = |name: &str| response.headers().get(name)?.to_str().ok();
    let seconds = told("x-retry").map(|seconds| seconds.parse().expect("seconds"));
    (told("x-reason"), seconds)
}

/// Where requests may wait, or may not.
async fn one_reason_and_one_time(store: impl Store, folder: &Path, without: Option<&str>) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
    let rule = without.map(|name| format!("{{ name = \"{name}\""));
    let is_in = |line: &&str| rule.as_ref().is_none_or(|rule| !line.contains(rule));
    let lines: Vec<_> = LIMITS.lines().filter(is_in).collect();
    write("limits.toml", &lines.join("\n"));
    write("abusive.txt", "# nobody\n");
    let rules = LiveRules::watch(folder.join("limits.toml"), Bindings::new()).expect("valid");
    let layer = rules.layer(store).expect("valid rules");
    let service = Service(layer.rejection(Rejection::custom(|denial| {
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = denial.status();
        let fields = response.headers_mut();
        let reason = HeaderValue::from_static(denial.reason().as_str());
        fields.insert("x-reason", reason);
        if let Some(retry) = denial.retry_after() {
            fields.insert("x-retry", retry.as_secs().into());
        }
        response
    })));
    // Whom nothing denies waits for the pace.
    for _ in 0..2 {
        assert_eq!(service.send("waits", "200").await.status(), 200);
    }
    // Of each client the last response is held, and with it a slot.
    let held = service.send("at-once", "200").await;
    if without != Some("at-once") {
        service.denies("at-once", "slots", Some(0..21)).await;
    }
    drop(service.send("often", "200").await);
    let often = service.send("often", "200").await;
    service.denies("often", "quota", Some(3_000..3_601)).await;
    drop(service.send("fails", "401").await);
    let fails = service.send("fails", "401").await;
    // The reason is the block, and the time the longest: that of the rate.
    let rate = || Some(3_000..3_601);
    service.until("fails", Some("blocked"), true).await;
    service.denies("fails", "blocked", rate()).await;

    let alice = rules.handle(Author::new("alice"));
    let two_hours = UNIX_EPOCH + Duration::from_micros(Clock::system().now() + 7_200_000_000);
    let clients = ["at-once", "often", "fails"];
    for client in clients {
        let block = OperatorEntry::limit("rate", client, "none").until(two_hours);
        alice.set(block).expect("it goes with the rules");
        service.denies(client, "blocked", Some(7_000..7_201)).await;
    }
    write("abusive.txt", &clients.join("\n"));
    for client in clients {
        service.until(client, Some("blocked"), false).await;
        service.denies(client, "blocked", None).await;
    }
    // What was denied has taken no slot and no place in a queue.
    write("abusive.txt", "# nobody\n");
    alice.clear().expect("it was set");
    drop((held, often, fails));
    service.until("at-once", None, false).await;
    service.denies("often", "quota", rate()).await;
    service.denies("fails", "blocked", rate()).await;
}

#[tokio::test]
async fn of_all_that_denies_a_request_in_memory_there_is_one_reason_and_one_time() {
    let folder = tempfile::tempdir().expect("a folder");
    one_reason_and_one_time(MemoryStore::new(), folder.path(), None).await;
}

/// There, requests do not wait for units in a decision about slots. A denial that a process knows ends the decision, so that the longest
/// time is that of the store's answer.
#[tokio::test]
async fn of_all_that_denies_a_request_on_redis_there_is_one_reason_and_one_time() {
    for without in ["paced", "at-once"] {
        let server = RedisServer::start(&[]).await;
        let folder = tempfile::tempdir().expect("a folder");
        let store = RedisStore::builder(server.url(), "shop", Keys::plain())
            .deadline(Duration::from_secs(20))
            .without_deny_cache()
            .connect()
            .expect("an address");
        store.connected().await;
        one_reason_and_one_time(store, folder.path(), Some(without)).await;
    }
}
