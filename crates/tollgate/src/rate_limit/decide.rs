//! Deciding a request by its head.

use std::sync::Arc;

use http::{Method, header};
use tollgate_core::{Check, Decision, Step, layer::Waiting, observe::Timer, store::Checks};

use crate::{
    head::Head,
    key::look_ups::LookUps,
    observe::Route,
    rate_limit::{
        config::Config,
        request_rules::{KnownChecks, Refusal},
        wait_room::WaitPlace,
    },
};

/// What is known of a request whose decision was pending.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It is allowed, or denied: the response needs the head, which the future had not at hand.
    Decided(Decision),
    /// A rule rejects it because it has no key.
    Refused(Box<Refusal>),
    /// It waits.
    Waits(Box<Waiting>),
}

/// Decides a request whose keys are looked up.
pub(crate) async fn look_up(
    config: Arc<Config>,
    checks: Checks,
    look_ups: Box<LookUps>,
    timer: Timer,
    route: Route,
) -> (Progress, KnownChecks) {
    let known = match config.rules.look_up(checks, look_ups).await {
        Ok(known) => known,
        Err(refusal) => return (Progress::Refused(refusal), KnownChecks::default()),
    };
    if known.checks.is_empty() {
        return (Progress::Decided(Decision::unlimited(0)), known);
    }
    let reply = config.rules.limiter.attempt(&known.checks).decide();
    wait(config, known, reply, timer, route).await
}

/// Waits for the decision about a request.
pub(crate) async fn wait(
    config: Arc<Config>,
    known: KnownChecks,
    reply: Step<Decision>,
    timer: Timer,
    route: Route,
) -> (Progress, KnownChecks) {
    let decision = reply.await;
    let limiter = &config.rules.limiter;
    let attempt = limiter.attempt(&known.checks);
    if attempt.waits(&decision) {
        let waiting = Box::new(attempt.wait(decision));
        return (Progress::Waits(waiting), known);
    }
    limiter.report(&known.checks, &decision, timer, route.as_str());
    (Progress::Decided(decision), known)
}

/// Waits until a request may start. Without a place in the layer it is denied.
pub(crate) async fn delay(
    config: Arc<Config>,
    known: KnownChecks,
    waiting: Box<Waiting>,
    place: Option<WaitPlace>,
    route: Route,
) -> (Progress, KnownChecks) {
    let timer = Timer::start();
    let decision = start(*waiting, place).await;
    let limiter = &config.rules.limiter;
    limiter.report(&known.checks, &decision, timer, route.as_str());
    (Progress::Decided(decision), known)
}

async fn start(waiting: Waiting, place: Option<WaitPlace>) -> Decision {
    match place {
        Some(_held) => waiting.start().await,
        None => waiting.give_up().await,
    }
}

/// Decides checks of a handler, which waits where its rule says so, and tells operators nothing of it.
pub(crate) async fn acquire(config: &Config, checks: &[Check]) -> Decision {
    let attempt = config.rules.limiter.attempt(checks);
    let decision = attempt.decide().await;
    match attempt.waits(&decision) {
        // The handler holds the head.
        true => start(attempt.wait(decision), config.wait_room.enter(0)).await,
        false => decision,
    }
}

/// Whether this is a CORS preflight as browsers send it: without a body and without `Content-Type`. A request with either may
/// be work for a service that ignores the method.
#[inline]
pub(crate) fn is_preflight(head: &Head<'_>, has_no_body: impl FnOnce() -> bool) -> bool {
    *head.method == Method::OPTIONS
        && has_no_body()
        && head.headers.contains_key(header::ORIGIN)
        && head
            .headers
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && !head.headers.contains_key(header::CONTENT_TYPE)
}
