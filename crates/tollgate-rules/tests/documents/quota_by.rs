//! Limits that code computes for a request.

use http::{HeaderValue, Request};

use crate::{client, one, passing, toml};

/// A request of a client whose own limit is in a token, which is a header here.
fn asks(name: &'static str, limit: &'static str) -> impl Fn() -> Request<String> {
    move || {
        let mut request = client("/", name);
        let headers = request.headers_mut();
        headers.insert("x-limit", HeaderValue::from_static(limit));
        request
    }
}

fn rule(more: &str) -> String {
    let more = format!("quota_by = \"token\"\n{more}");
    one("\"header:x-api-key\"", &more)
}

#[tokio::test]
async fn a_request_has_the_limit_that_code_computes_or_else_the_rules_own() {
    let document = toml(&rule("")).expect("valid");
    for (limit, passes) in [
        ("fixed_window 6/min", 6),
        ("fixed_window 1/min", 1),
        ("unlimited", 10),
        ("none", 0),
        // None, and one of another algorithm.
        ("its own", 2),
        ("gcra 6/min", 2),
    ] {
        let passed = passing(document.rules(), asks("acme", limit)).await;
        assert_eq!(passed, passes, "{limit}");
    }
}

#[tokio::test]
async fn an_override_takes_precedence_over_it_and_a_switch_halves_it() {
    let request = || asks("acme", "fixed_window 6/min");
    let other = "[[overrides]]\nrule = \"rule\"\nkey = \"acme\"\nlimit = \"4/min\"\n";
    let document = toml(&rule(other)).expect("valid");
    assert_eq!(passing(document.rules(), request()).await, 4);
    let half = "[[switches]]\nrules = \"*\"\nlimit = \"50%\"\n";
    let document = toml(&rule(half)).expect("valid");
    assert_eq!(passing(document.rules(), request()).await, 3);
}
