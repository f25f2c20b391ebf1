//! `RateLimit` as a list of named budgets: draft-ietf-httpapi-ratelimit-headers-08 to -11.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Item, List, ListEntry};
use tollgate_core::Tick;

use crate::advice::{
    advised_budget::{AdvisedBudget, Budgets},
    structured,
};

/// The budgets. A member without a name, `r` or a window is ignored.
pub(crate) fn read(headers: &HeaderMap, _: Tick) -> Budgets {
    let Some(budgets) = structured::field::<List>(headers, "ratelimit") else {
        return Budgets::new();
    };
    let policies = structured::field::<List>(headers, "ratelimit-policy").unwrap_or_default();
    items(&budgets)
        .filter_map(|item| budget(item, &policies))
        .collect()
}

fn budget(item: &Item, policies: &List) -> Option<AdvisedBudget> {
    let name = structured::text(&item.bare_item)?;
    let left = structured::integer(item, "r")?;
    let policy = items(policies)
        .take(64)
        .find(|policy| structured::text(&policy.bare_item) == Some(name));
    // Bytes or concurrent calls cannot be converted to requests, unless none are left.
    if left > 0 && policy.is_some_and(|policy| !counts_requests(policy)) {
        return None;
    }
    let reset = structured::integer(item, "t")
        .or_else(|| structured::integer(policy?, "w"))
        .map(Duration::from_secs)?;
    let partition = match item.params.get("pk") {
        Some(BareItem::ByteSequence(partition)) => Some(partition),
        _ => None,
    };
    Some(AdvisedBudget {
        name: AdvisedBudget::hash_of((name, partition)),
        left,
        reset,
    })
}

/// The draft's text has `requests`, its registry `request`.
fn counts_requests(policy: &Item) -> bool {
    policy.params.get("qu").is_none_or(|unit| {
        structured::text(unit).is_some_and(|unit| matches!(unit, "requests" | "request"))
    })
}

fn items(list: &List) -> impl Iterator<Item = &Item> {
    list.iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    })
}

#[cfg(test)]
mod tests {
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
        let budgets = read(&headers, 0);
        let budgets = budgets.iter();
        budgets
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
        let names: Vec<_> = read(&headers, 0).iter().map(|budget| budget.name).collect();
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
