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
async fn an_override_takes_precedence_over_it_and_a_switch_halves_it() {
    let request = || asks("acme", "fixed_window 6/min");
    let other = "[[overrides]]\nrule = \"rule\"\nkey = \"acme\"\nlimit = \"4/min\"\n";
    let document = toml(&rule(other)).expect("valid");
    assert_eq!(passing(document.rules(), request()).await, 4);
    let half = "[[switches]]\nrules = \"*\"\nlimit = \"50%\"\n";
    let document = toml(&rule(half)).expect("valid");
    assert_eq!(passing(document.rules(), request()).await, 3);
}
