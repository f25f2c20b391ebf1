//! One model, and what it says.

use tollgate::{
    Consistency, MINUTE, MemoryStore, OnStoreError, Quota, RateLimitLayer, SECOND,
    store::LeaseShare,
};
use tollgate_rules::{Format, RuleDocument};

use crate::{DAY, START, bindings};

pub(crate) const TOML: &str = include_str!("../files/model.toml");

pub(crate) const YAML: &str = include_str!("../files/model.yaml");

pub(crate) const JSON: &str = include_str!("../files/model.json");

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
