//! A rule set on the store.

use std::{
    any::Any,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::Instant;
use tollgate_core::{
    Balance, Check, Decision, KeyBuf, Mode, Pending, Rule, RuleError, RuleErrorKind, RuleSet, Step,
    StoreError, StoreErrorKind, Tick,
    store::{
        ChargeFallback, Checks, CreditChange, CreditState, Fingerprint, Hold, PaidHook,
        ReservationStore, RuleStore, Settlement, SlotWaiters,
    },
};
use tollgate_prefilter::{Begin, BoundRules, NoReply, Query};

use crate::{
    observe::{CallFor, Stopwatch},
    script::encoder::Encoder,
    store::{
        credits::{change_credits, refuse_credits, restore_credits},
        in_flight::{Deciding, InFlight, retire, send_follow_up},
        inner::Inner,
        sender::RulesEnd,
        shared::{Shared, StoreTasks, did_not_run},
        slots::release,
        unsupported_waits::refuse_unsupported_waits,
    },
};

/// A rule set on the store.
#[derive(Clone)]
pub(super) struct Bound {
    inner: Arc<Inner>,
    /// With the last limiter and layer.
    _end: Option<Arc<RulesEnd>>,
}

impl Bound {
    pub(super) fn new(
        shared: Arc<Shared>,
        tasks: Option<Arc<StoreTasks>>,
        rules: Arc<RuleSet>,
    ) -> Result<Self, RuleError> {
        refuse_slots(&rules)?;
        let encoder = Encoder::new(&rules, shared.keyspace.clone())?;
        let mut encoder = encoder.with_slot_term(shared.slots.term);
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
            if rule.has_slots() {
                return Err(RuleError::new(
                    RuleErrorKind::Store,
                    rule.name(),
                    "slots of new clients cannot go to an overflow bucket, because each belongs to a request that runs; leave \
                     cap_new_keys out, and limit new clients by a rate in a rule of its own",
                ));
            }
            if rule.is_durable() {
                return Err(RuleError::new(
                    RuleErrorKind::Store,
                    rule.name(),
                    "clients in an overflow bucket have no accounts of their own; leave cap_new_keys out, or durable()",
                ));
            }
            encoder = encoder.with_overflow(rule.name())?;
        }
        refuse_unsupported_waits(&rules, &encoder, shared.backend.is_cluster())?;
        refuse_credits(&rules, &encoder)?;
        if shared.backend.is_cluster() {
            encoder.fits_a_cluster()?;
        }
        let encoder = Arc::new(encoder);
        let places = encoder.places(shared.backend.is_cluster());
        let exact = |rule: &Rule| shared.exact(rule);
        let local = BoundRules::new(&shared.engine, Arc::clone(&rules), places, exact);
        let effective = |rule, plan| local.effective(rule, plan);
        let counts = shared.observer.bound(&rules, effective, shared.instances());
        let inner = Arc::new(Inner {
            local,
            counts,
            shared,
            rules,
            encoder,
            caps,
            bases: Mutex::default(),
            paid: Arc::default(),
            charge_fallback: Mutex::default(),
            looks_at: Mutex::new(Instant::now()),
            _tasks: tasks.map(|it| it as Arc<dyn Any + Send + Sync>),
        });
        let is_local = inner.local.maintenance_interval().is_some();
        let end = is_local.then(|| Arc::new(RulesEnd(Arc::clone(&inner))));
        Ok(Self { inner, _end: end })
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    fn begin(&self, begin: Begin) -> Step<Decision> {
        match begin {
            Begin::Decided(decision) => {
                self.inner.count_decided(decision.verdicts());
                self.inner.shared.observer.saved_call();
                Step::Ready(decision)
            }
            Begin::Query(query) => self.send(query),
        }
    }

    fn send(&self, query: Query) -> Step<Decision> {
        match InFlight::start(&self.inner, query, CallFor::Requests) {
            ControlFlow::Continue(in_flight) => Step::Wait(Pending::new(Deciding::new(in_flight))),
            ControlFlow::Break(decision) => Step::Ready(decision),
        }
    }

    fn reset_in_one_slot(&self, checks: Checks) -> Step<Result<bool, StoreError>> {
        let inner = &self.inner;
        let mut call = inner.shared.new_call();
        // Before anything is taken out of this process.
        if !call.has_room_to_reset(checks.len(), 0) {
            return Step::Ready(Err(StoreError::new(
                StoreErrorKind::Misconfigured,
                format!(
                    "{} checks are too many for one call; reset fewer at once",
                    checks.len()
                ),
            )));
        }
        let reset = inner.local.begin_reset(&checks, inner.now());
        let returned = reset.returned().iter();
        let returned = returned.map(|(check, it)| {
            // Leases for which there is no room stay here.
            let has_room = call.has_room_to_reset(checks.len(), 1);
            has_room.then(|| call.close(&inner.encoder, check, *it))?
        });
        let returned: SmallVec<[_; 1]> = returned.collect();
        let first = call.checks();
        let is_added = call.reset_all(&inner.encoder, &checks);
        debug_assert!(is_added, "there was room");
        let on_redis = first..call.checks();
        if call.is_empty() {
            return Step::Ready(Ok(reset.was_counted()));
        }
        let stopwatch = Stopwatch::start();
        let (answer, size) = (inner.shared.send(&call, CallFor::Resets), call.checks());
        let inner = Arc::clone(inner);
        Step::Wait(Pending::new(async move {
            let reply = inner.shared.reply(stopwatch, answer.await, size);
            let was_counted = reset.was_counted();
            match &reply {
                Ok(reply) => reset.finish(Ok(&|index| {
                    let place = returned.get(index).copied().flatten();
                    place.is_none_or(|place| reply.refusal(place).is_some())
                })),
                Err(error) if did_not_run(error) => reset.finish(Err(NoReply::NotRun)),
                Err(_) => reset.finish(Err(NoReply::Unknown)),
            }
            let reply = reply?;
            if let Some(refusal) = reply.first_refusal() {
                return Err(refusal.into());
            }
            let was_kept = reply.was_kept(on_redis) || was_counted;
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
}

impl RuleStore for Bound {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.inner.rules
    }

    fn may_block(&self) -> bool {
        self.inner.shared.may_block()
    }

    fn answers_within(&self) -> Duration {
        self.inner.shared.deadline
    }

    fn instances(&self) -> u32 {
        self.inner.shared.instances()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.inner.encoder.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.begin(self.inner.local.begin(checks, self.inner.now()))
    }

    fn acquire_within(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        let patience = Tick::try_from(patience.as_micros()).unwrap_or(Tick::MAX);
        let begin = (self.inner.local).begin_within(checks, patience, self.inner.now());
        self.begin(begin)
    }

    fn supports_wait(&self) -> bool {
        true
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        match self.inner.local.peek(checks, self.inner.now()) {
            Begin::Decided(decision) => Step::Ready(decision),
            Begin::Query(query) => self.send(query),
        }
    }

    fn settle(&self, receipts: &[Hold], how: Settlement) {
        let now = self.inner.now();
        let follow_up = self.inner.local.settle(receipts, how, now);
        send_follow_up(&self.inner, follow_up);
    }

    fn set_charge_fallback(&self, charge: ChargeFallback) {
        self.inner.set_charge_fallback(charge);
    }

    fn set_base(&self, check: &Check, used: Option<u64>) {
        self.inner.set_base(check, used);
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        let plans = self.inner.counts.get(usize::from(rule));
        let counts = plans.and_then(|plans| plans.first());
        counts.map_or(0, |counts| counts.lapsed_units())
    }

    fn release_reserved(&self, id: u128, hold: &Hold) {
        self.release_record(id, *hold);
    }

    fn reservations(&self) -> Option<&dyn ReservationStore> {
        Some(self)
    }

    fn supports_credits(&self) -> bool {
        true
    }

    fn credits(&self, check: &Check, change: CreditChange) -> Step<Result<Balance, StoreError>> {
        change_credits(&self.inner, check, change)
    }

    fn restore_credits(
        &self,
        check: &Check,
        state: &CreditState,
    ) -> Step<Result<Balance, StoreError>> {
        restore_credits(&self.inner, check, state)
    }

    fn paid(&self) -> Option<&PaidHook> {
        Some(&self.inner.paid)
    }

    fn supports_slots(&self) -> bool {
        true
    }

    fn release(&self, slots: &[Hold]) {
        let inner = &self.inner;
        release(&inner.shared, slots, |rule| inner.encoder.state_name(rule));
    }

    fn is_outlived(&self, slot: &Hold) -> bool {
        let Some(name) = self.inner.encoder.state_name(slot.check.rule()) else {
            return false;
        };
        let in_use = self.inner.shared.slots.lock();
        (in_use.table).is_outlived(name, slot.check.key(), slot.number)
    }

    fn slot_waiters(&self) -> Option<&SlotWaiters> {
        Some(&self.inner.shared.slots.waiters)
    }

    fn retire(&self) {
        retire(&self.inner);
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let steps = self.inner.local.places.steps(checks);
        if steps.len() <= 1 {
            return self.reset_in_one_slot(Checks::from_slice(checks));
        }
        // The check that decides about a slot is in it.
        let steps = steps.iter().map(|step| {
            let checks = step.iter().map(|index| checks[usize::from(*index)]);
            self.reset_in_one_slot(checks.collect())
        });
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

/// Slots that Redis cannot count.
fn refuse_slots(rules: &RuleSet) -> Result<(), RuleError> {
    /// Counts of a process have 32 bits.
    const MOST: u64 = 1_000_000_000;
    let limits = |rule: &Rule| {
        (0..rule.quotas())
            .map(|plan| rule.quota_of(plan).limit())
            .max()
    };
    let slots = rules
        .given()
        .iter()
        .filter(|rule| rule.has_slots() && *rule.mode() != Mode::Off);
    for rule in slots {
        let limit = limits(rule).unwrap_or(0);
        if limit > MOST {
            return Err(RuleError::new(
                RuleErrorKind::Store,
                rule.name(),
                format!(
                    "{limit} slots are more than Redis counts; take at most {MOST}, or Quota::unlimited"
                ),
            ));
        }
    }
    Ok(())
}

tollgate_core::debug_fields!(Bound, it => rules: it.inner.rules, shared: it.inner.shared);
