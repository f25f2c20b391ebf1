//! `RateLimit-Limit`, `-Remaining` and `-Reset` of draft-06 and before, and the fields that begin with `X-`.

use std::time::Duration;

use http::HeaderMap;
use tollgate_core::Tick;

use crate::advice::{
    advised_budget::{AdvisedBudget, Budgets},
    time_until,
};

const FAMILIES: [(&str, &str); 3] = [
    ("ratelimit-remaining", "ratelimit-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
];

/// The budget in the first family of fields that can be parsed.
pub(crate) fn read(headers: &HeaderMap, now: Tick) -> Budgets {
    FAMILIES
        .into_iter()
        .find_map(|(remaining, reset)| {
            let left = remaining_of(text(headers, remaining)?)?;
            let reset = text(headers, reset)?;
            Some(AdvisedBudget {
                name: AdvisedBudget::hash_of(remaining),
                left,
                reset: reset_of(reset, now)?,
            })
        })
        .into_iter()
        .collect()
}

/// Whether one of these families has the field.
pub(crate) fn is_of_family(name: &str) -> bool {
    let mut families = FAMILIES.into_iter();
    families.any(|(remaining, reset)| name == remaining || name == reset)
}

/// A date contains a comma; a list begins with the tightest budget.
pub(crate) fn reset_of(text: &str, now: Tick) -> Option<Duration> {
    time_until::until(text, now).or_else(|| time_until::until(first(text), now))
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The first member of a list, without its parameters.
fn first(list: &str) -> &str {
    list.split([',', ';']).next().unwrap_or_default().trim()
}

/// A number of at most 15 digits. Some servers send `598.0`; the fraction is dropped.
pub(crate) fn remaining_of(text: &str) -> Option<u64> {
    let (whole, fraction) = first(text).split_once('.').unwrap_or((first(text), ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 15 || !digits(whole) || !digits(fraction) {
        return None;
    }
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const NOW: Tick = 1_620_644_400_000_000;

    fn of(fields: &[(&'static str, &str)]) -> Option<(u64, u64)> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        let budgets = read(&headers, NOW);
        budgets
            .first()
            .map(|budget| (budget.left, budget.reset.as_secs()))
    }

    fn x(remaining: &str, reset: &str) -> Option<(u64, u64)> {
        of(&[
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", reset),
        ])
    }

    #[test]
    fn every_family_is_read() {
        for (remaining, reset) in FAMILIES {
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
}
