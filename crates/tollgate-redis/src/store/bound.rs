//! A rule set on the store.

use std::{fmt, sync::Arc};

use tollgate_core::{
    BoundStore, Check, Checks, Decision, Fingerprint, Holding, KeyBuf, Outcome, Pending, RuleError,
    RuleSet, Settlement, Step, StoreError, StoreErrorKind, Verdict,
};

use crate::{
    call::{Asked, Call},
    encode::Encoder,
    reply::Reply,
    store::shared::{Shared, integers},
};

/// A rule set on the store.
pub(super) struct Bound {
    shared: Arc<Shared>,
    rules: Arc<RuleSet>,
    encoder: Encoder,
}

/// Adds a request to a call.
type Add = fn(&mut Call, &Encoder, &[Check]) -> Option<Asked>;

impl Bound {
    pub(super) fn new(shared: Arc<Shared>, rules: Arc<RuleSet>) -> Result<Self, RuleError> {
        Ok(Self {
            encoder: Encoder::new(&rules, shared.keyspace.clone())?,
            shared,
            rules,
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
        let answer = self.shared.send(&call);
        let (rules, checks) = (Arc::clone(&self.rules), Checks::from_slice(checks));
        let size = call.checks();
        Step::Wait(Pending::new(async move {
            let reply = integers(answer.await).ok().flatten();
            match reply.and_then(|integers| Reply::new(size, integers)) {
                Some(reply) => reply.decision(&asked, &checks, &rules),
                None => without_answer(&rules, &checks, Outcome::Failed),
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
        if !call.is_empty() {
            self.shared.send_and_forget(&call);
        }
    }

    fn reset(&self, rule: u16, key: Fingerprint) -> Step<Result<(), StoreError>> {
        let mut call = self.shared.begin();
        let _ = call.reset(&self.encoder, rule, key);
        if call.is_empty() {
            return Step::Ready(Ok(()));
        }
        let (answer, size) = (self.shared.send(&call), call.checks());
        Step::Wait(Pending::new(async move {
            let integers = integers(answer.await)?;
            match integers.and_then(|integers| Reply::new(size, integers)) {
                Some(_) => Ok(()),
                None => Err(StoreError::new(
                    StoreErrorKind::Protocol,
                    "Redis answered a reset with something else",
                )),
            }
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
