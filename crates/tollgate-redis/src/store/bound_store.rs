//! A rule set on the store.

use std::{
    any::Any,
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{
    Check, Decision, KeyBuf, Pending, Rule, RuleError, RuleSet, Step, StoreError, StoreErrorKind,
    Tick,
    store::{
        ChargeFallback, Checks, CreditChange, CreditState, Fingerprint, Hold, PaidHook,
        ReservationStore, RuleStore, Settlement,
    },
    sync::{Mutex, lock},
    types::Balance,
};
use tollgate_prefilter::{Begin, BoundRules};

use crate::{
    connection::error::CallError,
    observe::CallFor,
    script::encoder::Encoder,
    store::{
        binding::Binding,
        context::{StoreContext, no_reply},
        credits::{change_args, restore_args, run_credits},
        in_flight::{Deciding, QueryInFlight, retire, send_follow_up},
        sender::end_rules,
        slots::release,
        unsupported::refuse_unsupported,
    },
};

/// A rule set on the store, until its last limiter and layer are gone.
pub(super) struct BoundStore {
    binding: Arc<Binding>,
}

impl BoundStore {
    pub(super) fn new(
        shared: Arc<StoreContext>,
        tasks: Option<Arc<JoinSet<()>>>,
        rules: Arc<RuleSet>,
    ) -> Result<Self, RuleError> {
        let encoder = Encoder::new(&rules, shared.keyspace.clone())?;
        let mut encoder = encoder.with_slot_term(shared.slot_term);
        let is_cluster = shared.backend.is_cluster();
        refuse_unsupported(&rules, &encoder, is_cluster, |rule| {
            shared.cap(rule).is_some()
        })?;
        let caps: Box<[_]> = rules.rules().iter().map(|rule| shared.cap(rule)).collect();
        for (rule, _) in rules.rules().iter().zip(&caps).filter(|it| it.1.is_some()) {
            encoder = encoder.with_overflow(rule.name())?;
        }
        let encoder = Arc::new(encoder);
        let places = encoder.places(is_cluster);
        let exact = |rule: &Rule| shared.exact(rule);
        let local = BoundRules::new(&shared.engine, Arc::clone(&rules), places, exact);
        let effective = |rule, plan| local.effective(rule, plan);
        let counts = shared.observer.bound(&rules, effective);
        let binding = Arc::new(Binding {
            local,
            counts,
            shared,
            rules,
            encoder,
            caps,
            bases: Default::default(),
            paid: Arc::default(),
            charge_fallback: Default::default(),
            looks_at: Mutex::new(Instant::now()),
            _tasks: tasks.map(|it| it as Arc<dyn Any + Send + Sync>),
        });
        Ok(Self { binding })
    }

    pub(super) fn binding(&self) -> &Arc<Binding> {
        &self.binding
    }

    fn begin(&self, begin: Begin) -> Step<Decision> {
        let query = match begin {
            Begin::Decided(decision) => {
                self.binding.shared.observer.saved_call();
                return Step::Ready(decision);
            }
            Begin::Query(query) => query,
        };
        match QueryInFlight::start(&self.binding, query, CallFor::Requests) {
            ControlFlow::Continue(in_flight) => Step::Wait(Pending::new(Deciding(Some(in_flight)))),
            ControlFlow::Break(decision) => Step::Ready(decision),
        }
    }

    fn reset_in_one_step(&self, checks: Checks) -> Step<Result<bool, StoreError>> {
        let binding = &self.binding;
        let mut call = binding.shared.new_call();
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
        let reset = binding.local.begin_reset(&checks, binding.now());
        let returned = reset.returned().iter();
        let returned = returned.map(|(check, it)| {
            // Leases for which there is no room stay here.
            let has_room = call.has_room_to_reset(checks.len(), 1);
            has_room.then(|| call.close(&binding.encoder, check, *it))?
        });
        let returned: SmallVec<[_; 1]> = returned.collect();
        let first = call.checks() as u16;
        let is_added = call.reset_all(&binding.encoder, &checks);
        debug_assert!(is_added, "there was room");
        // Below 65 535, as there was room.
        let on_redis = first..call.checks() as u16;
        if call.is_empty() {
            return Step::Ready(Ok(reset.was_counted()));
        }
        let sent = binding.shared.send(call, CallFor::Resets, None);
        let binding = Arc::clone(binding);
        Step::Wait(Pending::new(async move {
            let reply = sent.await;
            let was_counted = reset.was_counted();
            match &reply {
                Ok(reply) => reset.finish(Ok(&|index| {
                    let place = returned.get(index).copied().flatten();
                    place.is_none_or(|place| reply.refusal(place).is_some())
                })),
                Err(error) => reset.finish(Err(no_reply(error))),
            }
            let reply = reply?;
            if let Some(refusal) = reply.first_refusal() {
                return Err(CallError::of_server(refusal).into());
            }
            let was_kept = reply.was_kept(on_redis) || was_counted;
            match binding
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

impl RuleStore for BoundStore {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.binding.rules
    }

    fn may_block(&self) -> bool {
        self.binding.shared.may_block()
    }

    fn answers_within(&self) -> Duration {
        self.binding.shared.deadline
    }

    fn instances(&self) -> u32 {
        self.binding.shared.instances()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.binding.encoder.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.begin(self.binding.local.begin(checks, self.binding.now()))
    }

    fn acquire_within(&self, checks: &[Check], patience: Duration) -> Step<Decision> {
        let patience = Tick::try_from(patience.as_micros()).unwrap_or(Tick::MAX);
        let begin = (self.binding.local).begin_within(checks, patience, self.binding.now());
        self.begin(begin)
    }

    fn supports_wait(&self) -> bool {
        true
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        self.begin(self.binding.local.peek(checks, self.binding.now()))
    }

    fn settle(&self, holds: &[Hold], how: Settlement) {
        let now = self.binding.now();
        let follow_up = self.binding.local.settle(holds, how, now);
        send_follow_up(&self.binding, follow_up);
    }

    fn set_charge_fallback(&self, charge: ChargeFallback) {
        *lock(&self.binding.charge_fallback) = Some(charge);
    }

    fn set_base(&self, check: &Check, used: Option<u64>) {
        self.binding.set_base(check, used);
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        let counts = self.binding.counts.get(usize::from(rule));
        counts.map_or(0, |counts| counts.lapsed_units.load(Ordering::Relaxed))
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
        run_credits(&self.binding, check, change_args(change))
    }

    fn restore_credits(
        &self,
        check: &Check,
        state: &CreditState,
    ) -> Step<Result<Balance, StoreError>> {
        run_credits(&self.binding, check, restore_args(state))
    }

    fn paid(&self) -> Option<&PaidHook> {
        Some(&self.binding.paid)
    }

    fn supports_slots(&self) -> bool {
        true
    }

    fn release(&self, slots: &[Hold]) {
        let binding = &self.binding;
        release(&binding.shared, slots, |rule| {
            binding.encoder.state_name(rule)
        });
    }

    fn is_outlived(&self, slot: &Hold) -> bool {
        let Some(name) = self.binding.encoder.state_name(slot.check.rule()) else {
            return false;
        };
        let in_use = self.binding.shared.engine.slots();
        in_use.is_outlived(name, slot.check.key(), slot.number)
    }

    fn retire(&self) {
        retire(&self.binding);
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let steps = self.binding.local.places.steps(checks);
        if steps.len() <= 1 {
            return self.reset_in_one_step(Checks::from_slice(checks));
        }
        // The check that decides about a hash slot is in it.
        let steps = steps.iter().map(|step| {
            let checks = step.iter().map(|index| checks[usize::from(*index)]);
            self.reset_in_one_step(checks.collect())
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

impl Drop for BoundStore {
    fn drop(&mut self) {
        end_rules(&self.binding);
    }
}

tollgate_core::debug_fields!(BoundStore, it => rules: it.binding.rules, shared: it.binding.shared);
