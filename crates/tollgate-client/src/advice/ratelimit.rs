//! `RateLimit` (draft-ietf-httpapi-ratelimit-headers): from -08 to -11 a list of named budgets, in -07 a dictionary.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, FieldType, Item, List, ListEntry, Parser};

use crate::advice::advised_budget::{AdvisedBudget, Budgets};

pub(crate) fn read(headers: &HeaderMap) -> Budgets {
    let mut budgets = list(headers);
    if budgets.is_empty() {
        budgets.extend(dictionary(headers));
    }
    budgets
}

/// The budgets of a list of them. A member without a name, `r` or a window is ignored.
fn list(headers: &HeaderMap) -> Budgets {
    let budgets = field::<List>(headers, "ratelimit").unwrap_or_default();
    let policies = field::<List>(headers, "ratelimit-policy").unwrap_or_default();
    items(&budgets)
        .filter_map(|item| budget(item, &policies))
        .collect()
}

fn budget(item: &Item, policies: &List) -> Option<AdvisedBudget> {
    let name = text(&item.bare_item)?;
    let left = integer(item.params.get("r")?)?;
    let policy = items(policies)
        .take(64)
        .find(|policy| text(&policy.bare_item) == Some(name));
    // Bytes or concurrent calls cannot be converted to requests, unless none are left.
    if left > 0 && policy.is_some_and(|policy| !counts_requests(policy)) {
        return None;
    }
    let in_field = |name| item.params.get(name).and_then(integer);
    let in_policy = |name| policy?.params.get(name).and_then(integer);
    // Whole seconds are rounded up; tollgate's servers add the milliseconds.
    let reset = match in_field("tollgate-ms") {
        Some(millis) => Duration::from_millis(millis),
        None => Duration::from_secs(in_field("t").or_else(|| in_policy("w"))?),
    };
    let partition = item.params.get("pk").and_then(BareItem::as_byte_sequence);
    Some(AdvisedBudget {
        name: AdvisedBudget::hash_of((name, partition)),
        left,
        reset,
    })
}

/// The draft's text has `requests`, its registry `request`.
fn counts_requests(policy: &Item) -> bool {
    policy
        .params
        .get("qu")
        .is_none_or(|unit| text(unit).is_some_and(|unit| matches!(unit, "requests" | "request")))
}

fn items(list: &List) -> impl Iterator<Item = &Item> {
    list.iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    })
}

/// The tightest budget: `limit=100, remaining=50, reset=17`.
fn dictionary(headers: &HeaderMap) -> Option<AdvisedBudget> {
    let dictionary = field::<Dictionary>(headers, "ratelimit")?;
    let member = |key: &str| match dictionary.get(key)? {
        ListEntry::Item(item) => integer(&item.bare_item),
        ListEntry::InnerList(_) => None,
    };
    Some(AdvisedBudget {
        name: AdvisedBudget::hash_of("dictionary"),
        left: member("remaining")?,
        reset: Duration::from_secs(member("reset")?),
    })
}

/// A field of this type, from all of its lines. Any error discards all of it.
fn field<T: FieldType>(headers: &HeaderMap, name: &str) -> Option<T> {
    let lines: Vec<_> = headers
        .get_all(name)
        .iter()
        .map(|line| line.as_bytes())
        .collect();
    if lines.is_empty() {
        return None;
    }
    Parser::new(&lines.join(&b", "[..])).parse().ok()
}

/// An integer of at least 0.
fn integer(item: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(item.as_integer()?)).ok()
}

/// The text of a string or a token: a later draft may turn one into the other.
fn text(item: &BareItem) -> Option<&str> {
    let token = || Some(item.as_token()?.as_str());
    item.as_string()
        .map(|string| string.as_str())
        .or_else(token)
}

#[cfg(test)]
mod list_tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn of(fields: &[(&'static str, &str)]) -> Vec<(u64, u64)> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        list(&headers)
            .iter()
            .map(|budget| (budget.left, budget.reset.as_secs()))
            .collect()
    }

    #[test]
    fn every_member_of_every_line_is_a_budget() {
        assert_eq!(of(&[("ratelimit", r#""a";r=0;t=17"#)]), [(0, 17)]);
        assert_eq!(
            of(&[("ratelimit", r#""a"; r=42; t=17, "b";r=901;t=30411"#)]),
            [(42, 17), (901, 30_411)]
        );
        let lines = [
            ("ratelimit", r#""a";r=1;t=1"#),
            ("ratelimit", r#""b";r=2;t=2"#),
        ];
        assert_eq!(of(&lines), [(1, 1), (2, 2)]);
        assert_eq!(of(&[("ratelimit", "a;r=1;t=2")]), [(1, 2)]);
        assert_eq!(of(&[("ratelimit", r#""a";r=1;r=2;t=3"#)]), [(2, 3)]);
    }

    #[test]
    fn a_window_that_is_missing_is_that_of_the_policy() {
        let policy = ("ratelimit-policy", r#""b";q=5;w=9, "a";q=10;w=60"#);
        assert_eq!(of(&[("ratelimit", r#""a";r=3"#), policy]), [(3, 60)]);
        assert_eq!(of(&[("ratelimit", r#""a";r=3;t=2"#), policy]), [(3, 2)]);
        assert_eq!(of(&[("ratelimit", r#""c";r=3"#), policy]), []);
        assert_eq!(of(&[("ratelimit", r#""a";r=0"#)]), []);
    }

    #[test]
    fn units_other_than_requests_count_only_where_none_is_left() {
        let bytes = (
            "ratelimit-policy",
            r#""a";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:"#,
        );
        assert_eq!(of(&[("ratelimit", r#""a";r=5;t=8"#), bytes]), []);
        assert_eq!(of(&[("ratelimit", r#""a";r=0;t=8"#), bytes]), [(0, 8)]);
        for unit in ["\"requests\"", "\"request\"", "requests"] {
            let policy = format!(r#""a";q=5;qu={unit}"#);
            let fields = [
                ("ratelimit", r#""a";r=5;t=8"#),
                ("ratelimit-policy", &*policy),
            ];
            assert_eq!(of(&fields), [(5, 8)], "{unit}");
        }
    }

    #[test]
    fn a_budget_is_known_by_its_name_and_its_partition() {
        let field = r#""a";r=1;t=1, "b";r=1;t=1, "a";r=1;t=1;pk=:AAAA:, "a";r=1;t=1;pk=:AAAB:, "a";r=9;t=1"#;
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("ratelimit"),
            HeaderValue::from_static(field),
        )]);
        let names: Vec<_> = list(&headers).iter().map(|budget| budget.name).collect();
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!((names.len(), different.len()), (5, 4));
        assert_eq!(names[0], names[4]);
    }

    #[test]
    fn sixty_four_policies_are_looked_at() {
        for (before, expected) in [(63, vec![(3, 60)]), (64, vec![])] {
            let others = (0..before).map(|n| format!(r#""p{n}";w=9"#));
            let policies: Vec<_> = others.chain([r#""a";w=60"#.to_owned()]).collect();
            let policies = policies.join(", ");
            let fields = [
                ("ratelimit", r#""a";r=3"#),
                ("ratelimit-policy", &*policies),
            ];
            assert_eq!(of(&fields), expected, "{before}");
        }
    }

    #[test]
    fn a_broken_field_is_discarded_whole_and_takes_nothing_with_it() {
        for broken in [
            r#""x" ;r=1;t=1"#,
            r#""x";r=1;t=1,"#,
            r#""x";R=1;t=1"#,
            r#""x";t=2"#,
            r#""x";r=-1;t=2"#,
            r#""x";r=1.0;t=1"#,
            r#""x";r="1";t=1"#,
            r#"x"#,
            "1;r=1;t=1",
            r#"("x");r=1;t=1"#,
            "",
            r#""x";r=1000000000000000;t=1"#,
            "limit=100, remaining=50, reset=17",
            r#""ok";r=1;t=1, "x" ;r=1;t=1"#,
        ] {
            assert_eq!(of(&[("ratelimit", broken)]), [], "{broken}");
        }
        let fields = [
            ("ratelimit", r#""a";r=1;t=1"#),
            ("ratelimit-policy", r#""a";q=1,"#),
        ];
        assert_eq!(of(&fields), [(1, 1)]);
    }

    proptest! {
        #[test]
        fn no_field_that_is_nearly_right_panics(budgets in r#"("[a-z\\"]{0,3}";[rtp]k?=[-0-9:A-z=]{0,18}(;t=[0-9]{0,3})?,? ?){0,4}"#) {
            of(&[("ratelimit", &budgets)]);
        }
    }
}

#[cfg(test)]
mod dictionary_tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(value: &str) -> Option<(u64, u64)> {
        let value = HeaderValue::from_str(value).expect("a value");
        let headers = HeaderMap::from_iter([(HeaderName::from_static("ratelimit"), value)]);
        let budget = dictionary(&headers);
        budget.map(|budget| (budget.left, budget.reset.as_secs()))
    }

    #[test]
    fn it_tells_what_remains_and_for_how_long() {
        assert_eq!(of("limit=100, remaining=50, reset=17"), Some((50, 17)));
        assert_eq!(of("reset=1,remaining=0,limit=20"), Some((0, 1)));
        assert_eq!(of("remaining=5;x=1, reset=1, other=(1 2)"), Some((5, 1)));
    }

    #[test]
    fn without_both_or_with_an_error_it_tells_nothing() {
        for value in [
            "limit=100, reset=17",
            "limit=100, remaining=50",
            "remaining=-1, reset=17",
            "remaining=50, reset=17,",
            "remaining=1.5, reset=17",
            "remaining=(1), reset=17",
            "remaining, reset",
            "",
            r#""a";r=0;t=17"#,
            "remaining=1000000000000000, reset=1",
        ] {
            assert_eq!(of(value), None, "{value}");
        }
    }
}
