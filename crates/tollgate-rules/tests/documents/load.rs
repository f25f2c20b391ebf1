//! What responses count, and what is said of it.

use std::convert::Infallible;

use http::{Method, Request, Response};
use tollgate::{MemoryStore, Quota, RateLimitLayer, SECOND};
use tollgate_rules::{Bindings, Format, RuleDocument, RuleText};
use tower::{Layer, ServiceExt, service_fn};

use crate::{one, request, toml};

/// Sends requests to a service with these responses, and returns which passed.
async fn send(rule: &str, responses: &[Response<()>]) -> Vec<bool> {
    let bindings =
        Bindings::new().response_condition("slow", |response| response.header("x-slow").is_some());
    let document = RuleDocument::parse(rule, Format::Toml, &bindings).expect(rule);
    let layer = RateLimitLayer::new(MemoryStore::new(), document.rules()).expect(rule);
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
    let (slow, miss, hit) = (
        [("x-slow", "1")],
        [("x-cache", "miss")],
        [("x-cache", "hit")],
    );
    let unauthenticated = "{ grpc_status = 'UNAUTHENTICATED' }";
    let missed = "{ header = { name = 'x-cache', equals = 'miss' } }";
    for (condition, status, fields, counts) in [
        ("'failure'", 401, &[][..], true),
        ("'failure'", 303, &[], false),
        ("{ status = [401, '5xx'] }", 401, &[], true),
        ("{ status = [401, '5xx'] }", 599, &[], true),
        ("{ status = [401, '5xx'] }", 499, &[], false),
        (unauthenticated, 200, &grpc("16"), true),
        (unauthenticated, 200, &grpc("0"), false),
        (missed, 200, &miss, true),
        (missed, 200, &hit, false),
        ("{ not = [{ status = 200 }, 'slow'] }", 401, &slow, false),
        ("{ any = [{ status = 401 }, 'slow'] }", 200, &slow, true),
        ("{ any = [{ status = 401 }, 'slow'] }", 200, &[], false),
        ("{ status = 200, is = 'slow' }", 200, &slow, true),
        ("{ status = 200, is = 'slow' }", 200, &[], false),
    ] {
        let rule = one("\"client_ip\"", &format!("count_if = {condition}"));
        let rule = rule.replace("fixed_window 2/min", "sliding_log 1/min");
        let passed = send(&rule, &[response(status, fields), response(200, &[])]).await;
        assert_eq!(passed, [true, !counts], "{condition} {status} {fields:?}");
    }
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
