//! Granting messages: how many of those at hand may pass.

use std::{sync::Arc, time::Duration};

use tollgate_core::{
    Decision, OnStoreError, Outcome, Pending, Reason, Retry, Step, Verdict, algorithm::Assessment,
    observe::Timer, store::Checks, types::WaitErrorKind,
};

use crate::message::call::Call;

/// How many messages may pass, at least one; or the decision that none may.
pub(super) type Grant = Result<u64, Box<Decision>>;

/// Requests up to this many messages; at least one.
pub(super) fn request(call: &Arc<Call>, messages: u64) -> Step<Grant> {
    let timer = Timer::start();
    let mut reply = None;
    if call.config.settings.message_wait.is_none() && !must_peek(call, messages) {
        let limiter = &call.config.rules.limiter;
        match limiter.attempt(&costs(call, messages)).decide() {
            // The usual answer needs no future.
            Step::Ready(decision) if decision.is_allowed() => {
                return Step::Ready(conclude(call, messages, decision, timer));
            }
            other => reply = Some(other),
        }
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
    if reply.is_none() && must_peek(call, messages) {
        let current = limiter.peek(&costs(call, messages)).await;
        messages = fewer(call, &current, messages).unwrap_or(messages);
    }
    loop {
        let decision = match (reply.take(), call.config.settings.message_wait) {
            (Some(reply), _) => reply.await,
            (None, None) => {
                let costs = costs(call, messages);
                limiter.attempt(&costs).decide().await
            }
            (None, Some(max_wait)) => {
                let patience = if messages == 1 {
                    max_wait
                } else {
                    Duration::ZERO
                };
                let costs_of_all = costs(call, messages);
                match limiter.attempt(&costs_of_all).within(patience).run().await {
                    Ok(decision) => decision,
                    Err(_) if messages > 1 => {
                        messages = 1;
                        continue;
                    }
                    Err(error) => {
                        let reason = match error.kind() {
                            WaitErrorKind::QueueFull => Reason::QueueFull,
                            _ => Reason::WaitExpired,
                        };
                        let current = limiter.peek(&costs(call, 1)).await;
                        match current.reason() {
                            None | Some(Reason::Quota) => {
                                turned_away(call, &current, max_wait).denied_for(reason)
                            }
                            Some(_) => current,
                        }
                    }
                }
            }
        };
        match fewer(call, &decision, messages) {
            Some(fewer) => messages = fewer,
            None => return conclude(call, messages, decision, timer),
        }
    }
}

/// The same, as denied by its rules: the queue has turned the message away, whatever fits by now.
fn turned_away(call: &Call, current: &Decision, max_wait: Duration) -> Decision {
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
    Decision::new(current.at(), denied, |verdict| {
        rules.enforces(verdict.rule())
    })
}

/// Whether to peek before acquiring: a shadow counts every attempt, and a block every denial, so several messages must not be
/// attempted repeatedly.
fn must_peek(call: &Call, messages: u64) -> bool {
    let rules = call.config.rules.set();
    messages > 1 && (!rules.all_enforced() || rules.has_blocks())
}

/// The checks of this many messages.
fn costs(call: &Call, messages: u64) -> Checks {
    let checks = call.checks.iter();
    checks
        .map(|check| check.with_cost(check.cost().saturating_mul(messages)))
        .collect()
}

/// With how many messages to retry after this decision; `None` if fewer would not help.
fn fewer(call: &Call, decision: &Decision, messages: u64) -> Option<u64> {
    match decision.reason() {
        _ if messages <= 1 || decision.outcome() != Outcome::Deny => return None,
        Some(Reason::Blocked) => return None,
        // It does not say how many a share or a cap holds.
        Some(Reason::StoreFailed) => {
            return is_above_shares(call, decision).then_some(messages / 2);
        }
        _ => {}
    }
    let rules = call.config.rules.set();
    let denied = decision.verdicts().iter().filter(|verdict| {
        verdict.outcome() == Outcome::Deny
            && verdict.has_numbers()
            && rules.enforces(verdict.rule())
    });
    let fit = denied.filter_map(|verdict| {
        let mut checks = call.checks.iter();
        // A request has at most one check per rule.
        let check = checks.find(|check| usize::from(check.rule()) == verdict.rule())?;
        verdict.remaining().checked_div(check.cost())
    });
    Some(fit.min().unwrap_or(0).clamp(1, messages - 1))
}

/// Whether shares or caps of this process deny all of them at once, while the store fails: they may hold fewer.
fn is_above_shares(call: &Call, decision: &Decision) -> bool {
    let rules = call.config.rules.set();
    let mut denied = decision
        .verdicts()
        .iter()
        .filter(|verdict| verdict.outcome() == Outcome::Deny && rules.enforces(verdict.rule()));
    denied.all(|verdict| {
        let mut checks = call.checks.iter();
        let check = checks.find(|check| usize::from(check.rule()) == verdict.rule());
        let answer = check.and_then(|check| check.policy().store_error_answer());
        let rule = rules.rules().get(verdict.rule());
        let answer = answer.or_else(|| rule.map(tollgate_core::Rule::store_error_answer));
        matches!(
            answer,
            Some(OnStoreError::LocalShare | OnStoreError::Cap(_))
        )
    })
}

/// Reports the decision, and turns it into a grant.
fn conclude(call: &Call, messages: u64, decision: Decision, timer: Timer) -> Grant {
    let limiter = &call.config.rules.limiter;
    limiter.report(&costs(call, messages), &decision, timer, "");
    match decision.is_allowed() {
        true => Ok(messages),
        false => Err(Box::new(decision)),
    }
}
