//! A rule set on the store.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::{
    BoundStore, Check, Checks, Decision, Fingerprint, Holding, KeyBuf, Pending, RuleError, RuleSet,
    Settlement, Step, StoreError, StoreErrorKind,
};

use crate::{
    encode::Encoder,
    observe::Timer,
    store::{heartbeat::Heartbeat, inner::Inner, shared::Shared, turns},
};

/// A rule set on the store.
#[derive(Clone)]
pub(super) struct Bound {
    inner: Arc<Inner>,
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
            shared.reply(timer, answer.await, size).map(drop)
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
