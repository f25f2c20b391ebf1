//! Fields of one number each: `RateLimit-Limit`, `-Remaining` and `-Reset` of draft-06 and before, those that begin with `X-`, and those
//! of single providers, which have several budgets, each under names of its own.
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
    time_until::{number, until},
};

/// The fields of all requests together, the newest first.
const FAMILIES: [&str; 3] = [
    "ratelimit-remaining",
    "x-ratelimit-remaining",
    "x-rate-limit-remaining",
];

/// The budget in the first family of fields that can be parsed.
pub(crate) fn read_triple(headers: &HeaderMap, now: Tick) -> Option<AdvisedBudget> {
    FAMILIES
        .into_iter()
        .find_map(|name| budget(headers, name, now))
}

/// The number of fields that are looked at.
const MOST_FIELDS: usize = 64;

/// What a request takes an unknown number of, in the names of fields.
const OTHER_UNITS: [&str; 7] = ["token", "byte", "char", "credit", "point", "cost", "unit"];

/// The budgets in pairs of fields whose names differ in `remaining` and `reset` alone.
pub(crate) fn read_provider(headers: &HeaderMap, now: Tick) -> Budgets {
    limit_fields(headers)
        .filter(|name| !FAMILIES.contains(name))
        .take(MOST_FIELDS)
        .filter_map(|name| budget(headers, name, now))
        .collect()
}

/// The budget of a field with what remains, and the field with its reset.
fn budget(headers: &HeaderMap, name: &str, now: Tick) -> Option<AdvisedBudget> {
    let reset = text(headers, &partner(name, "remaining", "reset")?)?;
    // Some servers send `598.0`.
    let (left, _) = number(first(text(headers, name)?))?;
    // They cannot be converted to requests, unless none are left.
    if left > 0 && OTHER_UNITS.iter().any(|unit| name.contains(unit)) {
        return None;
    }
    Some(AdvisedBudget {
        name: AdvisedBudget::hash_of(name),
        left,
        // A date contains a comma; a list begins with the tightest budget.
        reset: until(reset, now).or_else(|| until(first(reset), now))?,
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The first member of a list, without its parameters.
fn first(list: &str) -> &str {
    list.split([',', ';']).next().unwrap_or_default().trim()
}

/// The latest reset of a response that was rejected and does not say what is left.
pub(crate) fn reset_alone(headers: &HeaderMap, now: Tick) -> Option<Duration> {
    let resets = limit_fields(headers).take(MOST_FIELDS).filter_map(|name| {
        let remaining = partner(name, "reset", "remaining")?;
        let is_alone = !headers.contains_key(&*remaining);
        let text = text(headers, name).filter(|_| is_alone)?;
        // Discord's `x-ratelimit-reset-after` is in seconds, as others are.
        until(text, now)
    });
    resets.max()
}

/// The names of fields about limits.
fn limit_fields(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(|name| name.contains("ratelimit") || name.contains("rate-limit"))
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

    fn of(fields: &[(&'static str, &str)]) -> Option<(u64, u64)> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        let budget = read_triple(&headers, NOW)?;
        Some((budget.left, budget.reset.as_secs()))
    }

    fn x(remaining: &str, reset: &str) -> Option<(u64, u64)> {
        of(&[
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", reset),
        ])
    }

    #[test]
    fn every_family_is_read() {
        for (remaining, reset) in [
            ("ratelimit-remaining", "ratelimit-reset"),
            ("x-ratelimit-remaining", "x-ratelimit-reset"),
            ("x-rate-limit-remaining", "x-rate-limit-reset"),
        ] {
            assert_eq!(of(&[(remaining, "3"), (reset, "9")]), Some((3, 9)));
        }
    }

    #[test]
    fn the_reset_is_a_moment_however_it_is_written() {
        for reset in [
            "60",
            "1620644460",
            "1620644460.0",
            "1620644460000",
            "2021-05-10T11:01Z",
            "Mon, 10 May 2021 11:01:00 GMT",
            "60, 60;w=60",
            "60;w=60",
        ] {
            assert_eq!(x("5", reset), Some((5, 60)), "{reset}");
        }
    }

    #[test]
    fn the_first_member_of_a_list_is_the_one_closest_to_its_end() {
        assert_eq!(x("3, 40;w=60", "1"), Some((3, 1)));
        assert_eq!(x("598.0", "1"), Some((598, 1)));
        let most = 999_999_999_999_999;
        assert_eq!(x("999999999999999", "1"), Some((most, 1)));
    }

    #[test]
    fn of_two_families_the_first_that_can_be_read_counts() {
        let second = [("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "20")];
        for (remaining, reset, expected) in [
            ("1", "10", (1, 10)),
            ("x", "10", (2, 20)),
            ("1", "soon", (2, 20)),
        ] {
            let first = [
                ("ratelimit-remaining", remaining),
                ("ratelimit-reset", reset),
            ];
            assert_eq!(of(&[first, second].concat()), Some(expected));
            let third = [
                ("x-rate-limit-remaining", "3"),
                ("x-rate-limit-reset", "30"),
            ];
            assert_eq!(of(&[third, second, first].concat()), Some(expected));
        }
    }

    #[test]
    fn what_cannot_be_read_tells_nothing() {
        for (remaining, reset) in [
            ("", "1"),
            ("-1", "1"),
            ("x", "1"),
            ("1", ""),
            ("1", "-5"),
            ("1", "soon"),
            ("1234567890123456", "1"),
            ("1", "1234567890123456"),
            (".5", "1"),
        ] {
            assert_eq!(x(remaining, reset), None, "{remaining} {reset}");
        }
        assert_eq!(of(&[("x-ratelimit-remaining", "1")]), None);
        assert_eq!(of(&[("x-ratelimit-reset", "1")]), None);
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let fields = fields.iter().map(|(name, value)| {
            let value = HeaderValue::from_static(value);
            (HeaderName::from_static(name), value)
        });
        fields.collect()
    }

    fn of_provider(fields: &[(&'static str, &'static str)]) -> Vec<(u64, u64)> {
        let mut budgets: Vec<_> = read_provider(&headers(fields), NOW)
            .iter()
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
        assert_eq!(of_provider(&open_ai), [(0, 360), (59, 20)]);
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "3"),
            ("anthropic-ratelimit-requests-reset", "2021-05-10T11:00:07Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "0"),
            (
                "anthropic-ratelimit-output-tokens-reset",
                "2021-05-10T11:01:00Z",
            ),
        ];
        assert_eq!(of_provider(&anthropic), [(0, 60), (3, 7)]);
    }

    #[test]
    fn tokens_that_are_left_are_no_number_of_requests() {
        let tokens = [
            ("x-ratelimit-remaining-tokens", "5"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        assert_eq!(of_provider(&tokens), []);
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
            assert_eq!(of_provider(&fields), [], "{fields:?}");
        }
    }

    #[test]
    fn fields_that_others_read_take_no_place_of_those_of_a_provider() {
        let mut all = headers(&FAMILIES.map(|name| (name, "1")));
        for number in 1..MOST_FIELDS {
            let name = format!("x-ratelimit-{number}").parse::<HeaderName>();
            all.insert(name.expect("a name"), HeaderValue::from_static("1"));
        }
        all.extend(headers(&[
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "20s"),
        ]));
        assert_eq!(read_provider(&all, NOW).len(), 1);
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
