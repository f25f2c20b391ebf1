//! The response to a denied request.

use bytes::Bytes;
use http::{HeaderMap, Response};
use tollgate_core::{Check, Decision, Key, Pending, Reason, Tick, Verdict};

use crate::{
    head::Head,
    header::{
        applies,
        name::{RATELIMIT, RATELIMIT_POLICY},
        times::{retry_delay, write_retry_after},
    },
    protocol::WireProtocol,
    rate_limit::{config::Config, request_rules::Refusal, slow, wait_room::field_bytes},
    rejection::Denial,
};

/// gRPC clients accept 8 KiB of header fields, counted as name, value and 32 bytes each. The rest is for the server and outer
/// layers.
const MAX_GRPC_FIELDS: usize = 7 * 1_024;

/// The fields of this many rules always fit, whatever their names.
const FEW_RULES: usize = 8;

/// An extension of a response: a denial by a layer that hides its quota. Outer layers write no quota fields on it either: what
/// they have left would reveal which layer denied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaHidden;

/// A response in the place of the service's, which may be held back.
pub(crate) struct Answered {
    pub(crate) response: Response<Bytes>,
    pub(crate) held: Option<Pending<()>>,
}

impl Answered {
    pub(crate) fn at_once(response: Response<Bytes>) -> Self {
        let held = None;
        Self { response, held }
    }
}

/// The denial of a request. `found` has keys that are not in the head.
pub(crate) fn deny(
    config: &Config,
    head: &Head<'_>,
    decision: &Decision,
    checks: &[Check],
    found: &[(u16, Key)],
) -> Answered {
    (config.rules).denied(head, decision.verdicts(), decision, found);
    let response = response(config, &denial(config, *head, decision, checks));
    let held = slow::hold(config, head, decision, &response);
    Answered { response, held }
}

/// The response to a request that a rule rejects because it has no key.
pub(crate) fn reject(config: &Config, head: &Head<'_>, refusal: &Refusal) -> Response<Bytes> {
    let (observer, reason) = (config.rules.limiter.observer(), refusal.reason());
    observer.unchecked(refusal.rule, Some(reason));
    let decision = Decision::without_key(reason);
    let denial = Denial {
        no_key: Some(&refusal.why),
        hide_quota: config.settings.hide_quota,
        ..Denial::new(*head, &decision, config.rules.set(), refusal.status)
    };
    response_without_quota(config, &denial)
}

/// The response with the quota's header fields.
pub(crate) fn response(config: &Config, denial: &Denial<'_>) -> Response<Bytes> {
    let mut response = response_without_quota(config, denial);
    // A custom rejection may be a redirect to a page that explains the limit, or cacheable.
    if config.shows_quota
        && (!config.settings.rejection.is_custom()
            || applies(response.status(), response.headers()))
    {
        let verdicts = denial.decision().verdicts();
        let decided = config.moment_of(denial.decision());
        config.write_quota(response.headers_mut(), verdicts, decided);
    }
    response
}

/// The response to a denial, with `Retry-After` only. A handler's denial passes through the layer, which then writes the
/// fields of all quotas together.
pub(crate) fn response_without_quota(config: &Config, denial: &Denial<'_>) -> Response<Bytes> {
    let protocol = config.settings.protocol.of(&denial.head());
    let mut response = config.responses.respond(denial, protocol);
    if let Some(delay) = denial.retry_after {
        write_retry_after(response.headers_mut(), delay);
    }
    // Each extension costs an allocation.
    if config.settings.hide_quota {
        response.extensions_mut().insert(QuotaHidden);
    }
    if config.attach_decision {
        response.extensions_mut().insert(denial.decision().clone());
    }
    response
}

/// The denial of these checks by the decision.
pub(crate) fn denial<'a>(
    config: &'a Config,
    head: Head<'a>,
    decision: &'a Decision,
    checks: &[Check],
) -> Denial<'a> {
    let mut status = config.settings.denied_status;
    if decision.reason() == Some(Reason::Blocked) {
        status = config.rules.blocked_status(decision, status);
    }
    let (jitter, seed) = (config.settings.jitter_percent, jitter_seed(checks));
    Denial {
        retry_after: retry_delay(decision.retry(), jitter, seed),
        hide_quota: config.settings.hide_quota,
        ..Denial::new(head, decision, config.rules.set(), status)
    }
}

/// The same for the same client, and another for each: from all keys, since some may be shared by all clients.
fn jitter_seed(checks: &[Check]) -> u64 {
    checks.iter().fold(0, |seed: u64, check| {
        // Two rules by one key must not cancel each other out.
        seed.rotate_left(7) ^ check.key().bits() as u64
    })
}

impl Config {
    /// Writes the quota's header fields, but none into a gRPC response that would be too long with them: its client would drop all of
    /// it, with the message, or the status and the retry time.
    pub(crate) fn write_quota(
        &self,
        fields: &mut HeaderMap,
        verdicts: &[Verdict],
        decided: Option<Tick>,
    ) {
        let listed = (self.headers).write(fields, verdicts, self.rules.set(), decided);
        if let Some(rule) = listed {
            self.rules.observer.listed_within(rule);
        }
        if verdicts.len() > FEW_RULES
            && self.settings.protocol.of_response(fields) != WireProtocol::Http
            && field_bytes(fields) > MAX_GRPC_FIELDS
        {
            fields.remove(RATELIMIT);
            fields.remove(RATELIMIT_POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tollgate_core::store::Fingerprint;

    use super::*;

    #[test]
    fn two_rules_by_one_key_have_a_jitter_of_that_key() {
        let seeds: BTreeSet<_> = (1..=100)
            .map(|key| {
                let check = |rule| Check::new(rule, Fingerprint::from_bits(key), 1);
                jitter_seed(&[check(0), check(1)])
            })
            .collect();
        assert_eq!(seeds.len(), 100);
    }
}
