//! How messages come to their turn.

use std::sync::Arc;

use tollgate_core::{Checks, Decision, Outcome, Pending, Reason, Step};

use crate::{message::call::Call, observe::Timer};

/// What became of messages that asked for their turn.
#[derive(Debug)]
pub(super) enum Turn {
    /// So many of them may pass: one at least.
    Granted(u64),
    /// Not even one may.
    Denied(Decision),
}

impl Call {
    /// Asks for the turn of as many messages as there are at once; one at least.
    pub(super) fn ask(self: &Arc<Self>, messages: u64) -> Step<Turn> {
        let timer = Timer::start();
        #[cfg(feature = "tokio")]
        if let Some(up_to) = self.patience.up_to {
            let call = Arc::clone(self);
            return Step::Wait(Pending::new(async move {
                call.stand_in_line(messages, up_to, timer).await
            }));
        }
        #[cfg(not(feature = "tokio"))]
        let _ = self.patience;
        if self.has_to_look(messages) {
            let call = Arc::clone(self);
            return Step::Wait(Pending::new(async move {
                let messages = call.look(messages).await;
                let answer = call.acquire(messages);
                call.ask_for_fewer(messages, answer, timer).await
            }));
        }
        match self.acquire(messages) {
            Step::Ready(decision) if decision.is_allowed() => {
                Step::Ready(self.concluded(messages, decision, timer))
            }
            answer => {
                let call = Arc::clone(self);
                Step::Wait(Pending::new(async move {
                    call.ask_for_fewer(messages, answer, timer).await
                }))
            }
        }
    }

    /// Asks for fewer messages until they fit. That one does not is what is told: a client that comes back brings one.
    async fn ask_for_fewer(
        &self,
        mut messages: u64,
        mut answer: Step<Decision>,
        timer: Timer,
    ) -> Turn {
        loop {
            let decision = answer.await;
            match self.fewer(&decision, messages) {
                Some(fewer) => messages = fewer,
                None => return self.concluded(messages, decision, timer),
            }
            answer = self.acquire(messages);
        }
    }

    /// Whether to look before asking: a shadow counts every attempt, so that several messages are asked for once only.
    pub(super) fn has_to_look(&self, messages: u64) -> bool {
        messages > 1 && !self.config.rules.set().all_enforced()
    }

    /// As many of the messages as would pass now; one at least.
    pub(super) async fn look(&self, messages: u64) -> u64 {
        let looked = self.config.rules.limiter.peek(&self.costs(messages)).await;
        self.fewer(&looked, messages).unwrap_or(messages)
    }

    fn acquire(&self, messages: u64) -> Step<Decision> {
        self.config.rules.limiter.acquire(&self.costs(messages))
    }

    /// The checks of so many messages.
    pub(super) fn costs(&self, messages: u64) -> Checks {
        let checks = self.checks.iter();
        checks
            .map(|check| check.with_cost(check.cost().saturating_mul(messages)))
            .collect()
    }

    /// With how many messages to try again, of which so many were denied; `None` where that is of no use.
    pub(super) fn fewer(&self, decision: &Decision, messages: u64) -> Option<u64> {
        if messages <= 1
            || decision.outcome() != Outcome::Deny
            || decision.reason() == Some(Reason::StoreFailed)
        {
            return None;
        }
        let rules = self.config.rules.set();
        let denied = decision.verdicts().iter().filter(|verdict| {
            verdict.outcome() == Outcome::Deny
                && verdict.has_numbers()
                && rules.enforces(verdict.rule())
        });
        let fit = denied.filter_map(|verdict| {
            let mut checks = self.checks.iter();
            // A request has one check of a rule at most.
            let check = checks.find(|check| usize::from(check.rule()) == verdict.rule())?;
            verdict.remaining().checked_div(check.cost())
        });
        Some(fit.min().unwrap_or(0).clamp(1, messages - 1))
    }

    /// Tells of the decision on so many messages, and what follows from it.
    pub(super) fn concluded(&self, messages: u64, decision: Decision, timer: Timer) -> Turn {
        let rules = &self.config.rules;
        let bound = rules.limiter.rule_store().as_ref();
        rules
            .observer
            .decided(bound, &self.costs(messages), &decision, timer);
        if decision.is_allowed() {
            Turn::Granted(messages)
        } else {
            Turn::Denied(decision)
        }
    }
}
