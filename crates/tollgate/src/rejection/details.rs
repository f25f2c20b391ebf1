//! The details of a denial for a response body; and the subset of protobuf that they need, without a library: a feature must not
//! change a response.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::{AlgorithmKind, Quota, Reason, Retry};

use crate::{header::unit_of, key::NoKey, rejection::denial::Denial};

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

    /// A sentence for people.
    pub(super) fn sentence(&self) -> String {
        let (name, limit, rate) = (self.name, self.limit(), self.quota.rate());
        if self.never {
            let most = match self.unit {
                "requests" => limit.to_string(),
                unit => amount(limit, unit),
            };
            return format!(
                "The request costs more than policy \"{name}\" ever allows, which is {most}."
            );
        }
        if self.quota.algorithm() == AlgorithmKind::Concurrent {
            let most = amount(limit, self.unit);
            return format!("Policy \"{name}\" allows {most} at once.");
        }
        let period = match self.quota.calendar_of() {
            #[cfg(feature = "calendar")]
            Some(calendar) => calendar.unit().name().to_owned(),
            _ => readable(self.quota.period()),
        };
        let rate_of_units = amount(rate, self.unit);
        match limit == rate {
            true => format!("Policy \"{name}\" allows {rate_of_units} per {period}."),
            // A bucket: people know the rate, and what fits in at once.
            false => format!(
                "Policy \"{name}\" allows {rate_of_units} per {period}, at most {limit} at once."
            ),
        }
    }
}

/// What a body says of a denial besides the retry time. Nothing about the client; with a hidden quota, nothing about the rules.
impl<'a> Denial<'a> {
    /// The policies that the request exceeds.
    pub(super) fn shown_policies(&self) -> SmallVec<[Exceeded<'a>; 2]> {
        // What else is used up does not matter to who is blocked.
        if self.hide_quota || self.reason == Reason::Blocked {
            return SmallVec::new();
        }
        let (rules, in_units) = (self.rules.rules(), self.in_units);
        let policies = self.exceeded().filter_map(|verdict| {
            let rule = rules.get(verdict.rule())?;
            Some(Exceeded {
                name: rule.name(),
                quota: rule.quota_under(verdict.plan()),
                unit: match in_units {
                    true => rule.unit_name().unwrap_or("units"),
                    false => unit_of(rule),
                },
                never: verdict.retry() == Retry::Never,
            })
        });
        policies.collect()
    }

    /// Whether the request exceeds a quota, as opposed to a failed store or a missing key.
    pub(super) fn is_quota(&self) -> bool {
        !matches!(
            self.shown_reason(),
            None | Some(Reason::StoreFailed | Reason::NoKey | Reason::Blocked)
        )
    }

    /// The reason for programs, where the policies do not tell it.
    pub(super) fn reason_word(&self) -> Option<&'static str> {
        use Reason::{Blocked, QueueFull, Slots, WaitExpired};

        let reason = self.shown_reason()?;
        matches!(reason, Slots | QueueFull | WaitExpired | Blocked).then(|| reason.as_str())
    }

    /// A title of a few words.
    pub(super) fn title(&self) -> &'static str {
        match self.is_quota() {
            true => "Quota exceeded",
            false => self.status.canonical_reason().unwrap_or("Refused"),
        }
    }

    /// Sentences for people; `None` if the status says it all.
    pub(super) fn detail(&self) -> Option<String> {
        if let Some(why) = self.no_key.filter(|_| !self.hide_quota) {
            return Some(match why {
                // Clients learn nothing about the set-up.
                NoKey::Misconfigured(_) => "the service cannot tell who is asking".to_owned(),
                NoKey::LookUpFailed => {
                    "the service cannot tell who is asking at present".to_owned()
                }
                why => why.to_string(),
            });
        }
        let policies = self.shown_policies();
        let mut sentences: Vec<_> = policies.iter().map(Exceeded::sentence).collect();
        match self.shown_reason() {
            Some(Reason::QueueFull) => sentences.push("The queue is full.".to_owned()),
            Some(Reason::WaitExpired) => sentences.push("The time to wait is over.".to_owned()),
            _ => {}
        }
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}

/// A number with its unit: `1 token`, `5 tokens`.
fn amount(number: u64, unit: &str) -> String {
    let Some(one) = unit.strip_suffix('s').filter(|_| number == 1) else {
        return format!("{number} {unit}");
    };
    if let Some(stem) = one.strip_suffix("ie") {
        return format!("{number} {stem}y");
    }
    let ends = ["che", "she", "sse", "xe"];
    match ends.iter().any(|end| one.ends_with(end)) {
        true => format!("{number} {}", &one[..one.len() - 1]),
        false => format!("{number} {one}"),
    }
}

/// A duration in the largest unit in which it is a whole number.
fn readable(duration: Duration) -> String {
    let micros = duration.as_micros();
    if micros.is_multiple_of(1_000_000) {
        format!("{} s", micros / 1_000_000)
    } else if micros.is_multiple_of(1_000) {
        format!("{} ms", micros / 1_000)
    } else {
        format!("{micros} µs")
    }
}

/// A message in the binary format. Fields that are zero or empty are left out, as in proto3.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(SmallVec<[u8; 96]>);

impl Message {
    /// An empty message with room for this many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(SmallVec::with_capacity(bytes))
    }

    pub(super) fn uint(mut self, field: u8, value: u64) -> Self {
        if value != 0 {
            self.tag(field, 0);
            self.varint(value);
        }
        self
    }

    pub(super) fn text(self, field: u8, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.bytes(field, value.as_bytes())
    }

    /// A nested message is written even if it is empty.
    pub(super) fn message(self, field: u8, value: &Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Appends the fields of another message.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// `field` is below 16, so that a tag is a byte.
    fn tag(&mut self, field: u8, wire_type: u8) {
        debug_assert!(field < 16);
        self.0.push(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// `google.protobuf.Any` with a message: its URL begins with `type.googleapis.com/`.
pub(super) fn any(type_url: &str, message: &Message) -> Message {
    Message::default().text(1, type_url).message(2, message)
}

/// `google.rpc.RetryInfo`, exact.
pub(super) fn retry_info(wait: Duration) -> Message {
    let duration = Message::default()
        // Capped at protobuf's limit of 10 000 years.
        .uint(1, wait.as_secs().min(315_576_000_000))
        .uint(2, wait.subsec_nanos().into());
    Message::default().message(1, &duration)
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
            let policy = Exceeded {
                name: "api",
                quota,
                unit,
                never: false,
            };
            let sentence = format!("Policy \"api\" allows {words}.");
            assert_eq!(policy.sentence(), sentence);
        }
    }
}
