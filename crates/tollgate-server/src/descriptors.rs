//! Envoy's descriptors become parts of a request, and the answer to each is that of its tightest rule.

use std::{
    borrow::Cow,
    cmp::Reverse,
    iter,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header::HOST, request::Parts};
use prost::encoding::decode_varint;
use tollgate::{
    Quota,
    decision::{Outcome, Verdict},
    key::PeerAddr,
    siblings::{PartsDecision, RequestPart},
};
use tollgate_rules::operators::Descriptor;

use crate::{
    path::normal_path,
    proto::{
        RateLimitDescriptor, RateLimitRequest,
        rate_limit_descriptor::Entry,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    },
};

const MAX_DESCRIPTORS: usize = 32;
const MAX_ENTRIES: usize = 16;
/// The most bytes of a key, which is one of Envoy's configuration. Values are a client's, and bounded with the message: what is refused
/// for its length would pass.
const MAX_KEY: usize = 1_024;
/// No quota has more units.
const MAX_HITS: u64 = 1 << 53;

/// Refuses a message of too many parts before it is decoded: an entry of two bytes would take more than fifty then.
pub(crate) fn check_numbers(message: &[u8]) -> Result<(), String> {
    let at_most = |most, number, what| match number > most {
        true => Err(format!("{number} {what} are more than {most}")),
        false => Ok(()),
    };
    at_most(MAX_DESCRIPTORS, fields(message, 2).count(), "descriptors")?;
    let mut entries = fields(message, 2).map(|descriptor| fields(descriptor, 1).count());
    entries.try_for_each(|number| at_most(MAX_ENTRIES, number, "entries"))
}

/// The texts and messages in a message that have this number, up to what cannot be decoded.
fn fields(mut message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        loop {
            let key = decode_varint(&mut message).ok()?;
            let length = match key & 7 {
                0 => decode_varint(&mut message).map(|_| 0).ok()?,
                1 => 8,
                2 => decode_varint(&mut message).ok()?,
                // What is in a group counts as well: Envoy has none.
                3 | 4 => 0,
                5 => 4,
                _ => return None,
            };
            let (field, behind) = message.split_at_checked(length.try_into().ok()?)?;
            message = behind;
            if key == (number << 3 | 2) {
                return Some(field);
            }
        }
    })
}

/// The parts of a request by its descriptors, without those that give hits back, of which nothing is taken.
pub(crate) fn parts_of(message: RateLimitRequest) -> Result<Vec<RequestPart>, String> {
    let domain = message.domain;
    if domain.len() > MAX_KEY {
        return Err(format!(
            "a domain of {} bytes is longer than {MAX_KEY}",
            domain.len()
        ));
    }
    // 0 is what a message without a number says.
    let hits = u64::from(message.hits_addend.max(1));
    let parts = message.descriptors.into_iter().map(|descriptor| {
        let hits = descriptor.hits_addend.unwrap_or(hits);
        if hits > MAX_HITS {
            return Err(format!("{hits} hits are more than any limit"));
        }
        let gives_back = descriptor.is_negative_hits;
        let part = part_of(&domain, descriptor, hits)?;
        Ok((!gives_back).then_some(part))
    });
    parts.filter_map(Result::transpose).collect()
}

fn part_of(
    domain: &str,
    descriptor: RateLimitDescriptor,
    hits: u64,
) -> Result<RequestPart, String> {
    let entries = descriptor.entries;
    let (mut head, ()) = Request::new(()).into_parts();
    // A descriptor without a path is on none.
    head.uri = Uri::from_static("*");
    for Entry { key, value } in &entries {
        if key.len() > MAX_KEY {
            return Err(format!(
                "a key of {} bytes is longer than {MAX_KEY}",
                key.len()
            ));
        }
        read(key, value, &mut head)
            .ok_or_else(|| format!("the entry {key:?} has a value that no request has"))?;
    }
    let has = |name: &str| entries.iter().any(|entry| entry.key == name);
    let is_whole = has("path") && has("method");
    if !has("method") {
        // As no request has it: a condition on methods does not hold.
        head.method = Method::from_bytes(b"-").unwrap_or_default();
    }
    // A client that sends an empty field must not leave its limit by it.
    let is_whole = is_whole || entries.iter().any(|entry| entry.value.is_empty());
    let entries = entries
        .iter()
        .map(|Entry { key, value }| (Cow::Borrowed(&**key), String::from_utf8_lossy(value)));
    Descriptor::new(domain, entries).describe(&mut head);
    Ok(RequestPart {
        head,
        hits,
        is_fragment: !is_whole,
    })
}

/// Reads an entry that says something of the request's head. `None`: nothing that a head can have.
fn read(key: &str, value: &Bytes, head: &mut Parts) -> Option<()> {
    match key {
        "path" => head.uri = normal_path(value).into(),
        "method" => head.method = Method::from_bytes(value).ok()?,
        "host" => drop(
            head.headers
                .insert(HOST, HeaderValue::from_maybe_shared(value.clone()).ok()?),
        ),
        "remote_address" => {
            let address: IpAddr = str::from_utf8(value).ok()?.parse().ok()?;
            head.extensions
                .insert(PeerAddr(SocketAddr::new(address, 0)));
        }
        _ => {
            if let Some(name) = key.strip_prefix("header:") {
                let name: HeaderName = name.parse().ok()?;
                head.headers
                    .append(name, HeaderValue::from_maybe_shared(value.clone()).ok()?);
            }
        }
    }
    Some(())
}

/// The status of a part: of the rule that denies it for longest, or else of the one that leaves least. Rules that are not enforced are
/// left out: Envoy would show the client what they say.
pub(crate) fn status_of(decided: &PartsDecision, part: usize) -> DescriptorStatus {
    let rules = decided.rules();
    let is_enforced = |verdict: &&Verdict| rules.enforces(verdict.rule());
    let verdicts = || decided.verdicts_of(part).filter(is_enforced);
    let denies = |verdict: &Verdict| verdict.outcome() == Outcome::Deny;
    let waits = |verdict: &Verdict| {
        let delay = verdict.retry().delay();
        (delay.is_none(), delay)
    };
    let tightest = match verdicts().any(denies) {
        true => verdicts()
            .filter(|it| denies(it))
            .max_by_key(|it| waits(it)),
        false => verdicts()
            .filter(|it| it.has_numbers())
            .min_by_key(|it| (it.remaining(), Reverse(it.reset_after()))),
    };
    let Some(verdict) = tightest else {
        return DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        };
    };
    let is_denied = denies(verdict);
    let until = match is_denied {
        true => verdict.retry().delay(),
        false => Some(verdict.reset_after()),
    };
    let rule = rules
        .rules()
        .get(verdict.rule())
        .filter(|_| verdict.has_numbers());
    DescriptorStatus {
        code: if is_denied { Code::OverLimit } else { Code::Ok }.into(),
        current_limit: rule.map(|rule| limit_of(rule.name(), &rule.quota_under(verdict.plan()))),
        limit_remaining: u32::try_from(verdict.remaining()).unwrap_or(u32::MAX),
        duration_until_reset: until.map(whole_seconds),
    }
}

/// A quota in Envoy's units, where it is so many of one.
fn limit_of(name: &str, quota: &Quota) -> RateLimit {
    let seconds = ceiled(quota.window()).max(1);
    let units = [
        // As long as Envoy takes them to be.
        (Unit::Year, 365 * 86_400),
        (Unit::Month, 30 * 86_400),
        (Unit::Week, 7 * 86_400),
        (Unit::Day, 86_400),
        (Unit::Hour, 3_600),
        (Unit::Minute, 60),
    ];
    let whole = units
        .into_iter()
        .find(|(_, length)| seconds.is_multiple_of(*length));
    let (unit, length) = whole.unwrap_or((Unit::Second, 1));
    let multiplier = u32::try_from(seconds / length).unwrap_or(u32::MAX);
    RateLimit {
        name: name.to_owned(),
        requests_per_unit: u32::try_from(quota.limit()).unwrap_or(u32::MAX),
        unit: unit.into(),
        unit_multiplier: (multiplier > 1).then_some(multiplier),
    }
}

/// Envoy cuts the fraction off, and its client would come back too early.
fn whole_seconds(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(ceiled(duration)).unwrap_or(i64::MAX),
        nanos: 0,
    }
}

fn ceiled(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use tollgate::{DAY, HOUR, MINUTE, SECOND};

    use super::*;

    #[test]
    fn a_quota_is_so_many_of_the_largest_unit() {
        for (quota, unit, multiplier) in [
            (Quota::fixed_window(5, SECOND), Unit::Second, None),
            (Quota::fixed_window(5, 5 * SECOND), Unit::Second, Some(5)),
            (Quota::fixed_window(5, 90 * SECOND), Unit::Second, Some(90)),
            (Quota::fixed_window(5, MINUTE), Unit::Minute, None),
            (Quota::fixed_window(5, 2 * HOUR), Unit::Hour, Some(2)),
            (Quota::fixed_window(5, 30 * DAY), Unit::Month, None),
            (Quota::fixed_window(5, 31 * DAY), Unit::Day, Some(31)),
            (Quota::fixed_window(5, 14 * DAY), Unit::Week, Some(2)),
            (Quota::fixed_window(5, SECOND / 4), Unit::Second, None),
            // What refills in 1.5 s.
            (Quota::gcra(10, 5 * SECOND).burst(3), Unit::Second, Some(2)),
        ] {
            let limit = limit_of("api", &quota);
            assert_eq!(
                (limit.unit(), limit.unit_multiplier),
                (unit, multiplier),
                "{quota}"
            );
        }
        let most = limit_of("api", &Quota::fixed_window(1 << 40, DAY));
        assert_eq!(most.requests_per_unit, u32::MAX);
        let duration = whole_seconds(Duration::from_millis(60_200));
        assert_eq!((duration.seconds, duration.nanos), (61, 0));
    }
}
