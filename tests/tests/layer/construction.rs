//! What cannot work is refused where it is written.

use std::{num::NonZeroU32, time::Duration};

use http::StatusCode;
use tollgate::{
    HeaderStyle, MINUTE, MemoryStore, Missing, Quota, RateLimitLayer, RequestRule, Rule, RuleError,
    RuleErrorKind, SECOND,
    key::{KeyExtractor, KeyExtractorExt, client_ip, constant, cookie, header, path_parameter},
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

#[test]
fn invalid_quota_numbers_are_rejected() {
    use RuleErrorKind::{Cost, Quota as Numbers};
    let quota = |quota| new([all("named", quota)]);
    refused(
        quota(Quota::gcra(0, SECOND)),
        Numbers,
        &["\"named\"", "limit of 0", "at least 1"],
    );
    refused(
        quota(Quota::fixed_window(5, Duration::ZERO)),
        Numbers,
        &["\"named\"", "window of 0", "SECOND"],
    );
    refused(
        quota(Quota::gcra(5, SECOND).burst(0)),
        Numbers,
        &["\"named\"", "burst of 0", "at least 1"],
    );
    let dear = Rule::new("named", Quota::gcra(100, SECOND).burst(5)).cost(6);
    refused(
        new([dear.by(constant("all"))]),
        Cost,
        &["\"named\"", "6 units", "at least 6"],
    );
}

#[test]
fn duplicate_and_invalid_names_are_rejected() {
    let quota = Quota::gcra(5, SECOND);
    refused(
        new([all("twice", quota), all("twice", quota)]),
        RuleErrorKind::RuleSet,
        &["\"twice\"", "name of its own"],
    );
    for (name, word) in [
        ("größe", "ö"),
        ("a b", "' '"),
        ("", "letter"),
        ("1st", "letter"),
    ] {
        refused(new([all(name, quota)]), RuleErrorKind::Name, &[name, word]);
    }
    refused(new([]), RuleErrorKind::RuleSet, &["at least one"]);
}

#[test]
fn misconfigured_extractors_are_rejected_also_when_nested() {
    let cases: [(RequestRule, &[&str]); 9] = [
        (
            by(client_ip()
                .trusted_proxies(["10.0.0.0/33"])
                .x_forwarded_for()),
            &["10.0.0.0/33", "10.0.0.0/8"],
        ),
        (by(client_ip().x_forwarded_for()), &["trusted_proxies"]),
        (
            by(client_ip().single_header("x-real-ip")),
            &["trusted_proxies"],
        ),
        (
            by(client_ip().hops(1).x_forwarded_for().forwarded()),
            &["one header", "forwarded()"],
        ),
        (by(header("x api key")), &["x api key", "x-api-key"]),
        (by(cookie("a=b")), &["a=b", "cookie("]),
        (by(path_parameter("{id}")), &["{id}", "path_parameter("]),
        (by((constant("a"), header("x api key"))), &["x api key"]),
        (
            by(header("x-api-key").or(client_ip().x_forwarded_for())),
            &["trusted_proxies"],
        ),
    ];
    for (rule, words) in cases {
        refused(new([rule]), RuleErrorKind::Key, words);
    }
}

#[test]
fn rules_that_are_all_off_are_rejected() {
    let quota = Quota::gcra(5, SECOND);
    let off = |name: &str| Rule::new(name, quota).off().by(constant("all"));
    refused(
        new([off("one"), off("two")]),
        RuleErrorKind::RuleSet,
        &["\"one\"", "\"two\"", "off()", "shadow()"],
    );
    let messages = tollgate::MessageLimitLayer::new(MemoryStore::new(), [off("one")]);
    let error = messages.expect_err("it would limit nothing");
    assert_eq!(error.kind(), RuleErrorKind::RuleSet);
    assert!(new([off("one"), all("two", quota)]).is_ok());
    assert!(
        new([
            off("one"),
            Rule::new("two", quota).shadow().by(constant("all"))
        ])
        .is_ok()
    );
    // Below the layer a document may switch everything off.
    let rules = tollgate::RuleSet::new([Rule::new("one", quota).off()]).unwrap();
    assert!(tollgate::Limiter::bind(&MemoryStore::new(), rules, NonZeroU32::MIN).is_ok());
}

#[test]
fn invalid_report_intervals_are_rejected() {
    use tollgate::Consistency::Eventual;
    let rule = |interval, max_unreported| {
        let rule = Rule::new("named", Quota::gcra(100, SECOND).burst(50));
        let rule = rule.plan("gold", Quota::gcra(1_000, SECOND).burst(500));
        let eventual = Eventual {
            interval,
            max_unreported,
        };
        new([rule.consistency(eventual).by(constant("all"))])
    };
    let usual = Duration::from_millis(100);
    refused(
        rule(Duration::ZERO, 10),
        RuleErrorKind::Mode,
        &["\"named\"", "interval of 0", "50 to 500 ms"],
    );
    for many in [501, u64::MAX] {
        let text = many.to_string();
        refused(
            rule(usual, many),
            RuleErrorKind::Mode,
            &["\"named\"", &text, "limit of 500"],
        );
    }
    for few in [0, 1, 500] {
        assert!(rule(usual, few).is_ok());
    }
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
fn conflicting_header_styles_are_rejected() {
    for (style, words) in [
        (
            HeaderStyle::DRAFT_11 | HeaderStyle::DRAFT_7,
            ["DRAFT_11", "DRAFT_7"],
        ),
        (
            HeaderStyle::DRAFT_11 | HeaderStyle::DRAFT_6,
            ["DRAFT_11", "DRAFT_6"],
        ),
        (
            HeaderStyle::X_RATELIMIT_EPOCH | HeaderStyle::X_RATELIMIT_DELTA,
            ["X_RATELIMIT_EPOCH", "X_RATELIMIT_DELTA"],
        ),
    ] {
        let layer = new([by(constant("all"))]).unwrap().headers(style);
        refused(layer, RuleErrorKind::RuleSet, &words);
    }
}

#[test]
fn settings_without_effect_on_a_rule_for_handlers_are_rejected() {
    let rule = || Rule::new("named", Quota::gcra(5, SECOND)).by_handler();
    let cases: [(RequestRule, &str); 6] = [
        (rule().cost_by(|_| 2), "cost_by"),
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
fn a_share_that_can_be_counted_is_accepted() {
    let layer = new([all("named", Quota::gcra(7, MINUTE))]).unwrap();
    let many = NonZeroU32::new(1_000).unwrap();
    assert!(layer.instances(many).is_ok());
}

/// The names of the methods of a file that take and give a rule.
fn settings(source: &str) -> Vec<&str> {
    let methods = source.split("    pub fn ").skip(1);
    methods
        .filter_map(|method| {
            let (name, rest) = method.split_once('(')?;
            let signature = rest.split_once('{')?.0;
            let takes = rest.starts_with("mut self") || rest.starts_with("self");
            (takes && signature.contains("-> Self")).then(|| name.split('<').next().unwrap_or(name))
        })
        .collect()
}

#[test]
fn a_rule_of_requests_has_every_setting_of_a_rule() {
    let core = settings(include_str!("../../../crates/tollgate-core/src/rule.rs"));
    assert!(
        core.contains(&"shadow_instead_of") && core.len() >= 8,
        "{core:?}"
    );
    let source = include_str!("../../../crates/tollgate/src/rule.rs");
    let (own, _) = source
        .split_once("impl Deref for Rule")
        .expect("it is a rule of the core");
    let own = settings(own);
    for setting in core {
        assert!(
            own.contains(&setting),
            "tollgate::Rule has no {setting}: pass it on"
        );
    }
}
