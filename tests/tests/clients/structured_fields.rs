//! The layer's header fields, as two parsers of structured fields read them: the crate `sfv`, and Python's `http_sf`.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use axum::body::Body;
use http::{HeaderMap, Request, Response};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use serde_json::{Map, Value, json};
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};
use tollgate::{Admission, Decision, Quota, RateLimitLayer, header::HeaderStyle};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    program::python,
    random_rules::{Drawn, request_rule, rules},
};
use tollgate_tests::app::still;

/// Rule sets that are tried, each with two requests in two styles.
const CASES: usize = 150;

/// Sends a request of this cost through the layer: the fields of its response, and what was decided.
async fn send(limits: &RateLimitLayer, cost: u64) -> (HeaderMap, Decision) {
    let inner = service_fn(|request: Request<Body>| async move {
        let mut response = Response::new(Body::empty());
        let admission = request.extensions().get::<Admission>();
        let decision = admission.expect("it is attached").decision().clone();
        response.extensions_mut().insert(decision);
        Ok::<_, Infallible>(response)
    });
    let request = Request::builder().header("x-cost", cost);
    let request = request.body(Body::empty()).unwrap();
    let response = limits.layer(inner).oneshot(request).await.unwrap();
    let decision = response.extensions().get::<Decision>().cloned();
    (
        response.headers().clone(),
        decision.expect("it is attached"),
    )
}

/// One value, with its type as Python calls it.
fn bare(value: &BareItem) -> (&'static str, Value) {
    match value {
        BareItem::Integer(number) => ("int", json!(i64::from(*number))),
        BareItem::String(text) => ("str", json!(text.as_str())),
        other => panic!("neither a number nor a string: {other:?}"),
    }
}

fn item(entry: &ListEntry) -> Value {
    let ListEntry::Item(item) = entry else {
        panic!("an inner list: {entry:?}")
    };
    let (kind, value) = bare(&item.bare_item);
    json!([kind, value, parameters(&item.params)])
}

fn parameters(parameters: &Parameters) -> Map<String, Value> {
    let parameters = parameters.iter().map(|(name, value)| {
        let (kind, value) = bare(value);
        (name.to_string(), json!([kind, value]))
    });
    parameters.collect()
}

/// As `sfv` reads a field: in the form that the Python script prints.
fn parsed(kind: &str, text: &str) -> Value {
    if kind == "list" {
        let list: List = Parser::new(text).parse().expect(text);
        return list.iter().map(item).collect();
    }
    let dictionary: Dictionary = Parser::new(text).parse().expect(text);
    let members = dictionary.iter();
    let members: Map<_, _> = members
        .map(|(name, entry)| (name.to_string(), item(entry)))
        .collect();
    members.into()
}

/// The quotas that speak, with their rules' names and what is left of them.
fn speaking<'a>(
    rules: &'a [Drawn],
    decision: &'a Decision,
) -> impl Iterator<Item = (&'a str, &'a Quota, u64)> {
    let verdicts = decision.verdicts().iter();
    let verdicts = verdicts.filter(|verdict| verdict.has_numbers());
    verdicts.map(|verdict| {
        let (name, quota, plan, _) = &rules[verdict.rule()];
        let quota = match verdict.plan() {
            0 => quota,
            _ => plan.as_ref().expect("it was chosen"),
        };
        (&**name, quota, verdict.remaining())
    })
}

fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// Fields that were written, with what they hold.
#[derive(Default)]
struct Written {
    fields: Vec<(&'static str, String)>,
    read: Vec<Value>,
}

impl Written {
    /// Adds a field, and gives what `sfv` reads in it.
    fn add(&mut self, kind: &'static str, headers: &HeaderMap, name: &str) -> Value {
        let value = headers.get(name).expect(name).to_str().expect("ASCII");
        let read = parsed(kind, value);
        self.fields.push((kind, value.to_owned()));
        self.read.push(read.clone());
        read
    }
}

/// The members of `read` say exactly this.
fn assert_draft_11(
    written: &mut Written,
    headers: &HeaderMap,
    rules: &[Drawn],
    reported: &Decision,
) {
    let policies = speaking(rules, reported).map(|(name, quota, _)| {
        // All of these rules have a cost.
        let mut numbers = json!({ "q": ["int", quota.limit()], "qu": ["str", "units"] });
        if quota.window().as_secs() > 0 {
            numbers["w"] = json!(["int", seconds(quota.window())]);
        }
        json!(["str", name, numbers])
    });
    let policies: Value = policies.collect();
    assert_eq!(written.add("list", headers, "ratelimit-policy"), policies);
    let limits = written.add("list", headers, "ratelimit");
    let limits = limits.as_array().expect("a list");
    assert_eq!(limits.len(), speaking(rules, reported).count());
    for (limit, (name, _, remaining)) in limits.iter().zip(speaking(rules, reported)) {
        assert_eq!(limit[1], name);
        assert_eq!(limit[2]["r"], json!(["int", remaining]));
        let lasts = limit[2]["t"][1].as_u64().expect("a number");
        assert!(lasts >= 1, "{limit}");
    }
    if let Some(wait) = reported.retry_after() {
        let retry_after = headers["retry-after"].to_str().unwrap();
        assert_eq!(retry_after.parse(), Ok(seconds(wait).max(1)));
    }
}

fn assert_draft_7(
    written: &mut Written,
    headers: &HeaderMap,
    rules: &[Drawn],
    reported: &Decision,
) {
    let limit = written.add("dictionary", headers, "ratelimit");
    let names: Vec<_> = limit.as_object().expect("a dictionary").keys().collect();
    assert_eq!(names, ["limit", "remaining", "reset"]);
    let output = (&limit["limit"][1], &limit["remaining"][1]);
    let one_of = speaking(rules, reported)
        .any(|(_, quota, remaining)| output == (&json!(quota.limit()), &json!(remaining)));
    assert!(one_of, "{limit}");
    assert!(limit["reset"][1].as_u64() >= Some(1), "{limit}");

    let policies = written.add("list", headers, "ratelimit-policy");
    let policies = policies.as_array().expect("a list").iter();
    let policies: Vec<_> = policies
        .map(|policy| (policy[1].as_u64(), policy[2]["w"][1].as_u64()))
        .collect();
    // Of two with one limit the one with the longer window.
    let limits: BTreeSet<_> = speaking(rules, reported)
        .map(|(_, quota, _)| quota.limit())
        .collect();
    assert_eq!(policies.len(), limits.len(), "{policies:?}");
    for limit in limits {
        let same = speaking(rules, reported).filter(|(_, quota, _)| quota.limit() == limit);
        let longest = same
            .map(|(_, quota, _)| seconds(quota.window()).max(1))
            .max();
        assert!(policies.contains(&(Some(limit), longest)), "{policies:?}");
    }
}

#[tokio::test]
async fn two_parsers_read_the_same_values() {
    let mut runner = TestRunner::deterministic();
    let mut written = Written::default();
    for _ in 0..CASES {
        let rules = rules().new_tree(&mut runner).expect("rules").current();
        let dear = (1..1_u64 << 40)
            .new_tree(&mut runner)
            .expect("a cost")
            .current();
        for style in [HeaderStyle::DRAFT_11, HeaderStyle::DRAFT_7] {
            let limits = RateLimitLayer::new(still().0, rules.iter().map(request_rule));
            let limits = limits
                .expect("valid rules")
                .headers(style)
                .unwrap()
                .attach_decision();
            for cost in [1, dear] {
                let (headers, decision) = send(&limits, cost).await;
                if style == HeaderStyle::DRAFT_11 {
                    assert_draft_11(&mut written, &headers, &rules, &decision);
                } else {
                    assert_draft_7(&mut written, &headers, &rules, &decision);
                }
            }
        }
    }
    let Value::Array(python) = python("structured_fields.py", &json!(written.fields)).await else {
        panic!("not a list")
    };
    assert_eq!(python.len(), written.fields.len());
    for ((field, rust), python) in written.fields.iter().zip(&written.read).zip(&python) {
        assert_eq!(rust, python, "{field:?}");
    }
}
