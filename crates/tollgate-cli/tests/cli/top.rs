//! `tollgate top`.

use axum::{Router, body::Body, routing::get};
use http::Request;
use serde_json::json;
use tollgate::{
    HOUR, MemoryStore, Quota, RateLimitLayer, Rule, key::header, observe::TopKeysEndpoint,
};
use tollgate_tests::server::Server;
use tower::ServiceExt as _;

use crate::support::{Program, assert_harmless};

/// A client's key, which must not be found anywhere.
const KEY: &str = "acme-key-4711";

#[tokio::test(flavor = "multi_thread")]
async fn top_names_the_keys_that_come_most_often_and_shows_none() {
    // What terminals would obey, and what fills any screen.
    let label = |_: &tollgate::key::KeyBuf| {
        "Acme \u{1b}[2J\r\n\u{202e}txet \" ' \\".to_owned() + &"x".repeat(9_000)
    };
    let rules = [
        Rule::new("per-key", Quota::fixed_window(3, HOUR)).top_keys(),
        Rule::new("per-account", Quota::gcra(90, HOUR)).label(label),
        Rule::new("others", Quota::gcra(90, HOUR)),
    ];
    let rules = rules.map(|rule| rule.by(header("x-api-key")));
    let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid rules");
    let admin = Router::new()
        .route("/top-keys", TopKeysEndpoint::new([&layer]).route())
        .route("/other", get(|| async { "other" }));
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer.clone());
    let server = Server::start(admin).await;
    let run = async |path: &str, args: &'static [&'static str]| {
        let url = format!("http://{}{path}", server.address());
        let run = move || Program::new().run(&[&["top", "--keys", &url], args].concat());
        tokio::task::spawn_blocking(run).await.expect("it runs")
    };
    run("/top-keys", &[]).await.assert(0, &["rule", "requests"]);
    for key in [KEY, KEY, KEY, KEY, "other"] {
        let request = Request::get("/")
            .header("x-api-key", key)
            .body(Body::empty());
        let _ = app.clone().oneshot(request.expect("a request")).await;
    }
    let ran = run("/top-keys", &[]).await;
    assert_harmless(ran.assert(0, &["per-key", "per-account", "Acme \u{fffd}[2J"]));
    ran.lacks(&[KEY, "others"]);
    assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);

    let ran = run("/top-keys", &["--json", "--most", "1"]).await;
    ran.assert(0, &[]).lacks(&[KEY]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).expect("a document");
    let top = layer.limiter().top_keys("per-key", 1).expect("a rule");
    let key = &json["rules"][0]["keys"][0];
    assert_eq!(key["key"], json!(top[0].key.to_string()));
    assert_eq!((&key["at_least"], &key["denials"]), (&json!(4), &json!(1)));
    assert_eq!(json["rules"][0]["keys"].as_array().map(Vec::len), Some(1));
    // A page that is another one, and one that is not there.
    run("/other", &[]).await.assert(3, &["TopKeysEndpoint"]);
    run("/nowhere", &[]).await.assert(3, &["it answers 404"]);
}

#[test]
fn what_is_no_address_of_a_page_says_what_would_be_right() {
    for (url, code, words) in [
        ("http://127.0.0.1:1/top-keys", 3, "does the service run"),
        ("https://127.0.0.1/top-keys", 2, "only http"),
        ("http://127.0.0.1:99999/", 2, "from 1 to 65535"),
        ("not a page", 2, "http://127.0.0.1:3000/top-keys"),
    ] {
        let ran = Program::new().run(&["top", "--keys", url]);
        ran.assert(code, &[words]);
    }
    Program::new().run(&["top"]).assert(2, &["--keys"]);
}
