//! One decision about several heads, as a server for proxies makes it.

use std::time::Duration;

use http::{StatusCode, request::Parts};
use tokio::time::Instant;
use tollgate::{
    MINUTE, MemoryStore, Missing, OnStoreError, Quota, RateLimitLayer, Rule,
    clock::ManualClock,
    decision::Reason,
    key::{header, look_up},
    siblings::RequestPart,
};
use tollgate_conformance::RemoteStore;

fn rule(name: &'static str, limit: u64, by: &'static str) -> tollgate::RequestRule {
    Rule::new(name, Quota::fixed_window(limit, MINUTE)).by(header(by))
}

fn head(fields: &[(&str, &str)]) -> Parts {
    let request = http::Request::get("/");
    let request = fields.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    request.body(()).expect("it is a request").into_parts().0
}

fn part(fields: &[(&'static str, &'static str)], hits: u64) -> RequestPart {
    RequestPart {
        head: head(fields),
        hits,
        is_fragment: false,
    }
}

/// What is left in each verdict of a part.
fn left(decision: &tollgate::siblings::PartsDecision, part: usize) -> Vec<u64> {
    let verdicts = decision.verdicts_of(part);
    verdicts
        .map(tollgate::decision::Verdict::remaining)
        .collect()
}

#[tokio::test]
async fn the_same_rule_and_key_in_two_parts_count_once_at_the_larger_cost() {
    let layer = RateLimitLayer::new(MemoryStore::new(), [rule("per-key", 10, "x-key")]).unwrap();
    let part = |key, hits| part(&[("x-key", key)], hits);
    let decided = layer
        .decide([part("a", 2), part("b", 1), part("a", 3)], None)
        .await;
    assert_eq!([0, 1, 2].map(|it| left(&decided, it)), [[7], [9], [7]]);
    // The field names the rule once, as it stands for the client that has least.
    let field = decided.into_response().headers()["ratelimit"].clone();
    assert!(
        field.to_str().unwrap().starts_with("\"per-key\";r=7;t="),
        "{field:?}"
    );
}

#[tokio::test]
async fn what_only_looks_takes_nothing_and_is_denied_where_one_does_not_fit() {
    let clock = ManualClock::new(1_700_000_000_000_000);
    let store = MemoryStore::builder().clock(&clock).build();
    let layer = RateLimitLayer::new(store, [rule("per-key", 1, "x-key")]).unwrap();
    let part = |key, hits| [part(&[("x-key", key)], hits)];
    for _ in 0..3 {
        assert!(
            layer
                .decide(part("a", 0), None)
                .await
                .decision()
                .is_allowed()
        );
    }
    assert!(
        layer
            .decide(part("a", 1), None)
            .await
            .decision()
            .is_allowed()
    );
    let [look, other] = [part("a", 0), part("b", 1)];
    let both = [look[0].clone(), other[0].clone()];
    let denied = layer.decide(both, None).await;
    assert!(!denied.decision().is_allowed());
    assert_eq!(denied.into_response().status(), 429);
    // Nothing was taken from the other one.
    assert!(
        layer
            .decide(part("b", 1), None)
            .await
            .decision()
            .is_allowed()
    );
}

#[tokio::test]
async fn a_rule_does_not_apply_to_a_fragment_without_its_key() {
    let rules = [
        rule("per-key", 1, "x-key"),
        rule("per-tenant", 9, "x-tenant"),
    ];
    let layer = RateLimitLayer::new(MemoryStore::new(), rules).unwrap();
    let fragment = RequestPart {
        is_fragment: true,
        ..part(&[("x-tenant", "acme")], 1)
    };
    for _ in 0..3 {
        let decided = layer.decide([fragment.clone()], None).await;
        assert!(decided.decision().is_allowed());
        assert_eq!(left(&decided, 0).len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_each_rule_answers_as_it_does_for_a_store_failure() {
    for (answer, is_allowed) in [(OnStoreError::Allow, true), (OnStoreError::Deny, false)] {
        let store = RemoteStore::new(MemoryStore::new())
            .delay(Duration::from_millis(30))
            .deadline(Duration::from_millis(50));
        let rule = Rule::new("per-key", Quota::fixed_window(9, MINUTE)).on_store_error(answer);
        let layer = RateLimitLayer::new(store, [rule.by(header("x-key"))]).unwrap();
        let part = [part(&[("x-key", "a")], 1)];
        let began = Instant::now();
        let decided = layer
            .decide(part.clone(), Some(began + Duration::from_millis(7)))
            .await;
        assert_eq!(decided.decision().is_allowed(), is_allowed);
        assert_eq!(began.elapsed().as_millis(), 7);
        // In time, the store decides.
        let decided = layer
            .decide(part, Some(Instant::now() + Duration::from_millis(40)))
            .await;
        assert!(!decided.decision().is_degraded() && decided.decision().is_allowed());
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_no_key_is_denied_for_that_or_for_a_look_up_that_failed() {
    let never = look_up(|_| std::future::pending::<Option<String>>());
    let rule = Rule::new("per-key", Quota::fixed_window(9, MINUTE));
    let failed = rule.clone().on_store_error(OnStoreError::Deny).by(never);
    let missing = rule.by(header("x-key"));
    for (rule, reason) in [(missing, Reason::NoKey), (failed, Reason::StoreFailed)] {
        let rule = rule.when_missing(Missing::Reject(StatusCode::UNAUTHORIZED));
        let layer = RateLimitLayer::new(MemoryStore::new(), [rule]).unwrap();
        let decided = layer.decide([part(&[], 1)], None).await;
        assert_eq!(decided.decision().reason(), Some(reason));
    }
}
