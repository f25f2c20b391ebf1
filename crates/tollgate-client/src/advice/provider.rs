//! Fields of single providers: several budgets, each under names of its own.
//!
//! ```text
//! x-ratelimit-remaining-requests: 59        anthropic-ratelimit-tokens-remaining: 0
//! x-ratelimit-reset-requests: 1s            anthropic-ratelimit-tokens-reset: 2025-01-01T00:00:17Z
//! ```

use std::time::Duration;

use http::HeaderMap;
use tollgate_core::Tick;

use crate::advice::{
    advised_budget::{AdvisedBudget, Budgets},
    time_until, triple,
};

/// The number of fields that are looked at.
const MOST_FIELDS: usize = 64;

/// What a request takes an unknown number of, in the names of fields.
const OTHER_UNITS: [&str; 7] = ["token", "byte", "char", "credit", "point", "cost", "unit"];

/// The budgets in pairs of fields whose names differ in `remaining` and `reset` alone.
pub(crate) fn read(headers: &HeaderMap, now: Tick) -> Budgets {
    let names = headers.keys().map(http::HeaderName::as_str);
    let names = names.filter(|name| is_about_limits(name) && !triple::is_of_family(name));
    let budgets = names.take(MOST_FIELDS).filter_map(|name| {
        let reset = partner(name, "remaining", "reset")?;
        let left = triple::remaining_of(triple::text(headers, name)?)?;
        // They cannot be converted to requests, unless none are left.
        if left > 0 && OTHER_UNITS.iter().any(|unit| name.contains(unit)) {
            return None;
        }
        Some(AdvisedBudget {
            name: AdvisedBudget::hash_of(name),
            left,
            reset: triple::reset_of(triple::text(headers, &reset)?, now)?,
        })
    });
    budgets.collect()
}

/// The latest reset of a response that was rejected and does not say what is left.
pub(crate) fn reset_alone(headers: &HeaderMap, now: Tick) -> Option<Duration> {
    let names = headers.keys().map(http::HeaderName::as_str);
    let names = names.filter(|name| is_about_limits(name)).take(MOST_FIELDS);
    let resets = names.filter_map(|name| {
        let remaining = partner(name, "reset", "remaining")?;
        let is_alone = !headers.contains_key(&*remaining);
        let text = triple::text(headers, name).filter(|_| is_alone)?;
        // Discord's `x-ratelimit-reset-after` is in seconds, as others are.
        time_until::until(text, now)
    });
    resets.max()
}

fn is_about_limits(name: &str) -> bool {
    name.contains("ratelimit") || name.contains("rate-limit")
}

/// The name with another word in the place of one.
fn partner(name: &str, word: &str, other: &str) -> Option<String> {
    name.contains(word).then(|| name.replacen(word, other, 1))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Mon, 10 May 2021 11:00:00 GMT.
    const NOW: Tick = 1_620_644_400_000_000;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    fn of(fields: &[(&'static str, &'static str)]) -> Vec<(u64, u64)> {
        let budgets = read(&headers(fields), NOW);
        let budgets = budgets.iter();
        let mut budgets: Vec<_> = budgets
            .map(|budget| (budget.left, budget.reset.as_secs()))
            .collect();
        budgets.sort_unstable();
        budgets
    }

    #[test]
    fn each_budget_of_a_provider_is_read() {
        let open_ai = [
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "20s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        assert_eq!(of(&open_ai), [(0, 360), (59, 20)]);
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "3"),
            ("anthropic-ratelimit-requests-reset", "2021-05-10T11:00:07Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
            (
                "anthropic-ratelimit-output-tokens-reset",
                "2021-05-10T11:01:00Z",
            ),
        ];
        assert_eq!(of(&anthropic), [(0, 60), (3, 7)]);
    }

    #[test]
    fn tokens_that_are_left_are_no_number_of_requests() {
        let tokens = [
            ("x-ratelimit-remaining-tokens", "5"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        assert_eq!(of(&tokens), []);
    }

    #[test]
    fn a_pair_that_is_not_whole_and_fields_that_others_read_tell_nothing() {
        for fields in [
            [
                ("x-ratelimit-remaining-requests", "5"),
                ("x-ratelimit-reset-tokens", "1s"),
            ],
            [("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "1")],
            [("x-items-remaining", "5"), ("x-items-reset", "1")],
            [
                ("x-ratelimit-remaining-requests", "x"),
                ("x-ratelimit-reset-requests", "1s"),
            ],
        ] {
            assert_eq!(of(&fields), [], "{fields:?}");
        }
    }

    #[test]
    fn a_reset_alone_is_a_wait_of_a_rejection() {
        let fields = [
            ("x-ratelimit-reset-requests", "20s"),
            ("x-ratelimit-reset-tokens", "6m0s"),
            ("x-ratelimit-reset", "900"),
            ("x-ratelimit-remaining", "1"),
        ];
        let wait = reset_alone(&headers(&fields), NOW);
        assert_eq!(wait, Some(Duration::from_secs(360)));
    }
}
