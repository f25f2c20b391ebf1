//! The fields of one layer, as bytes.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tollgate_core::{
    DAY, MAX_UNITS, MINUTE, Outcome, Quota, Retry, Rule, RuleSet, SECOND, Verdict,
};

use super::fields::{allow, answer, deny, lines, rules, write_to, written};
use crate::header::HeaderStyle as S;

fn burst_and_daily() -> RuleSet {
    rules([
        Rule::new("burst", Quota::fixed_window(100, MINUTE))
            .plan("gold", Quota::fixed_window(500, MINUTE)),
        Rule::new("daily", Quota::fixed_window(1_000, DAY)).plan("free", Quota::unlimited()),
    ])
}

/// The rules of [`burst_and_daily`] after some requests.
fn used() -> [Verdict; 2] {
    [
        allow(0, 42, Duration::from_millis(16_001)),
        allow(1, 901, Duration::from_secs(30_411)),
    ]
}

#[test]
fn each_style_writes_its_fields() {
    for (style, fields) in [
        (
            S::DRAFT_11,
            &[
                r#"ratelimit: "burst";r=42;t=17, "daily";r=901;t=30411"#,
                r#"ratelimit-policy: "burst";q=100;w=60, "daily";q=1000;w=86400"#,
            ][..],
        ),
        // A dictionary of the rule that is closest to its limit.
        (
            S::DRAFT_7,
            &[
                "ratelimit: limit=100, remaining=42, reset=17",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
            ],
        ),
        (
            S::DRAFT_6,
            &[
                "ratelimit-limit: 100",
                "ratelimit-policy: 100;w=60, 1000;w=86400",
                "ratelimit-remaining: 42",
                "ratelimit-reset: 17",
            ],
        ),
        (
            S::X_RATELIMIT_DELTA,
            &[
                "x-ratelimit-limit: 100",
                "x-ratelimit-remaining: 42",
                "x-ratelimit-reset: 17",
            ],
        ),
        // 1 700 000 000.999999 + 16.001, rounded up once.
        (
            S::X_RATELIMIT_EPOCH,
            &[
                "x-ratelimit-limit: 100",
                "x-ratelimit-remaining: 42",
                "x-ratelimit-reset: 1700000018",
            ],
        ),
    ] {
        assert_eq!(written(style, &burst_and_daily(), &used()), fields);
    }
}

#[test]
fn styles_combine_and_none_writes_nothing() {
    let rules = burst_and_daily();
    assert_eq!(written(S::NONE, &rules, &used()), [""; 0]);
    let both = written(S::DRAFT_11 | S::X_RATELIMIT_DELTA, &rules, &used());
    let apart = [
        written(S::DRAFT_11, &rules, &used()),
        written(S::X_RATELIMIT_DELTA, &rules, &used()),
    ];
    assert_eq!(both, apart.concat());
    // One policy list serves both drafts.
    let drafts = written(S::DRAFT_6 | S::DRAFT_7, &rules, &used());
    assert_eq!(drafts.len(), 5);
}

#[test]
fn only_enforced_and_checked_rules_are_reported() {
    let quota = Quota::gcra(10, MINUTE);
    let rules = rules([
        Rule::new("first", quota),
        Rule::new("tried", quota).shadow(),
        Rule::new("last", quota).threshold("soft", Quota::gcra(10, MINUTE).burst(8)),
    ]);
    let verdicts = [
        Verdict::unanswered(0, 0, Outcome::NotDecided),
        deny(1, 0, SECOND, Retry::after_micros(1)),
        Verdict::unanswered(2, 0, Outcome::Failed),
        allow(3, 1, SECOND),
    ];
    for style in [S::DRAFT_11, S::DRAFT_7, S::DRAFT_6, S::X_RATELIMIT_DELTA] {
        assert_eq!(written(style, &rules, &verdicts), [""; 0]);
    }
    assert_eq!(
        written(
            S::DRAFT_11,
            &rules,
            &[verdicts[0], verdicts[1], allow(2, 3, SECOND)]
        ),
        [
            r#"ratelimit: "last";r=3;t=1"#,
            r#"ratelimit-policy: "last";q=10;w=60"#
        ]
    );
}

#[test]
fn a_denial_lasts_until_the_same_request_passes() {
    let rules = rules([Rule::new(
        "units",
        Quota::token_bucket(100).refill(1, SECOND),
    )]);
    let fields = |verdict| written(S::DRAFT_11, &rules, &[verdict]).swap_remove(0);
    let full_in = Duration::from_secs(80);
    for (verdict, expected) in [
        // Empty; dear with 20 left; dearer than the bucket.
        (deny(0, 0, full_in, Retry::after_micros(900_001)), "r=0;t=1"),
        (
            deny(0, 20, full_in, Retry::after_micros(9_000_001)),
            "r=20;t=10",
        ),
        (deny(0, 20, full_in, Retry::Never), "r=20;t=80"),
        // A full bucket: `t` is not 0.
        (allow(0, 100, Duration::ZERO), "r=100;t=1"),
    ] {
        assert_eq!(fields(verdict), format!(r#"ratelimit: "units";{expected}"#));
    }
}

#[test]
fn with_less_left_than_the_cost_the_reset_is_when_it_fits_again() {
    let rules = rules([
        Rule::new("units", Quota::token_bucket(100).refill(1, SECOND)),
        Rule::new("daily", Quota::fixed_window(1_000, DAY)),
    ]);
    let full_in = Duration::from_secs(98);
    let again = |left, wait| answer(0, 0, true, left, full_in, Retry::after_micros(wait));
    let daily = allow(1, 40, Duration::from_secs(30_411));
    for (style, left, wait, line, expected) in [
        // Each rule has its own time.
        (
            S::DRAFT_11,
            2,
            2_900_001,
            0,
            r#"ratelimit: "units";r=2;t=3, "daily";r=40;t=30411"#,
        ),
        (
            S::DRAFT_7,
            0,
            900_000,
            0,
            "ratelimit: limit=100, remaining=0, reset=1",
        ),
        (S::DRAFT_6, 0, 2_900_001, 3, "ratelimit-reset: 3"),
        (
            S::X_RATELIMIT_DELTA,
            0,
            2_900_001,
            2,
            "x-ratelimit-reset: 3",
        ),
        // 1 700 000 000.999999 + 2.9, rounded up once.
        (
            S::X_RATELIMIT_EPOCH,
            0,
            2_900_000,
            2,
            "x-ratelimit-reset: 1700000004",
        ),
    ] {
        assert_eq!(
            written(style, &rules, &[again(left, wait), daily])[line],
            expected
        );
    }
}

#[test]
fn a_rule_with_unknown_remaining_units_is_not_reported() {
    let rules = burst_and_daily();
    let known = deny(0, 5, MINUTE, Retry::after_micros(7_000_000));
    let unknown = known.with_remaining_unknown();
    for style in [S::DRAFT_11, S::DRAFT_7, S::DRAFT_6, S::X_RATELIMIT_DELTA] {
        assert_ne!(written(style, &rules, &[known]), [""; 0]);
        assert_eq!(written(style, &rules, &[unknown]), [""; 0]);
    }
    assert_eq!(
        written(S::DRAFT_11, &rules, &[unknown, used()[1]])[0],
        r#"ratelimit: "daily";r=901;t=30411"#
    );
}

#[test]
fn windows_are_rounded_up_and_left_out_under_a_second() {
    let policies = |style, quota| {
        let rules = rules([Rule::new("p", quota)]);
        written(style, &rules, &[allow(0, 1, SECOND)])
            .into_iter()
            .find_map(|line| line.strip_prefix("ratelimit-policy: ").map(str::to_owned))
            .expect("a policy")
    };
    let short = Quota::fixed_window(10, Duration::from_millis(100));
    let uneven = Quota::fixed_window(20, Duration::from_millis(2_500));
    // A bucket's window is the time from empty to full.
    let bucket = Quota::token_bucket(20).refill(10, SECOND);
    let largest = Quota::fixed_window(MAX_UNITS, SECOND);
    for (style, quota, expected) in [
        (S::DRAFT_11, short, r#""p";q=10"#),
        (S::DRAFT_7, short, "10;w=1"),
        (S::DRAFT_11, uneven, r#""p";q=20;w=3"#),
        (S::DRAFT_6, uneven, "20;w=3"),
        (S::DRAFT_11, bucket, r#""p";q=20;w=2"#),
        (S::DRAFT_11, largest, r#""p";q=999999999999999;w=1"#),
    ] {
        assert_eq!(policies(style, quota), expected);
    }
}

#[test]
fn fields_for_one_rule_report_the_closest_to_its_limit() {
    let quota = |limit| Quota::fixed_window(limit, MINUTE);
    let rules = rules([
        Rule::new("a", quota(10)),
        Rule::new("b", quota(20)),
        Rule::new("c", quota(30)),
    ]);
    let speaks = |verdicts: &[Verdict]| written(S::X_RATELIMIT_DELTA, &rules, verdicts).join(" ");
    let x = |limit, remaining, reset| {
        format!(
            "x-ratelimit-limit: {limit} x-ratelimit-remaining: {remaining} x-ratelimit-reset: {reset}"
        )
    };
    // The fewest left; among equals the longest reset; a denial before either.
    assert_eq!(
        speaks(&[allow(0, 9, SECOND), allow(1, 8, SECOND)]),
        x(20, 8, 1)
    );
    assert_eq!(
        speaks(&[allow(0, 8, SECOND), allow(1, 8, MINUTE)]),
        x(20, 8, 60)
    );
    let denied = deny(2, 15, MINUTE, Retry::after_micros(2_000_000));
    assert_eq!(speaks(&[allow(0, 0, SECOND), denied]), x(30, 15, 2));
}

#[test]
fn an_invalid_value_is_replaced() {
    let rules = rules([Rule::new("a", Quota::fixed_window(10, MINUTE))]);
    let mut map = HeaderMap::new();
    for name in [
        "ratelimit",
        "x-ratelimit-remaining",
        "x-ratelimit-remaining",
    ] {
        map.append(name, HeaderValue::from_bytes(b"caf\xe9").expect("a value"));
    }
    write_to(
        &mut map,
        S::DRAFT_7 | S::X_RATELIMIT_DELTA,
        &rules,
        &[allow(0, 4, MINUTE)],
    );
    assert_eq!(
        lines(&map),
        [
            "ratelimit: limit=10, remaining=4, reset=60",
            "ratelimit-policy: 10;w=60",
            "x-ratelimit-limit: 10",
            "x-ratelimit-remaining: 4",
            "x-ratelimit-reset: 60",
        ]
    );
}
