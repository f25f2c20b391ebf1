//! A rule set on the store.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::{
    BoundStore, Check, Checks, Clock, Decision, Fingerprint, Holding, KeyBuf, Outcome, Pending,
    RuleError, RuleSet, Settlement, Step, StoreError, StoreErrorKind, Verdict,
};

use crate::{
    call::Asked,
    encode::Encoder,
    new_keys::NewKeys,
    observe::Timer,
    reply::{NewKey, Reply},
    store::{heartbeat::Heartbeat, shared::Shared, turns},
};

/// A rule set on the store.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) inner: Arc<Inner>,
}

/// A rule set on the store, shared with the futures of its answers.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) rules: Arc<RuleSet>,
    pub(super) encoder: Encoder,
    /// By rule: how many keys this process may make.
    caps: Box<[Option<Arc<NewKeys>>]>,
    /// Ends with the last store, limiter and layer.
    _heartbeat: Option<Arc<Heartbeat>>,
}

impl Bound {
    pub(super) fn new(
        shared: Arc<Shared>,
        heartbeat: Option<Arc<Heartbeat>>,
        rules: Arc<RuleSet>,
    ) -> Result<Self, RuleError> {
        let mut encoder = Encoder::new(&rules, shared.keyspace.clone())?;
        let caps: Box<[_]> = rules
            .rules()
            .iter()
            .map(|rule| {
                let mut caps = shared.caps.iter();
                let (_, cap) = caps.find(|(name, _)| **name == *rule.name())?;
                Some(Arc::clone(cap))
            })
            .collect();
        for (rule, _) in rules
            .rules()
            .iter()
            .zip(&caps)
            .filter(|(_, cap)| cap.is_some())
        {
            encoder = encoder.with_overflow(rule.name())?;
        }
        if shared.backend.is_cluster() {
            encoder.fits_a_cluster()?;
        }
        Ok(Self {
            inner: Arc::new(Inner {
                shared,
                rules,
                encoder,
                caps,
                _heartbeat: heartbeat,
            }),
        })
    }

    fn ask(&self, checks: &[Check], takes: bool) -> Step<Decision> {
        if self.inner.shared.backend.is_cluster() {
            let groups = turns::groups(&self.inner.encoder, checks);
            if groups.len() > 1 {
                let inner = Arc::clone(&self.inner);
                return Step::Wait(Pending::new(turns::ask(inner, groups, takes)));
            }
        }
        Inner::ask(&self.inner, checks, takes)
    }
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
            match inner.shared.reply(timer, answer, size).await {
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

impl BoundStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.inner.rules
    }

    fn instances(&self) -> u32 {
        self.inner.shared.instances.known()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.inner.encoder.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.ask(checks, true)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.ask(checks, false)
    }

    fn settle(&self, holdings: &[Holding], how: Settlement) {
        if !self.inner.shared.backend.is_cluster() {
            return self.inner.settle(holdings, how);
        }
        let checks: Checks = holdings.iter().map(|holding| holding.check).collect();
        for group in turns::groups(&self.inner.encoder, &checks) {
            let held = group.places.iter().map(|place| holdings[*place]);
            let held: SmallVec<[Holding; 4]> = held.collect();
            self.inner.settle(&held, how);
        }
    }

    fn reset(&self, rule: u16, key: Fingerprint) -> Step<Result<(), StoreError>> {
        let inner = &self.inner;
        if !inner.encoder.is_found_alone(rule) {
            return Step::Ready(Err(StoreError::new(
                StoreErrorKind::Misconfigured,
                "with this partition a state is found only together with that of another rule; a reset cannot find it",
            )));
        }
        let mut call = inner.shared.begin();
        let _ = call.reset(&inner.encoder, rule, key);
        if call.is_empty() {
            return Step::Ready(Ok(()));
        }
        let timer = Timer::start();
        let (answer, size) = (inner.shared.send(&call), call.checks());
        let shared = Arc::clone(&inner.shared);
        Step::Wait(Pending::new(async move {
            shared.reply(timer, answer, size).await.map(drop)
        }))
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("rules", &self.inner.rules)
            .field("shared", &self.inner.shared)
            .finish_non_exhaustive()
    }
}
