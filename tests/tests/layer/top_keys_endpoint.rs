//! What operators are told about the keys that come most often.

use axum::Router;
use serde_json::{Value, json};
use tollgate::{key::header, observe::TopKeysEndpoint};
use tollgate_tests::app::{behind, field, get, layer, per_minute, send, text};

#[tokio::test]
async fn of_each_rule_that_keeps_them_the_heaviest_keys_are_shown_with_their_numbers() {
    let by_key = || header("x-api-key");
    let limits = layer([
        per_minute("heavy", 6)
            .top_keys()
            .by(by_key())
            .cost_by(|_| 3),
        per_minute("named", 900)
            .label(|_| "Acme".to_owned())
            .by(by_key()),
        per_minute("others", 900).by(by_key()),
    ]);
    let app = behind(limits.clone());
    for key in ["ada", "bob", "ada", "bob", "ada", "bob", "ada"] {
        send(&app, get("/").header("x-api-key", key)).await;
    }
    let admin = Router::new().route("/top-keys", TopKeysEndpoint::new([&limits]).route());
    let response = send(&admin, "/top-keys").await;
    assert_eq!(response.status(), 200);
    assert_eq!(field(&response, "content-type"), "application/json");
    assert_eq!(field(&response, "cache-control"), "no-store");
    let mut body: Value = serde_json::from_str(&text(response).await).unwrap();
    let rules = body["rules"].as_array_mut().unwrap();
    for keys in rules.iter_mut().map(|rule| rule["keys"].as_array_mut()) {
        for key in keys.unwrap() {
            let name = key["key"].take();
            assert!(!name.as_str().unwrap().is_empty());
        }
    }
    let key = |label: Option<&str>, times, denials, cost| {
        json!({
            "key": null,
            "label": label,
            "at_least": times,
            "at_most": times,
            "denials": denials,
            "cost": cost,
        })
    };
    let heavy = [key(None, 4, 2, 12), key(None, 3, 1, 9)];
    let acme = Some("Acme");
    let named = [key(acme, 4, 0, 4), key(acme, 3, 0, 3)];
    assert_eq!(
        body["rules"],
        json!([{ "rule": "heavy", "keys": heavy }, { "rule": "named", "keys": named }])
    );
}
