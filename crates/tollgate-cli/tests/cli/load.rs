//! `tollgate load`. What it says is compared with the server's own log and clock, so that no busy machine breaks a test.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, extract::Request, http::StatusCode, middleware, routing::get};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tollgate::{MemoryStore, Quota, RateLimitLayer, Rule, SECOND, key::header};
use tollgate_tests::server::Server;

use crate::support::{Program, Ran, assert_harmless};

/// What a server has answered, and when by its clock.
type Log = Arc<Mutex<Vec<(Instant, StatusCode)>>>;

/// A service with twenty requests a second and fifty at once for each client, which denies with a status, and what it logs.
async fn service(denied: StatusCode) -> (Server, Log) {
    let rule = Rule::new("api", Quota::token_bucket(50).refill(20, SECOND)).by(header("x-api-key"));
    let layer = RateLimitLayer::new(MemoryStore::new(), [rule]).expect("a rule");
    let layer = layer.denied_status(denied).expect("a denial");
    let log = Log::default();
    let note = Arc::clone(&log);
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer);
    let app = app.layer(middleware::from_fn(
        move |request: Request, next: middleware::Next| {
            let note = Arc::clone(&note);
            async move {
                let response = next.run(request).await;
                note.lock()
                    .expect("no test has failed")
                    .push((Instant::now(), response.status()));
                response
            }
        },
    ));
    (Server::start(app).await, log)
}

async fn load(url: String, args: &[&str]) -> (Ran, Value) {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let run = move || {
        let args: Vec<&str> = ["load", &*url]
            .into_iter()
            .chain(args.iter().map(|arg| &**arg))
            .collect();
        let ran = Program::new().run(&args);
        let json = serde_json::from_str(&ran.out).unwrap_or_default();
        (ran, json)
    };
    tokio::task::spawn_blocking(run).await.expect("it runs")
}

/// All that the server has allowed, and no more than a bucket of fifty has that gets twenty a second by the server's clock, nor much
/// less: a machine that stands still lets it overflow.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_those_of_a_limiter() {
    // As nginx denies.
    let (server, log) = service(StatusCode::SERVICE_UNAVAILABLE).await;
    let args = [
        "--rate", "60", "--burst", "100", "--keys", "1", "--denied", "503", "--obey", "0", "--json",
    ];
    let (ran, json) = load(format!("http://{}/", server.address()), &args).await;
    ran.assert(0, &[]);
    let log = log.lock().expect("no test has failed");
    let seconds = (log[log.len() - 1].0 - log[0].0).as_secs_f64();
    let allowed = log.iter().filter(|(_, status)| *status == StatusCode::OK);
    let allowed = allowed.count();
    let counted = ["requests", "failed", "allowed", "denied"].map(|name| json[name].clone());
    assert_eq!(counted, [700, 0, allowed, 700 - allowed].map(Value::from));
    let known = 50.0 + 20.0 * seconds;
    let is_near = (0.6 * known..=1.02 * known).contains(&(allowed as f64));
    assert!(is_near, "{allowed} of {known} in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_obeys_is_not_denied_again_and_one_that_cannot_is_told() {
    let (server, log) = service(StatusCode::TOO_MANY_REQUESTS).await;
    let url = format!("http://{}/", server.address());
    let args = [
        "--rate",
        "1",
        "--burst",
        "200",
        "--seconds",
        "1",
        "--keys",
        "3",
        "--obey",
        "2",
    ];
    let (ran, _) = load(url.clone(), &args).await;
    assert_harmless(ran.assert(
        0,
        &[
            "limit observed of load-1",
            "never denied again (2 waits)",
            "ratelimit-policy: ",
        ],
    ));
    assert!(log.lock().expect("no test has failed").len() > 200);
    // A server whose word is not kept, and one whose wait is too long.
    for (wait, code, words) in [
        ("0", 1, "denied again after 2 of 2 waits"),
        ("9999", 0, "Retry-After is 2 h 46 min"),
        ("soon", 0, "had no Retry-After"),
    ] {
        let denied =
            move || async move { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", wait)]) };
        let server = Server::start(Router::new().route("/", get(denied))).await;
        let (ran, _) = load(
            format!("http://{}/", server.address()),
            &["--rate", "5", "--seconds", "1", "--obey", "2"],
        )
        .await;
        ran.assert(code, &[words, "limit observed: 0.0/s, burst 0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stalls_for_a_second_shows_that_second() {
    let began: Arc<Mutex<Option<Instant>>> = Arc::default();
    let answer = move || {
        let began = Arc::clone(&began);
        async move {
            // From half a second on, nobody is answered for a second.
            let first = *began
                .lock()
                .expect("no test has failed")
                .get_or_insert_with(Instant::now);
            let since = first.elapsed();
            let stall = Duration::from_millis(500)..Duration::from_millis(1_500);
            if stall.contains(&since) {
                sleep(stall.end - since).await;
            }
        }
    };
    let server = Server::start(Router::new().route("/", get(answer))).await;
    // Few connections: most requests of that second are not even sent, and their time counts nevertheless.
    let args = [
        "--rate",
        "100",
        "--seconds",
        "3",
        "--connections",
        "4",
        "--json",
    ];
    let (ran, json) = load(format!("http://{}/", server.address()), &args).await;
    ran.assert(0, &[]);
    let micros = |index: usize| {
        json["micros_at_50_90_99_99.9_100_percent"]["since_due"][index]
            .as_u64()
            .unwrap_or_default()
    };
    // A third of them was due in that second, and half of these waited for longer than half of it.
    assert!(micros(4) >= 900_000 && micros(1) >= 400_000, "{json}");
    assert_eq!(json["limit"], Value::Null);
}

#[test]
fn a_server_elsewhere_is_loaded_only_by_who_says_that_it_is_his() {
    let load = |args: &[&str]| Program::new().run(&[&["load", "--seconds", "1"], args].concat());
    load(&["http://192.0.2.7/"]).assert(2, &["not on this machine", "--target-is-mine"]);
    load(&["https://127.0.0.1/"]).assert(2, &["only http is spoken"]);
    load(&["http://user@127.0.0.1/"]).assert(2, &["it has a user"]);
    load(&["http://127.0.0.1:99999/"]).assert(2, &["from 1 to 65535"]);
    load(&["not a page"]).assert(2, &["it is no URL"]);
    load(&["http://127.0.0.1:1/", "--rate", "2"]).assert(1, &["2 failed", "refused"]);
    load(&["http://127.0.0.1:1/", "--rate", "1e9"]).assert(2, &["it takes 1 to 1000000"]);
    load(&["http://127.0.0.1:1/", "--rate", "0"]).assert(2, &["these are 0 requests"]);
}
