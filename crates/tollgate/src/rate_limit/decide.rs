//! Deciding a request by its head.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header, request};
use tollgate_core::{Check, Checks, Decision, Pending, Step};

use crate::{
    observe::Timer,
    rate_limit::{
        config::Config,
        deny::{deny, reject},
        request_rules::{Refusal, RequestChecks},
    },
};

/// The decision about a request.
#[derive(Debug)]
pub(crate) enum Decided {
    /// It passes, and nothing remains to be done for it.
    Pass,
    /// It passes; the decision and the checks are kept for headers, a handler or a refund.
    Allow(Decision),
    /// It does not pass; this is the response.
    Rejected(Box<Response<Bytes>>),
    /// It does not pass; the response needs the head, which the future had not at hand. With the seed of the jitter.
    Deny(Box<(Decision, u64)>),
    /// A rule rejects it because it has no key; the response needs the head.
    Refuse(Box<Refusal>),
}

/// A decision, now or later.
#[derive(Debug)]
pub(crate) enum Deciding {
    /// About the given checks.
    Now(Decided),
    /// About these checks.
    Later(Pending<(Decided, Checks)>),
}

/// Decides a request by its head and by whether it has a body.
///
/// `checks` is empty before the call. The caller owns it because it is large, so that it is moved at most once.
#[inline(always)]
pub(crate) fn decide(
    config: &Arc<Config>,
    head: &request::Parts,
    has_body: bool,
    checks: &mut RequestChecks,
) -> Deciding {
    let timer = Timer::start();
    if !config.count_preflight && is_preflight(head, has_body) {
        config.rules.observer.preflight();
        return Deciding::Now(Decided::Pass);
    }
    if config.duplicates.has_counted(head) {
        config.rules.observer.applied_twice();
    }
    if let Err(refusal) = config.rules.collect(head, checks) {
        let response = reject(config, head, &refusal);
        return Deciding::Now(Decided::Rejected(Box::new(response)));
    }
    if checks.has_look_ups() {
        let checks = std::mem::take(checks);
        return Deciding::Later(Pending::new(look_up(Arc::clone(config), checks, timer)));
    }
    if checks.checks.is_empty() {
        return Deciding::Now(Decided::Pass);
    }
    match config.rules.limiter.acquire(&checks.checks) {
        Step::Ready(decision) => {
            observe(config, &checks.checks, &decision, timer);
            Deciding::Now(if decision.is_allowed() {
                allow(config, decision)
            } else {
                deny_now(config, head, &decision, &checks.checks)
            })
        }
        Step::Wait(reply) => {
            let (config, checks) = (Arc::clone(config), std::mem::take(&mut checks.checks));
            Deciding::Later(Pending::new(async move {
                (conclude(&config, &checks, reply.await, timer), checks)
            }))
        }
    }
}

/// Denies a request whose head is at hand.
#[inline(never)]
fn deny_now(
    config: &Config,
    head: &request::Parts,
    decision: &Decision,
    checks: &[Check],
) -> Decided {
    let response = deny(config, head, decision, jitter_seed(checks));
    Decided::Rejected(Box::new(response))
}

/// Decides a request whose keys are looked up.
async fn look_up(config: Arc<Config>, checks: RequestChecks, timer: Timer) -> (Decided, Checks) {
    let checks = match config.rules.clone().look_up(checks).await {
        Ok(checks) if checks.is_empty() => return (Decided::Pass, checks),
        Ok(checks) => checks,
        Err(refusal) => return (Decided::Refuse(refusal), Checks::new()),
    };
    let decision = config.rules.limiter.acquire(&checks).await;
    (conclude(&config, &checks, decision, timer), checks)
}

/// What follows from a decision for a request whose head is not at hand.
fn conclude(config: &Config, checks: &Checks, decision: Decision, timer: Timer) -> Decided {
    observe(config, checks, &decision, timer);
    if decision.is_allowed() {
        allow(config, decision)
    } else {
        Decided::Deny(Box::new((decision, jitter_seed(checks))))
    }
}

#[inline(always)]
fn allow(config: &Config, decision: Decision) -> Decided {
    let is_complete = !config.shows_quota() && !config.rules.refunds;
    if !config.attach_decision && (is_complete || decision.verdicts().is_empty()) {
        return Decided::Pass;
    }
    Decided::Allow(decision)
}

#[inline]
fn observe(config: &Config, checks: &Checks, decision: &Decision, timer: Timer) {
    let rules = &config.rules;
    let store = rules.limiter.rule_store().as_ref();
    rules.observer.decided(store, checks, decision, timer);
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
