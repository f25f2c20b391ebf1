//! Deciding a request by its head.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header, request};
use tollgate_core::{Check, Checks, Decision, Pending, observe::Timer};

use crate::{
    observe::Route,
    rate_limit::{
        config::Config,
        deny::reject,
        request_rules::{Refusal, RequestChecks},
    },
};

/// What the rules ask about a request.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Nothing: it passes.
    Nothing,
    /// The checks that were collected.
    Checks,
    /// The checks that were collected, once keys are looked up.
    LookUps,
    /// Nothing more: a rule rejects it, because it has no key.
    Rejected(Box<Response<Bytes>>),
}

/// The decision about a request that had to wait for it.
#[derive(Debug)]
pub(crate) enum Decided {
    /// It passes, and nothing remains to be done for it.
    Pass,
    /// It passes; the decision and the checks are kept for headers, a handler or a refund.
    Allow(Decision),
    /// It does not pass; the response needs the head, which the future had not at hand. With the seed of the jitter.
    Deny(Box<(Decision, u64)>),
    /// A rule rejects it because it has no key; the response needs the head.
    Refuse(Box<Refusal>),
}

/// Collects the checks of a request by its head and by whether it has a body.
///
/// `checks` is empty before the call. The caller owns it because it is large, so that it is moved at most once.
#[inline(always)]
pub(crate) fn ask(
    config: &Config,
    head: &request::Parts,
    has_body: bool,
    checks: &mut RequestChecks,
) -> Asked {
    if !config.count_preflight && is_preflight(head, has_body) {
        config.rules.observer.preflight();
        return Asked::Nothing;
    }
    if config.duplicates.has_counted(head) {
        config.rules.observer.applied_twice();
    }
    if let Err(refusal) = config.rules.collect(head, checks) {
        return Asked::Rejected(Box::new(reject(config, head, &refusal)));
    }
    if checks.has_look_ups() {
        Asked::LookUps
    } else if checks.checks.is_empty() {
        Asked::Nothing
    } else {
        Asked::Checks
    }
}

/// Decides a request whose keys are looked up.
pub(crate) async fn look_up(
    config: Arc<Config>,
    checks: RequestChecks,
    timer: Timer,
    route: Route,
) -> (Decided, Checks) {
    let checks = match config.rules.look_up(checks).await {
        Ok(checks) if checks.is_empty() => return (Decided::Pass, checks),
        Ok(checks) => checks,
        Err(refusal) => return (Decided::Refuse(refusal), Checks::new()),
    };
    let decision = config.rules.limiter.acquire_unreported(&checks).await;
    (conclude(&config, &checks, decision, timer, &route), checks)
}

/// Waits for the decision about a request.
pub(crate) async fn wait(
    config: Arc<Config>,
    checks: Checks,
    reply: Pending<Decision>,
    timer: Timer,
    route: Route,
) -> (Decided, Checks) {
    let decision = reply.await;
    (conclude(&config, &checks, decision, timer, &route), checks)
}

/// What follows from a decision for a request whose head is not at hand.
fn conclude(
    config: &Config,
    checks: &Checks,
    decision: Decision,
    timer: Timer,
    route: &Route,
) -> Decided {
    let limiter = &config.rules.limiter;
    limiter.report(checks, &decision, timer, route.as_str());
    if !decision.is_allowed() {
        Decided::Deny(Box::new((decision, jitter_seed(checks))))
    } else if is_done(config, &decision) {
        Decided::Pass
    } else {
        Decided::Allow(decision)
    }
}

/// Whether nothing remains to be done for an allowed request.
#[inline(always)]
pub(crate) fn is_done(config: &Config, decision: &Decision) -> bool {
    let is_complete = !config.shows_quota() && !config.rules.refunds;
    !config.attach_decision && (is_complete || decision.verdicts().is_empty())
}

/// Tells operators of a decision that was there at once.
#[inline]
pub(crate) fn report(
    config: &Config,
    head: &request::Parts,
    checks: &Checks,
    decision: &Decision,
    timer: Timer,
) {
    let route = match decision.is_allowed() {
        true => Route::default(),
        false => Route::of(head),
    };
    let limiter = &config.rules.limiter;
    limiter.report(checks, decision, timer, route.as_str());
}

/// The same for the same client, and another for each: from all keys, since some may be shared by all clients.
pub(crate) fn jitter_seed(checks: &[Check]) -> u64 {
    checks.iter().fold(0, |seed: u64, check| {
        // Two rules by one key must not cancel each other out.
        seed.rotate_left(7) ^ check.key().bits() as u64
    })
}

/// Whether this is a CORS preflight as browsers send it: without a body and without `Content-Type`. A request with either may
/// be work for a service that ignores the method.
pub(crate) fn is_preflight(head: &request::Parts, has_body: bool) -> bool {
    head.method == Method::OPTIONS
        && !has_body
        && head.headers.contains_key(header::ORIGIN)
        && head
            .headers
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && !head.headers.contains_key(header::CONTENT_TYPE)
}
