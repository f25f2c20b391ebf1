//! A rule set on the store.

use std::{fmt, sync::Arc};

use tollgate_core::{
    BoundStore, Check, Checks, Decision, Fingerprint, Holding, KeyBuf, Outcome, Pending, RuleError,
    RuleSet, Settlement, Step, StoreError, Verdict,
};

use crate::{
    call::{Asked, Call},
    encode::Encoder,
    observe::Timer,
    store::{heartbeat::Heartbeat, shared::Shared},
};

/// A rule set on the store.
pub(super) struct Bound {
    shared: Arc<Shared>,
    rules: Arc<RuleSet>,
    encoder: Encoder,
    /// Ends with the last store, limiter and layer.
    _heartbeat: Option<Arc<Heartbeat>>,
}

/// Adds a request to a call.
type Add = fn(&mut Call, &Encoder, &[Check]) -> Option<Asked>;

impl Bound {
    pub(super) fn new(
        shared: Arc<Shared>,
        heartbeat: Option<Arc<Heartbeat>>,
        rules: Arc<RuleSet>,
    ) -> Result<Self, RuleError> {
        Ok(Self {
            encoder: Encoder::new(&rules, shared.keyspace.clone())?,
            shared,
            rules,
            _heartbeat: heartbeat,
        })
    }

    fn ask(&self, checks: &[Check], add: Add) -> Step<Decision> {
        let mut call = self.shared.begin();
        let Some(asked) = add(&mut call, &self.encoder, checks) else {
            // More checks than a call carries.
            return Step::Ready(without_answer(&self.rules, checks, Outcome::Failed));
        };
        if asked.is_nothing() {
            return Step::Ready(without_answer(&self.rules, checks, Outcome::NotAsked));
        }
        let timer = Timer::start();
        let answer = self.shared.send(&call);
        let (rules, checks) = (Arc::clone(&self.rules), Checks::from_slice(checks));
        let (shared, size) = (Arc::clone(&self.shared), call.checks());
        Step::Wait(Pending::new(async move {
            match shared.reply(timer, answer, size).await {
                Ok(reply) => reply.decision(&asked, &checks, &rules),
                Err(_) => without_answer(&rules, &checks, Outcome::Failed),
            }
        }))
    }
}

/// A decision that Redis has not made: it has failed, or there was nothing to ask.
fn without_answer(rules: &RuleSet, checks: &[Check], outcome: Outcome) -> Decision {
    let verdicts = checks
        .iter()
        .map(|check| Verdict::unanswered(check.rule(), check.plan(), outcome));
    Decision::new(0, verdicts, |verdict| rules.enforces(verdict.rule()))
}

impl BoundStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }

    fn instances(&self) -> u32 {
        self.shared.instances.known()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        let name = self.rules.rules().get(usize::from(rule));
        self.shared
            .fingerprint(name.map_or("", |rule| rule.name()), key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.ask(checks, Call::acquire)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.ask(checks, Call::peek)
    }

    fn settle(&self, holdings: &[Holding], how: Settlement) {
        let mut call = self.shared.begin();
        for holding in holdings {
            // A ticket holds the checks of one request, which are not more than a call carries.
            let _ = call.settle(&self.encoder, holding, how);
        }
        if !call.is_empty() && !self.shared.send_and_forget(&call) {
            self.shared.observer.settlement_lost();
        }
    }

    fn reset(&self, rule: u16, key: Fingerprint) -> Step<Result<(), StoreError>> {
        let mut call = self.shared.begin();
        let _ = call.reset(&self.encoder, rule, key);
        if call.is_empty() {
            return Step::Ready(Ok(()));
        }
        let timer = Timer::start();
        let (answer, size) = (self.shared.send(&call), call.checks());
        let shared = Arc::clone(&self.shared);
        Step::Wait(Pending::new(async move {
            shared.reply(timer, answer, size).await.map(drop)
        }))
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("rules", &self.rules)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
