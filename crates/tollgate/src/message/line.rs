//! How messages stand in line for their turn.

use std::time::Duration;

use tollgate_core::{
    Decision, Outcome, Verdict,
    algorithm::{Assessment, Retry},
};

use crate::{
    message::{call::Call, turn::Turn},
    observe::Timer,
};

impl Call {
    /// Waits for the turn of a message. Several pass at once where they fit and nobody stands in front.
    pub(super) async fn stand_in_line(
        &self,
        mut messages: u64,
        up_to: Duration,
        timer: Timer,
    ) -> Turn {
        let limiter = &self.config.rules.limiter;
        if self.has_to_look(messages) {
            messages = self.look(messages).await;
        }
        loop {
            let patience = if messages > 1 { Duration::ZERO } else { up_to };
            match limiter
                .acquire_within(&self.costs(messages), patience)
                .await
            {
                Ok(decision) => match self.fewer(&decision, messages) {
                    Some(fewer) => messages = fewer,
                    None => return self.concluded(messages, decision, timer),
                },
                Err(_) if messages > 1 => messages = 1,
                Err(_) => {
                    let looked = limiter.peek(&self.costs(1)).await;
                    let denial = self.too_late(&looked, up_to);
                    return self.concluded(1, denial, timer);
                }
            }
        }
    }

    /// The denial of a message whose turn did not come because of those in front. As long as they took in vain, at least,
    /// they will take again.
    fn too_late(&self, looked: &Decision, up_to: Duration) -> Decision {
        let rules = self.config.rules.set();
        let denied = looked.verdicts().iter().map(|verdict| {
            if !rules.enforces(verdict.rule()) {
                return *verdict;
            }
            let answer = Assessment {
                fits: false,
                remaining: verdict.remaining(),
                reset_after: micros(verdict.reset_after()),
                retry: match verdict.outcome() {
                    // That is when it would pass again.
                    Outcome::Allow => Retry::After(up_to),
                    _ => verdict.retry().or_later(Retry::After(up_to)),
                },
            };
            // A request's plans and rules are fewer than 65 536.
            let (rule, plan) = (verdict.rule() as u16, verdict.plan() as u16);
            Verdict::new(rule, plan, answer, verdict.source())
        });
        Decision::new(looked.at(), denied, |verdict| {
            rules.enforces(verdict.rule())
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
