//! What cannot work is refused where it is written.

use http::StatusCode;
use tollgate::{
    Block, Key, MemoryStore, Missing, OnStoreError, Quota, RateLimitLayer, RequestRule, Rule,
    RuleError, SECOND,
    error::RuleErrorKind,
    header::HeaderStyle,
    key::{KeyExtractor, client_ip, constant, header, path_parameter},
};

fn new(rules: impl IntoIterator<Item = RequestRule>) -> Result<RateLimitLayer, RuleError> {
    RateLimitLayer::new(MemoryStore::new(), rules)
}

fn all(name: &str, quota: Quota) -> RequestRule {
    Rule::new(name, quota).by(constant("all"))
}

fn by(key: impl KeyExtractor) -> RequestRule {
    Rule::new("named", Quota::gcra(5, SECOND)).by(key)
}

fn refused(layer: Result<RateLimitLayer, RuleError>, kind: RuleErrorKind, words: &[&str]) {
    let error = layer.expect_err("it cannot work");
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} lacks {word:?}");
    }
}

/// Where a mistake is found there are tests of each. Here: none is lost on its way to the one who builds the layer.
#[test]
fn a_mistake_in_a_quota_a_name_a_key_or_the_fields_is_the_error_of_the_layer() {
    use RuleErrorKind as K;
    let quota = Quota::gcra(100, SECOND).burst(5);
    let nested = (constant("a"), client_ip().x_forwarded_for());
    let cases: [(K, Vec<RequestRule>, &[&str]); 5] = [
        (
            K::Quota,
            vec![all("named", quota.burst(0))],
            &["\"named\"", "burst of 0", "at least 1"],
        ),
        (K::RuleSet, vec![], &["at least one"]),
        (
            K::Key,
            vec![by(header("x api key"))],
            &["x api key", "x-api-key"],
        ),
        (
            K::Key,
            vec![by(path_parameter("{id}"))],
            &["{id}", "path_parameter("],
        ),
        (K::Key, vec![by(nested)], &["trusted_proxies"]),
    ];
    for (kind, rules, words) in cases {
        refused(new(rules), kind, words);
    }
    let both = HeaderStyle::DRAFT_11 | HeaderStyle::DRAFT_7;
    let layer = || new([by(constant("all"))]).unwrap();
    refused(layer().headers(both), K::RuleSet, &["DRAFT_11", "DRAFT_7"]);
    refused(layer().retry_after_jitter(101), K::RuleSet, &["101 %"]);
}

#[test]
fn a_success_status_for_denials_is_rejected() {
    for status in [StatusCode::OK, StatusCode::FOUND, StatusCode::CONTINUE] {
        let rule = by(constant("all")).when_missing(Missing::Reject(status));
        let code = status.as_str();
        refused(
            new([rule]),
            RuleErrorKind::Key,
            &["\"named\"", code, "400 to 599"],
        );
        let layer = new([by(constant("all"))]).unwrap().denied_status(status);
        refused(layer, RuleErrorKind::RuleSet, &[code, "429"]);
    }
    let odd = StatusCode::from_u16(700).unwrap();
    let layer = new([by(constant("all"))]).unwrap().denied_status(odd);
    refused(layer, RuleErrorKind::RuleSet, &["700", "400 to 599"]);
}

#[test]
fn settings_without_effect_on_a_rule_for_handlers_are_rejected() {
    let rule = || Rule::new("named", Quota::gcra(5, SECOND)).by_handler();
    let unauthorized = Missing::Reject(StatusCode::UNAUTHORIZED);
    let cases: [(RequestRule, &str); 15] = [
        (rule().cost_by(|_| 2), "cost_by"),
        (rule().quota_by(|_| None), "quota_by"),
        (rule().when_key(|_| true), "when_key"),
        (rule().plan_for_key(Key::of("ann"), "gold"), "plan_for_key"),
        (rule().plan_by_key(|_| None), "plan_by_key"),
        (rule().when_missing(unauthorized), "when_missing"),
        (
            rule().on_store_error_when(|_| true, OnStoreError::Deny),
            "on_store_error_when",
        ),
        (rule().exact_when(|_| true), "exact_when"),
        (rule().count_if(|_| true), "count_if"),
        (rule().cost_by_response(|_| None), "cost_by_response"),
        (rule().plan_by(|_| Some("gold")), "plan_by"),
        (rule().when(|_| true), "when"),
        (rule().exempt(|_| true), "exempt"),
        (rule().when_missing(Missing::Skip), "when_missing"),
        (rule().keep_on_error(), "keep_on_error"),
    ];
    for (rule, call) in cases {
        refused(
            new([rule]),
            RuleErrorKind::Key,
            &["\"named\"", call, "by_handler"],
        );
    }
    assert!(new([rule()]).is_ok());
}

#[test]
fn a_message_holds_no_slot_and_has_no_response() {
    let slots = all("named", Quota::concurrent(1));
    let settled = by(constant("all")).count_if(|response| response.is_failure());
    let blocks = Block::after(1).count_settled();
    let blocks = by(constant("all")).block(blocks);
    for rule in [slots, settled, blocks] {
        let layer = tollgate::message::MessageLimitLayer::new(MemoryStore::new(), [rule]);
        let error = layer.expect_err("it is refused").to_string();
        assert!(
            error.contains("put the rule into a RateLimitLayer"),
            "{error}"
        );
    }
}
