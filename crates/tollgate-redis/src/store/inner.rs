//! A rule set on the store, as the futures of its answers share it.

use std::sync::Arc;

use tollgate_core::{
    Check, Checks, Clock, Decision, Holding, Outcome, Pending, RuleSet, Settlement, Step, Verdict,
};

use crate::{
    call::Asked,
    encode::Encoder,
    new_keys::NewKeys,
    observe::Timer,
    reply::{NewKey, Reply},
    store::{heartbeat::Heartbeat, shared::Shared},
};

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Encoder,
    /// By rule: how many keys this process may make.
    pub(super) caps: Box<[Option<Arc<NewKeys>>]>,
    /// Ends with the last store, limiter and layer.
    pub(super) _heartbeat: Option<Arc<Heartbeat>>,
}

impl Inner {
    /// Asks about checks that are decided in one step.
    pub(super) fn ask(self: &Arc<Self>, checks: &[Check], takes: bool) -> Step<Decision> {
        let mut call = self.shared.begin();
        let asked = if !takes {
            call.peek(&self.encoder, checks)
        } else if self.shared.caps.is_empty() {
            call.acquire(&self.encoder, checks)
        } else {
            let now = Clock::system().now();
            call.acquire_capped(&self.encoder, checks, |rule| {
                self.cap(rule).is_none_or(|cap| cap.take(now))
            })
        };
        let Some(asked) = asked else {
            // More checks than a call carries.
            return Step::Ready(self.without_answer(checks, Outcome::Failed));
        };
        if asked.is_nothing() {
            return Step::Ready(self.without_answer(checks, Outcome::NotAsked));
        }
        let timer = Timer::start();
        let answer = self.shared.send(&call);
        let (inner, checks) = (Arc::clone(self), Checks::from_slice(checks));
        let size = call.checks();
        Step::Wait(Pending::new(async move {
            match inner.shared.reply(timer, answer.await, size) {
                Ok(reply) => {
                    inner.note_new_keys(&reply, &asked);
                    reply.decision(&asked, &checks, &inner.rules)
                }
                Err(_) => inner.without_answer(&checks, Outcome::Failed),
            }
        }))
    }

    fn cap(&self, rule: u16) -> Option<&NewKeys> {
        self.caps.get(usize::from(rule))?.as_deref()
    }

    fn note_new_keys(&self, reply: &Reply, asked: &Asked) {
        for told in reply.new_keys(asked) {
            match told.new_key {
                NewKey::Made => self.shared.observer.key_made(),
                NewKey::Refused => self.shared.observer.key_refused(),
                NewKey::No => {}
            }
            if told.may_make
                && told.new_key != NewKey::Made
                && let Some(cap) = self.cap(told.rule)
            {
                cap.give_back();
            }
        }
    }

    /// A decision that Redis has not made: it has failed, or there was nothing to ask.
    fn without_answer(&self, checks: &[Check], outcome: Outcome) -> Decision {
        let verdicts = checks
            .iter()
            .map(|check| Verdict::unanswered(check.rule(), check.plan(), outcome));
        Decision::new(0, verdicts, |verdict| self.rules.enforces(verdict.rule()))
    }

    pub(super) fn settle(&self, holdings: &[Holding], how: Settlement) {
        let mut call = self.shared.begin();
        if !call.settle_all(&self.encoder, holdings, how) {
            return self.shared.observer.settlement_lost();
        }
        if !call.is_empty() {
            self.shared.settle(&call);
        }
    }
}
