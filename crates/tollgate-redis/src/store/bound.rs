//! A rule set on the store.

use std::{
    any::Any,
    fmt,
    sync::{Arc, RwLock, atomic::AtomicBool},
};

use smallvec::SmallVec;
use tollgate_core::{
    Check, Checks, Decision, Fingerprint, KeyBuf, Pending, RuleError, RuleSet, Source, Step,
    StoreError, StoreErrorKind,
    store::{Receipt, RuleStore, Settlement},
};

use crate::{
    encode::Encoder,
    observe::{CallFor, Timer},
    prefilter::{
        deny::DenyCache,
        filter::Prefilter,
        process_clock::process_clock,
        split::{Answer, Part, QueryExtras, Refunds},
    },
    store::{
        cross_slot, flusher::Flusher, heartbeat::Heartbeat, in_flight_reports::did_not_run,
        inner::Inner, meter::Meter, shared::Shared,
    },
};

/// A rule set on the store.
#[derive(Clone)]
pub(super) struct Bound {
    inner: Arc<Inner>,
    /// Ends with the last limiter and layer.
    _flusher: Option<Arc<Flusher>>,
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
        let clock = match &shared.clock {
            Some((clock, _)) => clock.clone(),
            None => process_clock(),
        };
        let exact = |rule: usize| shared.exact(&rules.rules()[rule]);
        let prefilter = Prefilter::new(
            &rules,
            clock,
            shared.denied.as_ref().map(DenyCache::view),
            exact,
        );
        let effective = |rule, plan| prefilter.effective(rule).nth(plan).flatten();
        let counts = shared
            .observer
            .bound(&rules, effective, shared.instances.known());
        let followed = |rule: usize, plan: usize| {
            let counts = || counts.get(rule)?.get(plan).cloned();
            exact(rule).map_or_else(counts, |_| None)
        };
        let meter = match shared.meter {
            Some(one_in) => {
                let (keyspace, now) = (shared.keyspace.clone(), prefilter.now());
                Some(Meter::new(one_in, &rules, keyspace, now, followed)?)
            }
            None => None,
        };
        let inner = Arc::new(Inner {
            prefilter,
            counts,
            meter,
            sending: RwLock::new(()),
            has_ended: AtomicBool::new(false),
            shared,
            rules,
            encoder,
            caps,
            _heartbeat: heartbeat.map(|it| it as Arc<dyn Any + Send + Sync>),
        });
        Ok(Self {
            _flusher: Flusher::start(&inner).map(Arc::new),
            inner,
        })
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Asks about what is left of a request of which a part is held here.
    fn query_part(&self, part: Box<Part>) -> Step<Decision> {
        let answer = self.query(&part.checks, &part.extras, true);
        let undecided = Undecided {
            bound: self.clone(),
            part: Some(part),
        };
        match answer {
            Step::Ready(decision) => Step::Ready(undecided.conclude(decision)),
            Step::Wait(answer) => Step::Wait(Pending::new(async move {
                let decision = answer.await;
                undecided.conclude(decision)
            })),
        }
    }

    /// Gives back to the store what is not held here any more.
    fn give_back(&self, back: Refunds) {
        if !back.is_empty() {
            self.inner.are_sent();
        }
        for (holding, units) in back {
            self.settle_in_store(&[holding], Settlement::Refund(units));
        }
    }

    fn query(&self, checks: &[Check], extras: &QueryExtras, takes: bool) -> Step<Decision> {
        if self.inner.shared.backend.is_cluster() {
            let groups = cross_slot::groups(&self.inner.encoder, checks);
            if groups.len() > 1 {
                let inner = Arc::clone(&self.inner);
                return Step::Wait(Pending::new(cross_slot::query(
                    inner, groups, extras, takes,
                )));
            }
        }
        Inner::query(&self.inner, checks, extras, takes, None)
    }

    /// Follows a request once it is decided.
    fn followed(&self, checks: &[Check], step: Step<Decision>) -> Step<Decision> {
        let answer = match step {
            Step::Ready(decision) => {
                self.inner.follow(checks, &decision);
                return Step::Ready(decision);
            }
            Step::Wait(answer) => answer,
        };
        let (inner, checks) = (Arc::clone(&self.inner), Checks::from_slice(checks));
        Step::Wait(Pending::new(async move {
            let decision = answer.await;
            inner.follow(&checks, &decision);
            decision
        }))
    }

    /// Before anything is answered here or asked of Redis, which have no sum of two plans.
    #[inline]
    fn deny_mistake(&self, checks: &[Check]) -> Option<Step<Decision>> {
        if checks.len() < 2 {
            return None;
        }
        Check::deny_two_plans(&self.inner.rules, checks).map(Step::Ready)
    }

    fn reset_in_one_slot(&self, checks: Checks) -> Step<Result<bool, StoreError>> {
        let inner = &self.inner;
        let mut call = inner.shared.begin();
        let mut was_counted = false;
        let mut all_grants = Vec::new();
        let mut closing = Vec::new();
        for check in checks.iter().filter(|check| check.cost() > 0) {
            let (grants, counted) = inner.prefilter.forget(check.rule(), check.key());
            inner.follow_reset(check.with_cost(0));
            closing.extend(inner.close(&mut call, &grants));
            all_grants.extend(grants);
            was_counted |= counted;
        }
        let first = call.checks();
        if !call.reset_all(&inner.encoder, &checks) {
            return Step::Ready(Err(StoreError::new(
                StoreErrorKind::Misconfigured,
                format!(
                    "{} checks are too many for one call; reset fewer at once",
                    checks.len()
                ),
            )));
        }
        let places = first..call.checks();
        if call.is_empty() {
            return Step::Ready(Ok(was_counted));
        }
        let timer = Timer::start();
        let (answer, size) = (inner.shared.send(&call, CallFor::Resets), call.checks());
        let inner = Arc::clone(inner);
        Step::Wait(Pending::new(async move {
            let reply = inner.shared.reply(timer, answer.await, size);
            if reply.as_ref().is_err_and(did_not_run) {
                inner.are_not_handed_back(&all_grants);
            }
            // Denials that were decided before may have come in between.
            for check in &checks {
                inner.prefilter.unlearn(check.key());
            }
            let reply = reply?;
            inner.keep_refused(&all_grants, &closing, &reply);
            if let Some(refusal) = reply.first_refusal() {
                return Err(refusal.into());
            }
            let was_kept = reply.was_kept(places) || was_counted;
            match inner
                .encoder
                .lies_with_another(&checks)
                .filter(|_| !was_kept)
            {
                Some(rule) => Err(StoreError::new(
                    StoreErrorKind::Misconfigured,
                    format!(
                        "nothing was found: with `Partition::ByRule`, the state lies with the client of rule {rule:?}; \
                         call `Limiter::reset_all` with a check of that rule as well, at a cost of 0 if it is not to be reset"
                    ),
                )),
                None => Ok(was_kept),
            }
        }))
    }

    fn settle_in_store(&self, holdings: &[Receipt], how: Settlement) {
        if !self.inner.shared.backend.is_cluster() {
            return self.inner.settle(holdings, how);
        }
        let checks: Checks = holdings.iter().map(|holding| holding.check).collect();
        for group in cross_slot::groups(&self.inner.encoder, &checks) {
            let held = group.places.iter().map(|place| holdings[*place]);
            let held: SmallVec<[Receipt; 4]> = held.collect();
            self.inner.settle(&held, how);
        }
    }
}

/// A request of which a part is held here, while the store is asked about the rest. Where nobody waits for that any more, the
/// request is not let through, and what is held goes back.
struct Undecided {
    bound: Bound,
    part: Option<Box<Part>>,
}

impl Undecided {
    fn conclude(mut self, decision: Decision) -> Decision {
        let Some(part) = self.part.take() else {
            return decision;
        };
        let inner = &self.bound.inner;
        let (decision, back) = inner.prefilter.conclude(&inner.rules, &part, &decision);
        self.bound.give_back(back);
        decision
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let back = self.bound.inner.prefilter.take_back(&part);
            self.bound.give_back(back);
        }
    }
}

impl RuleStore for Bound {
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
        if let Some(denied) = self.deny_mistake(checks) {
            return denied;
        }
        let prefilter = &self.inner.prefilter;
        let step = match prefilter.answer(&self.inner.rules, checks) {
            Answer::Here(decision) => {
                self.inner.count_decided(decision.verdicts());
                self.inner.follow(checks, &decision);
                return Step::Ready(decision);
            }
            Answer::LeaseQuery(extras) => self.query(checks, &extras, true),
            Answer::Part(part) => {
                self.inner.count_decided(part.held());
                self.query_part(part)
            }
        };
        if self.inner.follows(checks) {
            return self.followed(checks, step);
        }
        step
    }

    fn resolved(&self, checks: &[Check], decision: &Decision) {
        self.inner.follow_resolved(checks, decision);
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        if let Some(denied) = self.deny_mistake(checks) {
            return denied;
        }
        self.query(checks, &QueryExtras::default(), false)
    }

    fn settle(&self, holdings: &[Receipt], how: Settlement) {
        self.inner.follow_settlement(holdings, how);
        let mut rest: SmallVec<[Receipt; 4]> = SmallVec::new();
        let mut were_counted = false;
        for holding in holdings {
            let Some((holding, with)) = self.inner.prefilter.settle(holding, how) else {
                continue;
            };
            if holding.source == Source::Local && !were_counted {
                were_counted = true;
                self.inner.are_sent();
            }
            if with == how {
                rest.push(holding);
            } else {
                self.settle_in_store(&[holding], with);
            }
        }
        if !rest.is_empty() {
            self.settle_in_store(&rest, how);
        }
        // Some of it may have gone back to a lease.
        self.inner.hand_back_if_ended();
    }

    fn retire(&self) {
        self.inner.retire();
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let inner = &self.inner;
        if !inner.shared.backend.is_cluster() {
            return self.reset_in_one_slot(Checks::from_slice(checks));
        }
        let groups = cross_slot::groups(&inner.encoder, checks).into_iter();
        // Whoever says where the states of a group lie is in it.
        let steps = groups.map(|group| self.reset_in_one_slot(group.into_checks()));
        let steps: SmallVec<[Step<_>; 2]> = steps.collect();
        Step::Wait(Pending::new(async move {
            let mut answer = Ok(false);
            for step in steps {
                // All are waited for, also after an error.
                let of_group = step.await;
                answer = answer.and_then(|was_kept| Ok(was_kept | of_group?));
            }
            answer
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
