//! Granting messages: how many of those at hand may pass.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Check, Decision, Outcome, Pending, Reason, Retry, Step, Verdict, algorithm::Assessment,
    observe::Timer, store::Checks, types::WaitErrorKind,
};

use crate::message::call::Call;

/// How many messages may pass, at least one; or the decision that none may.
pub(super) type Grant = Result<u64, Box<Decision>>;

/// Requests up to this many messages; at least one.
pub(super) fn request(call: &Arc<Call>, messages: u64) -> Step<Grant> {
    let timer = Timer::start();
    let mut reply = None;
    let counts_attempts = call.config.rules.set().counts_attempts();
    if call.config.settings.message_wait.is_none() && (messages == 1 || !counts_attempts) {
        let costs = costs(call, messages);
        reply = match call.config.rules.limiter.attempt(&costs).decide() {
            // The usual answer needs no future.
            Step::Ready(decision) if decision.is_allowed() => {
                return Step::Ready(conclude(call, &costs, messages, decision, timer));
            }
            reply => Some(reply),
        };
    }
    let call = Arc::clone(call);
    Step::Wait(Pending::new(async move {
        fitting(&call, messages, reply, timer).await
    }))
}

/// Requests fewer messages until they fit. The decision about a single message is the one reported: a client that retries
/// sends one. Where messages wait, a single one waits in the queue; several pass at once if they fit and no other call waits.
async fn fitting(
    call: &Call,
    mut messages: u64,
    mut reply: Option<Step<Decision>>,
    timer: Timer,
) -> Grant {
    let limiter = &call.config.rules.limiter;
    if reply.is_none() {
        messages = limiter.first_try(&call.checks, messages).await;
    }
    loop {
        let costs = costs(call, messages);
        let attempt = limiter.attempt(&costs);
        let decision = match (reply.take(), call.config.settings.message_wait) {
            (Some(reply), _) => reply.await,
            (None, None) => attempt.decide().await,
            (None, Some(_)) if messages > 1 => match attempt.within(Duration::ZERO).run().await {
                Ok(decision) => decision,
                Err(_) => {
                    messages = 1;
                    continue;
                }
            },
            (None, Some(max_wait)) => match attempt.within(max_wait).run().await {
                Ok(decision) => decision,
                Err(error) => turned_away(call, &costs, error.kind(), max_wait).await,
            },
        };
        match limiter.fewer(&call.checks, &decision, messages) {
            Some(fewer) => messages = fewer,
            None => return conclude(call, &costs, messages, decision, timer),
        }
    }
}

/// The denial of a message that the queue has turned away, by its rules, whatever fits by now.
async fn turned_away(
    call: &Call,
    cost: &[Check],
    why: WaitErrorKind,
    max_wait: Duration,
) -> Decision {
    let current = call.config.rules.limiter.peek(cost).await;
    if !matches!(current.reason(), None | Some(Reason::Quota)) {
        return current;
    }
    let rules = call.config.rules.set();
    let denied = current.verdicts().iter().map(|verdict| {
        if verdict.outcome() != Outcome::Allow || !rules.enforces(verdict.rule()) {
            return *verdict;
        }
        let reset_after = u64::try_from(verdict.reset_after().as_micros()).unwrap_or(u64::MAX);
        let retry = Retry::After(max_wait);
        let answer = Assessment::new(false, verdict.remaining(), reset_after, retry);
        // A request's plans and rules are fewer than 65 536.
        let (rule, plan) = (verdict.rule() as u16, verdict.plan() as u16);
        Verdict::new(rule, plan, answer, verdict.source())
    });
    let enforces = |verdict: &Verdict| rules.enforces(verdict.rule());
    Decision::new(current.at(), denied, enforces).denied_for(match why {
        WaitErrorKind::QueueFull => Reason::QueueFull,
        _ => Reason::WaitExpired,
    })
}

/// The checks of this many messages.
fn costs(call: &Call, messages: u64) -> Checks {
    let checks = call.checks.iter();
    checks
        .map(|check| check.with_cost(check.cost().saturating_mul(messages)))
        .collect()
}

/// Reports the decision, and turns it into a grant.
fn conclude(
    call: &Call,
    costs: &[Check],
    messages: u64,
    decision: Decision,
    timer: Timer,
) -> Grant {
    (call.config.rules.limiter).report(costs, &decision, timer, "");
    match decision.is_allowed() {
        true => Ok(messages),
        false => Err(Box::new(decision)),
    }
}
