//! One model, and what it says.

use tollgate::{
    Consistency, MINUTE, MemoryStore, OnStoreError, Quota, RateLimitLayer, SECOND,
    store::LeaseShare,
};
use tollgate_rules::{Format, RuleDocument};

use crate::{DAY, START, bindings};

pub(crate) const TOML: &str = r#"
version = 1

[[rules]]
name = "search-per-key"
description = "What a client may search."
limit = "20/s burst 50"
by = "header:x-api-key"
when = { path = "/search/{*rest}", methods = ["GET"] }
unless = { client_in = ["10.0.0.0/8"] }
cost = 2
plan = "plan"
plans = { gold = "200/s burst 500", internal = "unlimited" }
consistency = { leased = "12.5%" }
on_store_error = "deny"
mode = "enforce"
missing = 401
keep_on_error = true
top_keys = true

[[rules]]
name = "exports-at-once"
limit = "concurrent 3 typically 20s"
by = "client_ip"
wait = "5s"
max_waiting = { per_key = 2, in_all = 50 }

[[rules]]
name = "everything"
limit = "sliding_buckets 1000/min buckets 30"
by = ["client_ip", "method"]
consistency = { eventual = { interval = "50ms", max_unreported = 10 } }
on_store_error = { cap = "fixed_window 10/s" }
mode = "shadow"

[[overrides]]
rule = "search-per-key"
key = "acme-key-1"
limit = "500/s burst 1000"
until = 2026-12-01T00:00:00Z
reason = "launch week"

[[switches]]
rules = ["everything"]
limit = "50%"
until = "2026-11-30T00:00:00+01:00"
"#;

pub(crate) const YAML: &str = r#"
version: 1
rules:
  - name: search-per-key
    description: What a client may search.
    limit: 20/s burst 50
    by: header:x-api-key
    when: { path: "/search/{*rest}", methods: [GET] }
    unless:
      client_in: 10.0.0.0/8
    cost: 2
    plan: plan
    plans:
      gold: 200/s burst 500
      internal: unlimited
    consistency: { leased: 12.5 }
    on_store_error: deny
    mode: enforce
    missing: 401
    keep_on_error: true
    top_keys: true
  - { name: exports-at-once, limit: concurrent 3 typically 20s, by: client_ip, wait: 5s, max_waiting: { per_key: 2, in_all: 50 } }
  - name: everything
    limit: sliding_buckets 1000/min buckets 30
    by: [client_ip, method]
    consistency: { eventual: { interval: 50ms, max_unreported: 10 } }
    on_store_error: { cap: fixed_window 10/s }
    mode: shadow
overrides:
  - rule: search-per-key
    key: acme-key-1
    limit: 500/s burst 1000
    until: 2026-12-01T00:00:00Z
    reason: launch week
switches:
  - rules: everything
    limit: 50%
    until: 2026-11-30T00:00:00+01:00
"#;

pub(crate) const JSON: &str = r#"{
  "version": 1,
  "rules": [
    {
      "name": "search-per-key",
      "limit": "20/s burst 50",
      "by": "header:x-api-key",
      "when": {"path": "/search/{*rest}", "methods": ["GET"]},
      "unless": {"client_in": ["10.0.0.0/8"]},
      "cost": 2,
      "plan": "plan",
      "plans": {"gold": "200/s burst 500", "internal": "unlimited"},
      "consistency": {"leased": "12.5 %"},
      "on_store_error": "deny",
      "missing": 401,
      "keep_on_error": true,
      "top_keys": true
    },
    {
      "name": "exports-at-once",
      "limit": "concurrent 3 typically 20s",
      "by": "client_ip",
      "wait": "5000ms",
      "max_waiting": {"per_key": 2, "in_all": 50}
    },
    {
      "name": "everything",
      "limit": "sliding_buckets 1000/60s buckets 30",
      "by": ["client_ip", "method"],
      "consistency": {"eventual": {"interval": "50ms", "max_unreported": 10}},
      "on_store_error": {"cap": "fixed_window 10/s"},
      "mode": "shadow"
    }
  ],
  "overrides": [{"rule": "search-per-key", "key": "acme-key-1", "limit": "500/s burst 1000", "until": "2026-12-01T00:00:00Z"}],
  "switches": [{"rules": "everything", "limit": "50%", "until": "2026-11-29T23:00:00Z"}]
}"#;

#[test]
fn one_model_has_three_syntaxes() {
    // As they would be in code.
    let code = [
        tollgate_core::Rule::new("search-per-key", Quota::gcra(20, SECOND).burst(50))
            .cost(2)
            .plan("gold", Quota::gcra(200, SECOND).burst(500))
            .plan("internal", Quota::unlimited())
            .consistency(Consistency::Leased {
                share: LeaseShare::permille(125),
            })
            .on_store_error(OnStoreError::Deny)
            .top_keys()
            .subject_type("header"),
        tollgate_core::Rule::new(
            "exports-at-once",
            Quota::concurrent(3).typically(20 * SECOND),
        )
        .wait(5 * SECOND)
        .max_waiting(2, 50)
        .subject_type("ip"),
        tollgate_core::Rule::new(
            "everything",
            Quota::sliding_buckets(500, MINUTE).buckets(30),
        )
        .consistency(Consistency::Eventual {
            interval: std::time::Duration::from_millis(50),
            max_unreported: 10,
        })
        .on_store_error(OnStoreError::Cap(Quota::fixed_window(10, SECOND)))
        .shadow()
        .subject_type("ip+method"),
    ];
    for (text, format) in [
        (TOML, Format::Toml),
        (YAML, Format::Yaml),
        (JSON, Format::Json),
    ] {
        let document = RuleDocument::parse(text, format, &bindings()).expect("valid");
        let rules = document.rules_at(START);
        let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid");
        let limiter = layer.limiter();
        let mut expected = code.to_vec();
        expected[0] = expected[0]
            .clone()
            .plan("override 1", Quota::gcra(500, SECOND).burst(1_000));
        assert_eq!(limiter.rules().given(), expected, "{format}");
        // Later neither the override nor the switch is in force.
        let november_30 = document.expires_after(START).expect("a switch");
        let december_1 = document.expires_after(november_30).expect("an override");
        assert_eq!(december_1 - november_30, DAY + DAY / 24, "{format}");
        assert_eq!(document.expires_after(december_1), None);
        let rules = document.rules_at(december_1);
        let layer = RateLimitLayer::new(MemoryStore::new(), rules).expect("valid");
        let limiter = layer.limiter();
        assert_eq!(limiter.rules().given()[0], code[0], "{format}");
        assert_eq!(
            limiter.rules().given()[2].quota().limit(),
            1_000,
            "{format}"
        );
    }
}
