//! Deciding a request by its head.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Response, header};
use tokio::time::{Instant, sleep};
use tollgate_core::{
    Check, Decision, Pending, Reason, Step, Ticket, WaitErrorKind, layer::LayerLimiter,
    observe::Timer, store::Checks,
};

use crate::{
    head::Head,
    observe::Route,
    rate_limit::{
        config::Config,
        deny::reject,
        request_rules::{KnownChecks, Refusal, RequestChecks},
        wait_room::WaitPlace,
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

/// What is known of a request whose decision was pending.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It is decided.
    Decided(Decided),
    /// It waits.
    Waits(Box<Delayed>),
}

/// A request that waits: for the delay of its decision, or for a slot. Dropped before it starts, it gives its place in the queue
/// back.
#[derive(Debug)]
pub(crate) struct Delayed {
    /// `None`: others queue for the slots.
    decision: Option<Decision>,
    /// What a delay has taken.
    place: Option<Ticket>,
}

impl Delayed {
    pub(crate) fn new(
        limiter: &LayerLimiter,
        checks: &[Check],
        decision: Option<Decision>,
    ) -> Box<Self> {
        let delayed = decision.as_ref().filter(|it| !it.delay().is_zero());
        let place = delayed.map(|it| limiter.ticket(checks, it).cancel_on_drop());
        Box::new(Self { decision, place })
    }
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
    head: &Head<'_>,
    has_body: bool,
    checks: &mut RequestChecks,
) -> Asked {
    if !config.settings.count_preflight && is_preflight(head, has_body) {
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
) -> (Progress, KnownChecks) {
    let known = match config.rules.look_up(checks).await {
        Ok(known) => known,
        Err(refusal) => {
            let refused = Progress::Decided(Decided::Refuse(refusal));
            return (refused, KnownChecks::default());
        }
    };
    let checks = &known.checks;
    if checks.is_empty() {
        return (Progress::Decided(Decided::Pass), known);
    }
    let Some(reply) = acquire_first(&config, checks) else {
        let delayed = Delayed::new(&config.rules.limiter, checks, None);
        return (Progress::Waits(delayed), known);
    };
    let decision = reply.await;
    if waits(&config, &decision) {
        let delayed = Delayed::new(&config.rules.limiter, checks, Some(decision));
        return (Progress::Waits(delayed), known);
    }
    let decided = conclude(&config, checks, decision, timer, &route);
    (Progress::Decided(decided), known)
}

/// Waits for the decision about a request.
pub(crate) async fn wait(
    config: Arc<Config>,
    checks: Checks,
    reply: Pending<Decision>,
    timer: Timer,
    route: Route,
) -> (Progress, KnownChecks) {
    let decision = reply.await;
    if waits(&config, &decision) {
        let delayed = Delayed::new(&config.rules.limiter, &checks, Some(decision));
        return (Progress::Waits(delayed), checks.into());
    }
    let decided = conclude(&config, &checks, decision, timer, &route);
    (Progress::Decided(decided), checks.into())
}

/// Waits until a request may start: for its delay, in the queue for a slot, or both. Without a place in the layer it is denied.
pub(crate) async fn delay(
    config: Arc<Config>,
    known: KnownChecks,
    delayed: Box<Delayed>,
    place: Option<WaitPlace>,
    route: Route,
) -> (Progress, KnownChecks) {
    let (timer, checks) = (Timer::start(), &known.checks);
    let decision = wait_in_place(&config, checks, delayed, place).await;
    let decided = conclude(&config, checks, decision, timer, &route);
    (Progress::Decided(decided), known)
}

/// The same, with the metrics of the wait.
async fn wait_in_place(
    config: &Config,
    checks: &[Check],
    delayed: Box<Delayed>,
    place: Option<WaitPlace>,
) -> Decision {
    let limiter = &config.rules.limiter;
    let (began, waiting) = (Instant::now(), limiter.observer().waiting(checks));
    let decision = match &place {
        Some(_) => start_after_wait(limiter, checks, *delayed).await,
        None => deny_without_wait(limiter, checks, *delayed).await,
    };
    waiting.ended(&decision, began.elapsed());
    decision
}

/// Waits, and takes what is only taken at the start: slots, and units of rules that do not wait.
async fn start_after_wait(limiter: &LayerLimiter, checks: &[Check], delayed: Delayed) -> Decision {
    let began = Instant::now();
    let last = match delayed {
        Delayed {
            decision: Some(decision),
            place: Some(place),
        } => {
            let Ok(_counted) = limiter.enter_wait(checks) else {
                let (decision, place) = (Some(decision), Some(place));
                return deny_without_wait(limiter, checks, Delayed { decision, place }).await;
            };
            // From the receipt of the decision, never from the call.
            sleep(decision.delay()).await;
            place.forget();
            let started = limiter.start(checks, decision).await;
            if !limiter.waits_for_slots_after(&started) {
                return started;
            }
            Some(started)
        }
        Delayed { decision, .. } => decision,
    };
    let at_most = limiter.at_most_wait(checks).unwrap_or_default();
    let left = at_most.saturating_sub(began.elapsed());
    let reason = match limiter.acquire_within_unreported(checks, left, false).await {
        Ok(decision) => return decision,
        Err(error) if error.kind() == WaitErrorKind::QueueFull => Reason::QueueFull,
        Err(_) => Reason::WaitExpired,
    };
    match last {
        Some(decision) => decision.denied_for(reason),
        None => limiter.peek(checks).await.denied_for(reason),
    }
}

/// Decides checks of a handler, which waits where its rule says so, and tells operators nothing of it.
pub(crate) async fn acquire(config: &Config, checks: &[Check]) -> Decision {
    let decision = match acquire_first(config, checks) {
        Some(reply) => Some(reply.await),
        None => None,
    };
    match decision {
        Some(decision) if !waits(config, &decision) => decision,
        // The handler holds the head.
        decision => {
            let place = config.wait_room.enter(0);
            let delayed = Delayed::new(&config.rules.limiter, checks, decision);
            wait_in_place(config, checks, delayed, place).await
        }
    }
}

/// The queue is full.
async fn deny_without_wait(limiter: &LayerLimiter, checks: &[Check], delayed: Delayed) -> Decision {
    let Delayed { decision, place } = delayed;
    drop(place);
    let decision = match decision.filter(|decision| !decision.is_allowed()) {
        Some(denied) => denied,
        // The others in line go first.
        None if limiter.waits_for_slots(checks) => limiter.peek(checks).await,
        None => limiter.acquire_with_patience(checks, Duration::ZERO).await,
    };
    if decision.is_allowed() && !limiter.waits_for_slots(checks) {
        return decision;
    }
    decision.denied_for(Reason::QueueFull)
}

/// Asks the store about a request; `None` if others queue for its slots.
#[inline(always)]
pub(crate) fn acquire_first(config: &Config, checks: &[Check]) -> Option<Step<Decision>> {
    let limiter = &config.rules.limiter;
    if limiter.rules().has_waits() && config.wait_room.is_full() && !limiter.waits_for_slots(checks)
    {
        // No place is taken that would have to be given back.
        return Some(limiter.acquire_with_patience(checks, Duration::ZERO));
    }
    limiter.acquire_unless_queued(checks)
}

/// Whether a request waits after this decision.
#[inline]
pub(crate) fn waits(config: &Config, decision: &Decision) -> bool {
    !decision.delay().is_zero() || config.rules.limiter.waits_for_slots_after(decision)
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
    let is_complete = !config.settings.shows_quota() && !config.rules.refunds;
    let is_complete = is_complete && !config.rules.settles_by_response;
    let is_complete = is_complete && !config.rules.has_challenges();
    let holds_nothing = !config.attach_decision && !config.rules.holds_slots;
    holds_nothing && (is_complete || decision.verdicts().is_empty())
}

/// Tells operators of a decision that was there at once.
#[inline]
pub(crate) fn report(
    config: &Config,
    head: &Head<'_>,
    checks: &Checks,
    decision: &Decision,
    timer: Timer,
) {
    let route = match decision.is_allowed() {
        true => Route::default(),
        false => Route::of(head.extensions),
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
pub(crate) fn is_preflight(head: &Head<'_>, has_body: bool) -> bool {
    *head.method == Method::OPTIONS
        && !has_body
        && head.headers.contains_key(header::ORIGIN)
        && head
            .headers
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && !head.headers.contains_key(header::CONTENT_TYPE)
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
