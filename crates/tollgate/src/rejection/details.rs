//! The details of a denial for a response body.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use http::StatusCode;
use smallvec::SmallVec;
use tollgate_core::{AlgorithmKind, Quota, Reason, Retry, Rule};

use crate::{key::NoKey, rejection::denial::Denial};

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
        let (name, limit) = (self.name, self.limit());
        if self.never {
            return write!(
                f,
                "The request costs more than policy \"{name}\" ever allows, which is {limit}."
            );
        }
        let requests = if limit == 1 { "request" } else { "requests" };
        if self.quota.algorithm() == AlgorithmKind::Concurrent {
            return write!(f, "Policy \"{name}\" allows {limit} {requests} at once.");
        }
        let window = Readable(self.quota.window());
        write!(
            f,
            "Policy \"{name}\" allows {limit} {requests} per {window}."
        )
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
        if denial.hides_quota() {
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
            Reason::Slots | Reason::QueueFull | Reason::WaitExpired
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
    use super::*;

    #[test]
    fn times_are_whole_numbers_of_a_unit() {
        for (micros, words) in [
            (60_000_000, "60 s"),
            (1_500_000, "1500 ms"),
            (333_334, "333334 µs"),
        ] {
            assert_eq!(Readable(Duration::from_micros(micros)).to_string(), words);
        }
    }
}
