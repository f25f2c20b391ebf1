//! Requests with an id: a client that retries is counted once, and no id is a way around the rule.

use http::{Method, request};
use tollgate::{
    MINUTE, MemoryStore, RateLimitLayer, RequestRule, error::RuleErrorKind, key::header,
};
use tollgate_tests::app::{app_on, behind, field, get, layer, per_minute, send, status, stores};

const ID: &str = "idempotency-key";

fn rules() -> [RequestRule; 2] {
    let orders = per_minute("orders", 2).by(header("x-client"));
    let orders = orders.idempotent(header(ID), 10 * MINUTE);
    [orders, per_minute("all", 9).by(header("x-client"))]
}

fn order(client: &str, id: &str) -> request::Builder {
    get("/orders").header("x-client", client).header(ID, id)
}

#[tokio::test]
async fn a_client_that_retries_is_counted_once() {
    for store in stores() {
        let app = app_on(store, rules());
        for left in [1, 1, 1, 1, 0] {
            let response = send(&app, order("ann", "1")).await;
            assert_eq!(response.status(), 200);
            let policies = field(&response, "ratelimit");
            assert!(
                policies.contains(&format!("\"orders\";r={left}")),
                "{policies}"
            );
        }
        assert_eq!(status(&app, order("ann", "1")).await, 429);
        assert_eq!(status(&app, order("ann", "2")).await, 429);
        // The other rule counts each.
        assert_eq!(status(&app, order("bob", "1")).await, 200);
    }
}

#[tokio::test]
async fn what_is_no_id_or_another_request_counts() {
    let long = "x".repeat(256);
    let twice = order("ann", "1").header(ID, "1");
    let others = [
        ("another client", order("bob", "1")),
        ("no id", get("/orders").header("x-client", "ann")),
        ("an empty one", order("ann", " ")),
        ("one that is too long", order("ann", &long)),
        ("one that is sent twice", twice),
        (
            "another path",
            get("/order").header("x-client", "ann").header(ID, "1"),
        ),
        (
            "another query",
            get("/orders?n=9").header("x-client", "ann").header(ID, "1"),
        ),
        ("another method", order("ann", "1").method(Method::POST)),
    ];
    for (what, other) in others {
        let limits = layer(rules());
        let app = behind(limits.clone());
        assert_eq!(status(&app, order("ann", "1")).await, 200);
        assert_eq!(status(&app, other).await, 200, "{what}");
        let counts = &limits.limiter().counts()[0];
        assert_eq!(
            (counts.decided("allowed"), counts.decided("repeated")),
            (2, 0),
            "{what}"
        );
    }
}

#[test]
fn a_layer_has_to_know_where_an_id_is() {
    let rule = || per_minute("orders", 2);
    for (rule, says) in [
        (
            rule().idempotent(MINUTE).by(header("x-client")),
            "behind the key",
        ),
        (
            rule()
                .by(header("x-client"))
                .idempotent(header("a b"), MINUTE),
            "\"a b\" is not the name of a header",
        ),
    ] {
        let wrong = RateLimitLayer::new(MemoryStore::new(), [rule]).expect_err(says);
        assert_eq!(wrong.kind(), RuleErrorKind::Idempotency);
        assert!(wrong.to_string().contains(says), "{wrong}");
    }
}
