//! What is explained is what the layer does.

use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
};

use http::{HeaderValue, Method, Request, Response, StatusCode};
use tollgate::{Admission, MemoryStore, RateLimitLayer};
use tollgate_rules::operators::{Explained, QuotaOrigin};
use tower::{Layer, ServiceExt, service_fn};

use crate::{Caller, request, says, toml};

const RULES: &str = include_str!("../files/explained.toml");

/// Requests of all kinds.
fn requests() -> Vec<Request<String>> {
    let mut requests = Vec::new();
    for path in ["/search", "/log-in", "/other?seven=7"] {
        for method in [Method::GET, Method::POST] {
            for key in 0..8_u32 {
                let plans = [None, Some("gold"), Some("internal"), Some("unknown")];
                let mut one = request(method.clone(), path);
                let headers = one.headers_mut();
                if key > 0 {
                    let value = format!("k{key}").parse().expect("a value");
                    headers.insert("x-api-key", value);
                }
                if key == 5 {
                    // Twice is no key.
                    headers.append("x-api-key", "other".parse().expect("a value"));
                }
                if key % 2 == 1 {
                    headers.insert("x-beta", "1".parse().expect("a value"));
                }
                // Computed limits: one that the rule takes, one of another algorithm, none at all.
                let limits = [(2, "600/min"), (4, "fixed_window 6/min"), (7, "unlimited")];
                if let Some((_, limit)) = limits.iter().find(|(of, _)| *of == key) {
                    headers.insert("x-limit", HeaderValue::from_static(limit));
                }
                if key == 6 {
                    headers.insert("x-probe", "1".parse().expect("a value"));
                }
                if key % 3 != 0 {
                    let plan = plans[key as usize % plans.len()];
                    one.extensions_mut().insert(Caller {
                        tenant: "acme",
                        plan,
                    });
                }
                requests.push(one);
            }
        }
    }
    requests
}

/// What the layer counts: rules with the limit of the request, and the units left; or the status of a rejection.
async fn counted(request: Request<String>) -> Result<Vec<(String, u64, u64)>, StatusCode> {
    let layer = RateLimitLayer::new(
        MemoryStore::new(),
        toml(RULES).expect("right rules").rules(),
    );
    let layer = layer.expect("right rules").attach_decision();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let service = layer.layer(service_fn(move |request: Request<String>| {
        let admission = request.extensions().get::<Admission>();
        // No rule may have counted it.
        let verdicts = admission.into_iter().flat_map(Admission::verdicts);
        let verdicts = verdicts.map(|it| (it.name().to_owned(), it.limit(), it.remaining()));
        noted.lock().expect("one at a time").extend(verdicts);
        ready(Ok::<_, Infallible>(Response::new(String::new())))
    }));
    let status = service
        .oneshot(request)
        .await
        .expect("it never fails")
        .status();
    match status {
        StatusCode::OK => Ok(std::mem::take(&mut *seen.lock().expect("one at a time"))),
        _ => Err(status),
    }
}

#[tokio::test]
async fn what_is_explained_is_what_the_layer_counts() {
    let document = toml(RULES).expect("right rules");
    let (mut enforced, mut shadows, mut rejected) = (0, 0, 0);
    for request in requests() {
        let (head, body) = request.into_parts();
        let explained = document.explain(&head);
        let words = format!("{} {} {:?}", head.method, head.uri, head.headers);
        let rejects = explained.iter().find_map(|rule| match rule.outcome {
            Explained::Rejects(status) => Some(status),
            _ => None,
        });
        let counting = explained.iter().filter(|rule| rule.counts());
        let mut expected: Vec<(String, u64, u64)> = counting
            .map(|rule| {
                let (name, limit) = (rule.limiter_rule.name(), rule.quota.limit());
                (name.to_owned(), limit, limit - rule.units)
            })
            .collect();
        let of = |outcome| explained.iter().filter(move |rule| rule.outcome == outcome);
        enforced += of(Explained::Enforces).count();
        shadows += of(Explained::Shadows).count();
        match (counted(Request::from_parts(head, body)).await, rejects) {
            (Err(status), Some(expected)) => {
                rejected += 1;
                assert_eq!(status, expected, "{words}");
            }
            (Ok(mut seen), None) => {
                seen.sort();
                expected.sort();
                assert_eq!(seen, expected, "{words}");
            }
            (seen, expected) => panic!("{words}: {seen:?}, explained was {expected:?}"),
        }
    }
    assert!(
        enforced > 50 && shadows > 50 && rejected > 3,
        "{enforced} {shadows} {rejected}"
    );
}

#[test]
fn where_a_quota_comes_from_is_said_in_words() {
    let document = toml(RULES).expect("right rules");
    let mut head = request(Method::GET, "/search");
    head.headers_mut()
        .insert("x-api-key", "k3".parse().expect("a value"));
    let explained = document.explain(&head.into_parts().0);
    let search = &explained[0];
    assert_eq!(search.quota.to_string(), "gcra 250/s");
    assert_eq!(search.origin.to_string(), "an override (launch week)");
    assert!(matches!(
        search.origin,
        QuotaOrigin::Override { until: None, .. }
    ));
    assert_eq!(search.switches, ["50 % of each limit"]);
    assert_eq!(search.by, ["header:x-api-key"]);
    let debug = format!("{search:?}");
    assert!(!debug.contains("k3"), "{debug}");
    let all = explained.last().expect("there are rules");
    assert_eq!(all.outcome.to_string(), "\"search\" is more specific");

    // By the text of an override, without a request.
    let search = document
        .explain_key("search", &["k3"])
        .expect("a key of the rule");
    assert_eq!(search.quota.to_string(), "gcra 250/s");
    let keys = ["k3"];
    for (rule, texts, words) in [
        ("serch", &keys[..], "did you mean"),
        ("words", &keys, "a text for each"),
        ("retired", &[], "has no keys"),
    ] {
        let error = document.explain_key(rule, texts).expect_err("no client");
        says(&error, words);
    }
}
