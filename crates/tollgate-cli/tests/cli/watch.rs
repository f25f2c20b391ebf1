//! `tollgate top` and `tollgate watch`.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use axum::{Router, body::Body, routing::get};
use http::Request;
use serde_json::json;
use tollgate::{HOUR, MemoryStore, Quota, RateLimitLayer, Rule, TopKeysEndpoint, key::header};
use tollgate_tests::server::Server;
use tower::ServiceExt as _;

use crate::support::{Program, RedisServer, assert_harmless};

/// A service whose counters grow by ten denials of `search` and one of `other` with each look.
pub(crate) fn metrics(extra: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let looks = AtomicU64::new(0);
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let look = looks.fetch_add(1, Ordering::Relaxed);
            let page = format!(
                "# TYPE tollgate_requests_total counter\n\
                 tollgate_requests_total{{rule=\"other\",decision=\"denied\"}} {look}\n\
                 tollgate_requests_total{{rule=\"search\",decision=\"denied\"}} {}\n\
                 tollgate_requests_total{{rule=\"search\",decision=\"allowed\"}} {}\n{extra}\n",
                look * 10,
                look * 30,
            );
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{page}",
                page.len()
            );
        }
    });
    format!("http://{address}/metrics")
}

#[test]
fn top_names_the_rule_that_denies_most() {
    let program = Program::new().set("TOLLGATE_METRICS", &metrics(""));
    let ran = program.run(&["top", "--over", "0.1"]);
    ran.assert(0, &["rule", "denied/s"]);
    let rules: Vec<_> = ran
        .out
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(rules, ["search", "other"]);
    assert!(ran.out.contains("25.0 %"), "{}", ran.out);
    let (_, json) = program.json(&["top", "--over", "0.1", "--most", "1"]);
    let rules = json["rules"].as_array().expect("a list");
    assert_eq!((rules.len(), &rules[0]["rule"]), (1, &json!("search")));
}

/// A client's key, which must not be found anywhere.
const KEY: &str = "acme-key-4711";

#[tokio::test(flavor = "multi_thread")]
async fn top_names_the_keys_that_come_most_often_and_shows_none() {
    let label = |_: &tollgate::KeyBuf| "Acme \u{1b}[2J\r\n\u{202e}txet \" ' \\".to_owned();
    let rules = [
        Rule::new("per-key", Quota::fixed_window(3, HOUR)).top_keys(),
        Rule::new("per-account", Quota::gcra(90, HOUR)).label(label),
        Rule::new("others", Quota::gcra(90, HOUR)),
    ];
    let rules = rules.map(|rule| rule.by(header("x-api-key")));
    let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid rules");
    let admin = Router::new().route("/top-keys", TopKeysEndpoint::new([&layer]).route());
    let app = Router::new()
        .route("/", get(|| async {}))
        .layer(layer.clone());
    let server = Server::start(admin).await;
    let url = format!("http://{}/top-keys", server.address());
    let run = async |args: &'static [&'static str]| {
        let (url, program) = (url.clone(), Program::new());
        let run = move || program.run(&[&["top", "--keys", &url], args].concat());
        tokio::task::spawn_blocking(run).await.expect("it runs")
    };
    run(&[]).await.assert(0, &["rule", "requests"]);

    for key in [KEY, KEY, KEY, KEY, "other"] {
        let request = Request::get("/")
            .header("x-api-key", key)
            .body(Body::empty());
        let _ = app.clone().oneshot(request.expect("a request")).await;
    }
    let ran = run(&[]).await;
    assert_harmless(ran.assert(0, &["per-key", "per-account", "Acme \u{fffd}[2J"]));
    ran.lacks(&[KEY, "others"]);
    assert_eq!(ran.out.lines().count(), 5, "{}", ran.out);

    let ran = run(&["--json", "--most", "1"]).await;
    ran.assert(0, &[]).lacks(&[KEY]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).expect("a document");
    let top = layer.limiter().top_keys("per-key", 1).expect("a rule");
    let key = &json["rules"][0]["keys"][0];
    assert_eq!(key["key"], json!(top[0].key.to_string()));
    assert_eq!((&key["at_least"], &key["denials"]), (&json!(4), &json!(1)));
    assert_eq!(json["rules"][0]["keys"].as_array().map(Vec::len), Some(1));
}

#[test]
fn top_says_what_would_help_where_there_are_no_top_keys() {
    let program = Program::new();
    let page = metrics("");
    program
        .run(&["top", "--keys", &page])
        .assert(3, &["TopKeysEndpoint"]);
    program
        .run(&["top", "--keys", "http://127.0.0.1:1/top-keys"])
        .assert(3, &["does the service run"]);
    program
        .run(&["top", "--keys", "https://127.0.0.1/top-keys"])
        .assert(2, &["--keys", "only http"]);
    program
        .run(&["top", "--keys", &page, "--metrics", &page])
        .assert(2, &["cannot be used with"]);
}

#[test]
fn watch_prints_a_table_for_each_look_and_a_document_for_programs() {
    let program = Program::new().set("TOLLGATE_METRICS", &metrics(""));
    let args = ["watch", "--every", "0.1", "--times", "3"];
    let ran = program.run(&args);
    ran.assert(0, &[]);
    assert_eq!(ran.out.matches("requests/s").count(), 3);
    assert!(!ran.out.contains('\u{1b}'), "no terminal reads this");
    let ran = program.run(&[&args[..], &["--json"]].concat());
    let documents = serde_json::Deserializer::from_str(&ran.out).into_iter::<serde_json::Value>();
    assert_eq!(documents.filter(Result::is_ok).count(), 3);
}

#[test]
fn a_namespace_is_watched_by_a_sample_of_its_keys() {
    let server = RedisServer::start(&[]);
    let rules =
        "version = 1\n[[rules]]\nname = \"api\"\nlimit = \"60/d\"\nby = \"header:x-api-key\"\n";
    let program = Program::on(&server, rules);
    for client in ["a", "b", "c"] {
        program.run(&["key", "check", client]).assert(0, &[]);
    }
    let (code, json) = program.json(&["top"]);
    assert_eq!(
        (code, &json["rules"][0]["rule"], &json["rules"][0]["keys"]),
        (0, &json!("api"), &json!(3))
    );
    assert!(
        json["rules"][0]["bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 300),
        "{json}"
    );
    program
        .run(&["watch", "--times", "1"])
        .assert(0, &["processes 0", "api", "keys on the server"]);
}

#[test]
fn the_keys_of_a_large_server_are_estimated_from_a_sample() {
    const KEYS: u64 = 9_000;
    let server = RedisServer::start(&[]);
    let fill =
        "for n = 1, ARGV[1] do redis.call('SET', string.format('{shop}:%022d:api:a1', n), 'x') end";
    let _: Option<String> = server.ask(&["EVAL", fill, "0", &KEYS.to_string()]);
    let program = Program::on(&server, "version = 1\n");
    let (_, json) = program.json(&["top"]);
    assert_eq!(
        (&json["keys"], &json["rules"][0]["keys"]),
        (&json!(KEYS), &json!(KEYS))
    );
    let sample = json["sample"].as_u64().expect("a number");
    assert!((2_000..4_000).contains(&sample), "{json}");
    program.run(&["top"]).assert(0, &["about 9000"]);
}

#[test]
fn the_command_line_says_what_is_watched_whatever_the_environment_has() {
    let server = RedisServer::start(&[]);
    let _: String = server.ask(&["SET", "{shop}:AAAAAAAAAAAAAAAAAAAAAA:of-redis:a1", "x"]);
    // As the page has it: where Redis is, is known for all commands.
    let program = Program::on(&server, "version = 1\n");
    let page = metrics("");
    let top = ["top", "--over", "0.1"];
    let by_metrics = program.run(&[&top[..], &["--metrics", &page]].concat());
    by_metrics.assert(0, &["search"]).lacks(&["of-redis"]);
    program.run(&top).assert(0, &["of-redis"]);
    let program = program.set("TOLLGATE_METRICS", &page);
    let by_redis = program.run(&[&top[..], &["--redis", &server.url()]].concat());
    by_redis.assert(0, &["of-redis"]).lacks(&["search"]);
    program.run(&top).assert(0, &["search"]);
}

#[test]
fn what_cannot_be_watched_says_what_would_help() {
    let program = Program::new();
    program.run(&["top"]).assert(2, &["--metrics", "--redis"]);
    program
        .run(&["top", "--redis", "redis://127.0.0.1:1"])
        .assert(2, &["--namespace"]);
    program
        .run(&["top", "--metrics", "http://127.0.0.1:1/metrics"])
        .assert(3, &["does the service run"]);
    program
        .run(&["top", "--metrics", "https://127.0.0.1/metrics"])
        .assert(2, &["only http"]);
    program
        .run(&["top", "--metrics", "http://127.0.0.1:99999/metrics"])
        .assert(2, &["its port is not a number from 1 to 65535"]);
    program
        .run(&["watch", "--metrics", "http://127.0.0.1:1", "--every", "0"])
        .assert(2, &["0.1 to 3600"]);
}
