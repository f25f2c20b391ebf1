//! Slots, waiting, and what responses count.

use std::{convert::Infallible, time::Duration};

use http::{Method, Request, Response};
use tollgate::{Clock, MemoryStore, Quota, RateLimitLayer, SECOND};
use tollgate_rules::{Bindings, Format, RuleDocument, RuleText};
use tower::{Layer, ServiceExt, service_fn};

use crate::{get, one, request, toml};

const TOML: &str = r#"
version = 1

[[rules]]
name = "exports-at-once"
limit = "concurrent 3 typically 20s"
by = "client_ip"
wait = "5s"
max_waiting = { per_key = 2, in_all = 50 }

[[rules]]
name = "renders"
limit = "leaky_bucket 10/s burst 2"
by = "client_ip"
wait = "250ms"
rollout = { percent = 0, others = "shadow" }

[[rules]]
name = "log-ins"
limit = "sliding_log 3/10min"
by = "client_ip"
count_if = { status = [401, 403] }
cost = 2
cost_by_response = { header = "x-used" }
"#;

/// Sends requests to a service with these responses, and returns which passed.
async fn send(rule: &str, responses: &[Response<()>]) -> Vec<bool> {
    let bindings = Bindings::new()
        .response_condition("slow", |response| response.header("x-slow").is_some())
        .response_cost("tokens", |response| {
            Some(2 * response.header("x-tokens")?.parse::<u64>().ok()?)
        });
    let document = RuleDocument::parse(rule, Format::Toml, &bindings).expect(rule);
    let store = MemoryStore::builder().clock(Clock::tokio()).build();
    let layer = RateLimitLayer::new(store, document.rules()).expect(rule);
    let mut passed = Vec::new();
    for response in responses {
        let service = layer.layer(service_fn(async |_: Request<String>| {
            let mut copy = Response::new(String::new());
            *copy.status_mut() = response.status();
            *copy.headers_mut() = response.headers().clone();
            copy.headers_mut().insert("x-passed", 1.into());
            Ok::<_, Infallible>(copy)
        }));
        let Ok(answer) = service.oneshot(request(Method::GET, "/")).await;
        passed.push(answer.headers().contains_key("x-passed"));
    }
    passed
}

fn response(status: u16, fields: &[(&'static str, &'static str)]) -> Response<()> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    response.body(()).expect("a response")
}

#[tokio::test]
async fn a_response_counts_if_the_condition_holds() {
    let grpc = |status| {
        [
            ("content-type", "application/grpc"),
            ("grpc-status", status),
        ]
    };
    for (condition, status, fields, counts) in [
        ("'failure'", 401, &[][..], true),
        ("'failure'", 303, &[], false),
        ("{ status = 401 }", 401, &[], true),
        ("{ status = 401 }", 403, &[], false),
        ("{ status = [401, '5xx'] }", 401, &[], true),
        ("{ status = [401, '5xx'] }", 500, &[], true),
        ("{ status = [401, '5xx'] }", 599, &[], true),
        ("{ status = [401, '5xx'] }", 499, &[], false),
        (
            "{ grpc_status = 'UNAUTHENTICATED' }",
            200,
            &grpc("16"),
            true,
        ),
        (
            "{ grpc_status = 'UNAUTHENTICATED' }",
            200,
            &grpc("0"),
            false,
        ),
        (
            "{ grpc_status = ['OK', 'ABORTED'] }",
            200,
            &grpc("10"),
            true,
        ),
        ("{ header = 'x-failed' }", 200, &[("x-failed", "")], true),
        ("{ header = 'x-failed' }", 200, &[], false),
        (
            "{ header = { name = 'x-cache', equals = 'miss' } }",
            200,
            &[("x-cache", "miss")],
            true,
        ),
        (
            "{ header = { name = 'x-cache', equals = 'miss' } }",
            200,
            &[("x-cache", "hit")],
            false,
        ),
        ("{ not = { status = 200 } }", 401, &[], true),
        (
            "{ not = [{ status = 200 }, 'slow'] }",
            401,
            &[("x-slow", "1")],
            false,
        ),
        (
            "{ any = [{ status = 401 }, 'slow'] }",
            200,
            &[("x-slow", "1")],
            true,
        ),
        ("{ any = [{ status = 401 }, 'slow'] }", 200, &[], false),
        (
            "{ status = 200, is = 'slow' }",
            200,
            &[("x-slow", "1")],
            true,
        ),
        ("{ status = 200, is = 'slow' }", 200, &[], false),
        ("'slow'", 200, &[], false),
    ] {
        let rule = one("\"client_ip\"", &format!("count_if = {condition}"));
        let rule = rule.replace("fixed_window 2/min", "sliding_log 1/min");
        let passed = send(&rule, &[response(status, fields), response(200, &[])]).await;
        assert_eq!(passed, [true, !counts], "{condition} {status} {fields:?}");
    }
}

#[tokio::test]
async fn a_request_costs_what_its_response_says() {
    let rule = |cost: &str| {
        let more = format!("cost = 4\ncost_by_response = {cost}");
        let rule = one("\"client_ip\"", &more);
        rule.replace("fixed_window 2/min", "sliding_window 10/min")
    };
    let tokens = |units| response(200, &[("x-tokens", units)]);
    // 9 of 10, and none is free for the next.
    let by_header = rule("{ header = \"x-tokens\" }");
    assert_eq!(
        send(&by_header, &[tokens("6"), tokens("0")]).await,
        [true, true]
    );
    assert_eq!(
        send(&by_header, &[tokens("7"), tokens("0")]).await,
        [true, false]
    );
    // What is no number costs what was taken.
    let three = [tokens("many"), response(200, &[]), tokens("0")];
    assert_eq!(send(&by_header, &three).await, [true, true, false]);
    let bound = rule("\"tokens\"");
    assert_eq!(
        send(&bound, &[tokens("3"), tokens("0")]).await,
        [true, true]
    );
    assert_eq!(
        send(&bound, &[tokens("4"), tokens("0")]).await,
        [true, false]
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_as_long_as_the_document_says() {
    let rule = |wait: &str| {
        let rule = one("\"client_ip\"", &format!("wait = \"{wait}\""));
        rule.replace("fixed_window 2/min", "10/s burst 1")
    };
    let three = [(); 3].map(|()| response(200, &[]));
    let start = tokio::time::Instant::now();
    assert_eq!(send(&rule("100ms"), &three).await, [true; 3]);
    assert_eq!(start.elapsed(), Duration::from_millis(200));
    assert_eq!(send(&rule("99ms"), &three).await, [true, false, false]);
    assert_eq!(start.elapsed(), Duration::from_millis(200));
}

#[test]
fn an_explanation_says_what_waits_and_what_counts() {
    let document = toml(TOML).expect("valid");
    let (head, _) = get("/").into_parts();
    let explained = document.explain(&head);
    let said: Vec<_> = explained
        .iter()
        .map(|it| {
            (
                &*it.rule,
                it.limiter_rule.at_most_wait(),
                it.counts_if.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        said,
        [
            ("exports-at-once", Some(5 * SECOND), None),
            ("renders", Some(Duration::from_millis(250)), None),
            ("log-ins", None, Some(r#"{"status": [401, 403]}"#)),
        ]
    );
}

#[test]
fn changes_of_waits_and_conditions_are_said() {
    let text = |more: &str| {
        let rule = one("\"client_ip\"", more);
        RuleText::new(rule.replace("fixed_window 2/min", "10/min"), Format::Toml)
    };
    let changes = |before: &str, after: &str| {
        let changes = text(after).changes_from(&text(before), &Bindings::new());
        changes.expect("valid")
    };
    assert_eq!(
        changes("wait = \"5s\"", ""),
        ["rule: gcra 10/min, waits up to 5s → gcra 10/min"]
    );
    assert_eq!(
        changes("", "count_if = { status = [401, 403] }"),
        [r#"rule: count_if (none) → {"status": [401, 403]}"#]
    );
    assert_eq!(
        changes("cost_by_response = { header = \"x-a\" }", ""),
        [r#"rule: cost_by_response {"header": "x-a"} → (none)"#]
    );
    assert_eq!(changes("wait = \"5s\"", "wait = \"5000ms\""), [""; 0]);
}

#[test]
fn a_switch_leaves_each_rule_what_a_request_costs_and_may_leave_unreported() {
    let rules = [
        ("slots", "limit = 'concurrent 3'\ncost = 3"),
        ("log", "limit = 'sliding_log 5/min'\ncost = 4"),
        ("bucket", "limit = 'gcra 10/min burst 5'\ncost = 5"),
        (
            "eventual",
            "limit = '5/min'\nconsistency = { eventual = { interval = '100ms', max_unreported = 5 } }",
        ),
    ];
    let rules = rules.map(|(name, rule)| {
        let own = "[[overrides]]\nkey = '192.0.2.1'";
        let limit = rule.lines().next().expect("a limit");
        format!("[[rules]]\nname = '{name}'\nby = 'client_ip'\n{rule}\n{own}\nrule = '{name}'\n{limit}\n")
    });
    let switch = "[[switches]]\nrules = '*'\nlimit = '50%'\n";
    let text = format!("version = 1\n{}{switch}", rules.concat());
    let document = toml(&text).expect("a document");
    let limits = RateLimitLayer::new(MemoryStore::new(), document.rules());
    let limits = limits.expect("rules that can be bound");
    let limiter = limits.limiter();
    let quotas = limiter.rules().given().iter();
    let quotas: Vec<_> = quotas.map(|rule| *rule.quota()).collect();
    let minute = 60 * SECOND;
    let expected = [
        Quota::concurrent(3),
        Quota::sliding_log(4, minute),
        Quota::gcra(5, minute).burst(5),
        Quota::gcra(3, minute),
    ];
    assert_eq!(quotas, expected);
}
