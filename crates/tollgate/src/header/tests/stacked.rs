//! The fields of stacked layers: each adds to what the ones inside of it have written.

use http::{HeaderMap, HeaderValue};
use sfv::{List, Parser};
use tollgate_core::{HOUR, MINUTE, Quota, Retry, Rule, SECOND, Verdict};

use super::fields::{allow, answer, lines, rules, write_to};
use crate::header::HeaderStyle as S;

#[test]
fn a_rule_in_two_stacked_limiters_is_listed_once_by_the_inner_one() {
    let after = |inner: &[Verdict], outer: &[Verdict]| {
        let mut map = HeaderMap::new();
        // What a service behind a proxy says of itself, with a comma, quotes and more in its names.
        map.append(
            "ratelimit",
            HeaderValue::from_static(r#""a, \"b";r=3;t=1, "c";r=7"#),
        );
        let both = rules([
            Rule::new("both", Quota::fixed_window(10, MINUTE))
                .plan("gold", Quota::fixed_window(50, MINUTE)),
            Rule::new("inner", Quota::fixed_window(10, MINUTE)),
        ]);
        write_to(&mut map, S::DRAFT_11, &both, inner);
        let both = rules([
            Rule::new("outer", Quota::fixed_window(10, MINUTE)),
            Rule::new("both", Quota::fixed_window(10, MINUTE))
                .plan("gold", Quota::fixed_window(50, MINUTE)),
        ]);
        write_to(&mut map, S::DRAFT_11, &both, outer);
        let mut lines = lines(&map);
        let foreign = lines.remove(0);
        assert_eq!(foreign, r#"ratelimit: "a, \"b";r=3;t=1, "c";r=7"#);
        for line in &lines {
            let value = line.split_once(": ").expect("a field").1;
            Parser::new(value).parse::<List>().expect("a list");
        }
        lines
    };
    let gold = |left| answer(0, 1, true, left, MINUTE, Retry::Now);
    // The inner one has taken as well, and stays, with its policy.
    assert_eq!(
        after(
            &[allow(0, 8, MINUTE), allow(1, 9, MINUTE)],
            &[allow(0, 9, MINUTE), allow(1, 9, MINUTE)]
        ),
        [
            r#"ratelimit: "both";r=8;t=60, "inner";r=9;t=60"#,
            r#"ratelimit: "outer";r=9;t=60"#,
            r#"ratelimit-policy: "both";q=10;w=60, "inner";q=10;w=60"#,
            r#"ratelimit-policy: "outer";q=10;w=60"#,
        ]
    );
    // As much for as long.
    assert_eq!(
        after(&[allow(0, 9, MINUTE)], &[allow(1, 9, MINUTE)]),
        [
            r#"ratelimit: "both";r=9;t=60"#,
            r#"ratelimit-policy: "both";q=10;w=60"#,
        ]
    );
    // It stays also where the outer one leaves less.
    assert_eq!(
        after(&[gold(40), allow(1, 9, MINUTE)], &[allow(1, 9, MINUTE)]),
        [
            r#"ratelimit: "both";r=40;t=60, "inner";r=9;t=60"#,
            r#"ratelimit-policy: "both";q=50;w=60, "inner";q=10;w=60"#,
        ]
    );
}

#[test]
fn a_name_with_a_comma_is_not_taken_for_another() {
    let mut map = HeaderMap::new();
    let written = r#""a, both;\"";r=3;t=1, "c";r=9;t=60"#;
    map.append("ratelimit", HeaderValue::from_static(written));
    let rules = rules([Rule::new("both", Quota::fixed_window(10, MINUTE))]);
    write_to(&mut map, S::DRAFT_11, &rules, &[allow(0, 8, MINUTE)]);
    assert_eq!(
        lines(&map),
        [
            format!("ratelimit: {written}"),
            r#"ratelimit: "both";r=8;t=60"#.to_owned(),
            r#"ratelimit-policy: "both";q=10;w=60"#.to_owned(),
        ]
    );
}

#[test]
fn of_stacked_single_fields_those_that_leave_less_stay_together() {
    let style = S::DRAFT_6 | S::DRAFT_7 | S::X_RATELIMIT_DELTA;
    let inner = rules([Rule::new("inner", Quota::fixed_window(10, MINUTE))]);
    let outer = rules([Rule::new("outer", Quota::fixed_window(20, MINUTE))]);
    let after = |inner_left, inner_reset, outer_left, outer_reset| {
        let mut map = HeaderMap::new();
        write_to(
            &mut map,
            style,
            &inner,
            &[allow(0, inner_left, inner_reset)],
        );
        write_to(
            &mut map,
            style,
            &outer,
            &[allow(0, outer_left, outer_reset)],
        );
        let lines = lines(&map);
        assert_eq!(lines.len(), 9, "{lines:?}");
        lines
            .into_iter()
            .filter(|line| !line.contains("policy"))
            .collect::<Vec<_>>()
    };
    let says = |limit: u64, remaining: u64, reset: u64| {
        vec![
            format!("ratelimit: limit={limit}, remaining={remaining}, reset={reset}"),
            format!("ratelimit-limit: {limit}"),
            format!("ratelimit-remaining: {remaining}"),
            format!("ratelimit-reset: {reset}"),
            format!("x-ratelimit-limit: {limit}"),
            format!("x-ratelimit-remaining: {remaining}"),
            format!("x-ratelimit-reset: {reset}"),
        ]
    };
    assert_eq!(after(3, SECOND, 5, MINUTE), says(10, 3, 1));
    assert_eq!(after(5, MINUTE, 3, SECOND), says(20, 3, 1));
    assert_eq!(after(3, SECOND, 3, MINUTE), says(20, 3, 60));
    assert_eq!(after(3, MINUTE, 3, SECOND), says(10, 3, 60));
}

#[test]
fn stacked_policies_with_one_limit_are_listed_once() {
    let mut map = HeaderMap::new();
    for (name, window) in [("inner", MINUTE), ("outer", HOUR)] {
        let rules = rules([
            Rule::new(name, Quota::fixed_window(10, window)),
            Rule::new("wide", Quota::fixed_window(20, window)),
        ]);
        let verdicts: &[_] = if name == "inner" {
            &[allow(0, 9, MINUTE)]
        } else {
            &[allow(0, 9, MINUTE), allow(1, 9, MINUTE)]
        };
        write_to(&mut map, S::DRAFT_7, &rules, verdicts);
    }
    assert_eq!(
        lines(&map)[1..],
        ["ratelimit-policy: 10;w=60", "ratelimit-policy: 20;w=3600"]
    );
}
