//! The details of a denial for a response body.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use http::StatusCode;
use smallvec::SmallVec;
use tollgate_core::{AlgorithmKind, Quota, Reason, Retry, Rule};

use crate::{key::NoKey, rejection::denial::Denial, unit::unit_of};

/// The details of a denial for a response body, without the retry time. Nothing about the client; with a hidden quota, nothing
/// about the rules.
#[derive(Debug)]
pub(super) struct DenialDetails<'a> {
    pub(super) reason: Reason,
    pub(super) status: StatusCode,
    pub(super) exceeded: SmallVec<[Exceeded<'a>; 2]>,
    no_key: Option<String>,
    hides_quota: bool,
}

/// A policy that the request exceeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exceeded<'a> {
    pub(super) name: &'a str,
    quota: Quota,
    unit: &'a str,
    never: bool,
}

impl Exceeded<'_> {
    /// The units that the policy allows.
    pub(super) fn limit(&self) -> u64 {
        self.quota.limit()
    }
}

impl fmt::Display for Exceeded<'_> {
    /// A sentence for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, limit, rate) = (self.name, self.limit(), self.quota.rate());
        let amount = |number| Amount {
            number,
            unit: self.unit,
        };
        if self.never {
            write!(
                f,
                "The request costs more than policy \"{name}\" ever allows, which is "
            )?;
            return match self.unit {
                "requests" => write!(f, "{limit}."),
                _ => write!(f, "{}.", amount(limit)),
            };
        }
        if self.quota.algorithm() == AlgorithmKind::Concurrent {
            return write!(f, "Policy \"{name}\" allows {} at once.", amount(limit));
        }
        write!(f, "Policy \"{name}\" allows {} per ", amount(rate))?;
        match self.quota.calendar_of() {
            #[cfg(feature = "calendar")]
            Some(calendar) => f.write_str(calendar.unit().name())?,
            _ => write!(f, "{}", Readable(self.quota.period()))?,
        }
        match limit == rate {
            true => f.write_str("."),
            // A bucket: people know the rate, and what fits in at once.
            false => write!(f, ", at most {limit} at once."),
        }
    }
}

impl<'a> DenialDetails<'a> {
    pub(super) fn of(denial: &Denial<'a>) -> Self {
        let mut details = Self {
            reason: denial.reason(),
            status: denial.status(),
            exceeded: SmallVec::new(),
            no_key: None,
            hides_quota: denial.hides_quota(),
        };
        // What else is used up does not matter to who is blocked.
        if denial.hides_quota() || denial.reason() == Reason::Blocked {
            return details;
        }
        let rules = denial.rules().rules();
        details.exceeded = denial
            .exceeded()
            .filter_map(|verdict| {
                let rule = rules.get(verdict.rule())?;
                Some(Exceeded {
                    name: rule.name(),
                    quota: rule.quota_under(verdict.plan()),
                    unit: match denial.is_in_units() {
                        true => rule.unit_name().unwrap_or("units"),
                        false => unit_of(rule),
                    },
                    never: verdict.retry() == Retry::Never,
                })
            })
            .collect();
        // Clients learn nothing about the set-up.
        details.no_key = denial.no_key().map(|why| match why {
            NoKey::Misconfigured(_) => "the service cannot tell who is asking".to_owned(),
            NoKey::LookUpFailed => "the service cannot tell who is asking at present".to_owned(),
            why => why.to_string(),
        });
        details
    }

    /// The details of a denial by this quota alone.
    pub(super) fn used_up(rule: &'a Rule, quota: &Quota, status: StatusCode) -> Self {
        Self {
            reason: match quota.algorithm() {
                AlgorithmKind::Concurrent => Reason::Slots,
                _ => Reason::Quota,
            },
            status,
            exceeded: SmallVec::from_iter([Exceeded {
                name: rule.name(),
                quota: *quota,
                unit: unit_of(rule),
                never: false,
            }]),
            no_key: None,
            hides_quota: false,
        }
    }

    /// Whether the request exceeds a quota, as opposed to a failed store or a missing key.
    pub(super) fn is_quota(&self) -> bool {
        matches!(
            self.reason,
            Reason::Quota | Reason::Never | Reason::Slots | Reason::QueueFull | Reason::WaitExpired
        )
    }

    /// The reason for programs, where the policies do not tell it.
    pub(super) fn reason_word(&self) -> Option<&'static str> {
        let is_shown = !matches!(
            self.reason,
            Reason::Slots | Reason::QueueFull | Reason::WaitExpired | Reason::Blocked
        );
        (!is_shown && !self.hides_quota).then(|| self.reason.as_str())
    }

    /// A title of a few words.
    pub(super) fn title(&self) -> &'static str {
        if self.is_quota() {
            "Quota exceeded"
        } else {
            self.status.canonical_reason().unwrap_or("Refused")
        }
    }

    /// Sentences for people; `None` if the status says it all.
    pub(super) fn detail(&self) -> Option<String> {
        if let Some(why) = &self.no_key {
            return Some(why.clone());
        }
        let mut text = String::new();
        for exceeded in &self.exceeded {
            if !text.is_empty() {
                text.push(' ');
            }
            // Writing to a string cannot fail.
            let _ = write!(text, "{exceeded}");
        }
        let waiting = match self.reason {
            Reason::QueueFull => "The queue is full.",
            Reason::WaitExpired => "The time to wait is over.",
            _ => "",
        };
        if !waiting.is_empty() && !self.hides_quota {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(waiting);
        }
        (!text.is_empty()).then_some(text)
    }
}

/// A number with its unit: `1 token`, `5 tokens`.
struct Amount<'a> {
    number: u64,
    unit: &'a str,
}

impl fmt::Display for Amount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, unit } = *self;
        let Some(one) = unit.strip_suffix('s').filter(|_| number == 1) else {
            return write!(f, "{number} {unit}");
        };
        if let Some(stem) = one.strip_suffix("ie") {
            return write!(f, "{number} {stem}y");
        }
        let ends = ["che", "she", "sse", "xe"];
        match ends.iter().any(|end| one.ends_with(end)) {
            true => write!(f, "{number} {}", &one[..one.len() - 1]),
            false => write!(f, "{number} {one}"),
        }
    }
}

/// A duration in the largest unit in which it is a whole number.
struct Readable(Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        if micros.is_multiple_of(1_000_000) {
            write!(f, "{} s", micros / 1_000_000)
        } else if micros.is_multiple_of(1_000) {
            write!(f, "{} ms", micros / 1_000)
        } else {
            write!(f, "{micros} µs")
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::SECOND;

    use super::*;

    #[test]
    fn a_sentence_has_the_rate_and_the_unit_that_people_know() {
        for (quota, unit, words) in [
            (
                Quota::gcra(10, SECOND).burst(5),
                "requests",
                "10 requests per 1 s, at most 5 at once",
            ),
            (
                Quota::token_bucket(20).refill(1, SECOND),
                "queries",
                "1 query per 1 s, at most 20 at once",
            ),
            (
                Quota::leaky_bucket(3).leak(3, SECOND),
                "tokens",
                "3 tokens per 1 s",
            ),
            (
                Quota::sliding_log(1, 60 * SECOND),
                "units",
                "1 unit per 60 s",
            ),
            (Quota::fixed_window(1, SECOND), "batches", "1 batch per 1 s"),
            (Quota::concurrent(1), "requests", "1 request at once"),
        ] {
            let rule = Rule::new("api", quota).unit(unit);
            let details = DenialDetails::used_up(&rule, &quota, StatusCode::TOO_MANY_REQUESTS);
            let sentence = format!("Policy \"api\" allows {words}.");
            assert_eq!(details.detail(), Some(sentence));
        }
    }
}
