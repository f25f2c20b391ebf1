//! `RateLimit` as a dictionary: draft-ietf-httpapi-ratelimit-headers-07.

use std::time::Duration;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, ListEntry};
use tollgate_core::Tick;

use crate::advice::{
    advised_budget::{AdvisedBudget, Budgets},
    structured,
};

/// The tightest budget: `limit=100, remaining=50, reset=17`.
pub(crate) fn read(headers: &HeaderMap, _: Tick) -> Budgets {
    let Some(dictionary) = structured::field::<Dictionary>(headers, "ratelimit") else {
        return Budgets::new();
    };
    let integer = |key: &str| match dictionary.get(key)? {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::Integer(integer) => u64::try_from(i64::from(integer)).ok(),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    integer("remaining")
        .zip(integer("reset"))
        .map(|(left, reset)| AdvisedBudget {
            name: AdvisedBudget::hash_of("dictionary"),
            left,
            reset: Duration::from_secs(reset),
        })
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(value: &str) -> Option<(u64, u64)> {
        let value = HeaderValue::from_str(value).expect("a value");
        let headers = HeaderMap::from_iter([(HeaderName::from_static("ratelimit"), value)]);
        let budgets = read(&headers, 0);
        budgets
            .first()
            .map(|budget| (budget.left, budget.reset.as_secs()))
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
