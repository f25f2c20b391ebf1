//! The response to a denied request.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use tollgate_core::{Decision, Key, Reason};

use crate::{
    head::Head,
    header::{
        applies,
        name::{RATELIMIT, RATELIMIT_POLICY},
        times::{retry_delay, write_retry_after},
    },
    key::NoKey,
    protocol::{Protocol, WireProtocol},
    rate_limit::{config::Config, request_rules::Refusal},
    rejection::Denial,
};

/// gRPC clients accept 8 KiB of header fields, counted as name, value and 32 bytes each. The rest is for the server and outer
/// layers.
const MAX_GRPC_FIELDS: usize = 7 * 1_024;

/// The fields of this many rules always fit, whatever their names.
pub(crate) const FEW_RULES: usize = 8;

/// An extension of a response: a denial by a layer that hides its quota. Outer layers write no quota fields on it either: what
/// they have left would reveal which layer denied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotaHidden;

/// The response to a request that a rule rejects because it has no key.
pub(crate) fn reject(config: &Config, head: &Head<'_>, refusal: &Refusal) -> Response<Bytes> {
    let decision = match refusal.why {
        NoKey::LookUpFailed => Decision::without_answer(),
        _ => Decision::without_key(),
    };
    config.rules.observe_refusal(refusal);
    let rules = config.rules.set();
    let denial = Denial::without_key(*head, &decision, rules, refusal.status, &refusal.why)
        .hide_quota(config.settings.hide_quota);
    let response = config
        .responses
        .respond(&denial, config.settings.protocol.of(head));
    with_extensions(config, response, &decision)
}

/// The response to a denial, with the quota's header fields. `seed` spreads the jitter over clients; `found` has keys that are not in
/// the head.
pub(crate) fn deny(
    config: &Config,
    head: &Head<'_>,
    decision: &Decision,
    seed: u64,
    found: &[(u16, Key)],
) -> Response<Bytes> {
    let verdicts = decision.verdicts();
    config.rules.denied(head, verdicts, decision, found);
    response(config, &denial(config, *head, decision, seed))
}

/// The response with the quota's header fields.
pub(crate) fn response(config: &Config, denial: &Denial<'_>) -> Response<Bytes> {
    let decision = denial.decision();
    let mut response = response_without_quota(config, denial);
    // A custom rejection may be a redirect to a page that explains the limit, or cacheable.
    if config.shows_quota
        && (!config.settings.rejection.is_custom()
            || applies(response.status(), response.headers()))
    {
        config.headers.write(
            response.headers_mut(),
            decision.verdicts(),
            config.rules.set(),
        );
        if decision.verdicts().len() > FEW_RULES {
            limit_size(config.settings.protocol, response.headers_mut());
        }
    }
    response
}

/// The response to a denial, with `Retry-After` only. A handler's denial passes through the layer, which then writes the
/// fields of all quotas together.
pub(crate) fn response_without_quota(config: &Config, denial: &Denial<'_>) -> Response<Bytes> {
    let protocol = config.settings.protocol.of(&denial.head());
    let mut response = config.responses.respond(denial, protocol);
    if let Some(delay) = denial.retry_after() {
        write_retry_after(response.headers_mut(), delay);
    }
    with_extensions(config, response, denial.decision())
}

pub(crate) fn denial<'a>(
    config: &'a Config,
    head: Head<'a>,
    decision: &'a Decision,
    seed: u64,
) -> Denial<'a> {
    let delay = retry_delay(decision.retry(), config.settings.jitter_percent, seed);
    let status = match decision.reason() {
        Some(Reason::StoreFailed) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Reason::Blocked) => {
            (config.rules).blocked_status(decision, config.settings.denied_status)
        }
        _ => config.settings.denied_status,
    };
    Denial::new(head, decision, config.rules.set(), status)
        .with_delay(delay)
        .hide_quota(config.settings.hide_quota)
}

/// Adds the decision and [`QuotaHidden`] to the response's extensions, if configured: each costs an allocation.
fn with_extensions(
    config: &Config,
    mut response: Response<Bytes>,
    decision: &Decision,
) -> Response<Bytes> {
    if config.settings.hide_quota {
        response.extensions_mut().insert(QuotaHidden);
    }
    if config.attach_decision {
        response.extensions_mut().insert(decision.clone());
    }
    response
}

/// Removes the quota's fields from a gRPC response that would be too long with them: its client would drop all of it, with the
/// message, or the status and the retry time.
pub(crate) fn limit_size(protocol: Protocol, fields: &mut HeaderMap) {
    if protocol.of_response(fields) == WireProtocol::Http {
        return;
    }
    let sizes = fields
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32);
    if sizes.sum::<usize>() > MAX_GRPC_FIELDS {
        fields.remove(RATELIMIT);
        fields.remove(RATELIMIT_POLICY);
    }
}
