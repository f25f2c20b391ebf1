//! A rule set on the store.

use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{task::JoinSet, time::Instant};
use tollgate_core::{
    Check, Clock, Decision, KeyBuf, Pending, Rule, RuleError, RuleSet, Step, StoreError,
    StoreErrorKind, micros,
    store::{
        ChargeFallback, Checks, CreditChange, CreditState, Fingerprint, Hold, PaidHook,
        ReservationStore, RuleStore, Settlement, wake,
    },
    sync::{Mutex, lock},
    types::Balance,
};
use tollgate_prefilter::{Begin, LeaseReply, LocalRules, Next, Reply};

use crate::{
    connection::error::CallError,
    observe::CallFor,
    script::{encoder::Encoder, reply::ScriptReply},
    store::{
        context::StoreContext,
        credits::{change_args, restore_args, run_credits},
        in_flight::{Deciding, QueryInFlight, send_alone, send_follow_up},
        rule_set_context::RuleSetContext,
        sender::end_rules,
        slots::report,
        unsupported::refuse_unsupported,
    },
};

/// A rule set on the store, until its last limiter and layer are gone.
pub(super) struct RedisRuleStore {
    pub(super) context: Arc<RuleSetContext>,
}

impl RedisRuleStore {
    pub(super) fn new(
        shared: Arc<StoreContext>,
        tasks: Option<Arc<JoinSet<()>>>,
        rules: Arc<RuleSet>,
    ) -> Result<Self, RuleError> {
        let keyspace = shared.keyspace.clone();
        let is_cluster = shared.backend.is_cluster();
        let is_capped = |rule: &Rule| shared.cap(rule).is_some();
        let encoder =
            Encoder::with_caps(&rules, keyspace, shared.slot_term, is_cluster, is_capped)?;
        refuse_unsupported(&rules, &encoder)?;
        let caps = rules.rules().iter().map(|rule| shared.cap(rule)).collect();
        let encoder = Arc::new(encoder);
        let exact = |rule: &Rule| shared.exact(rule);
        let local = LocalRules::new(&shared.engine, Arc::clone(&rules), encoder.places, exact);
        let effective = |rule, plan| local.effective(rule, plan);
        let lapsed_units = shared.observer.bound(&rules, effective);
        let context = Arc::new(RuleSetContext {
            local,
            lapsed_units,
            store: shared,
            rules,
            encoder,
            caps,
            paid: Arc::default(),
            charge_fallback: Default::default(),
            looks_at: Mutex::new(Instant::now()),
            _tasks: tasks,
        });
        Ok(Self { context })
    }
}

impl RuleStore for RedisRuleStore {
    fn rules(&self) -> &Arc<RuleSet> {
        &self.context.rules
    }

    fn clock(&self) -> Clock {
        self.context.store.process_clock.clone()
    }

    fn supports(&self, _: &Rule) -> bool {
        true
    }

    fn answers_within(&self) -> Duration {
        self.context.store.deadline
    }

    fn instances(&self) -> u32 {
        self.context.store.instances()
    }

    fn fingerprint(&self, rule: u16, key: &KeyBuf) -> Fingerprint {
        self.context.encoder.fingerprint(rule, key)
    }

    fn acquire(&self, checks: &[Check]) -> Step<Decision> {
        self.acquire_within(checks, Duration::MAX, &[])
    }

    fn acquire_within(
        &self,
        checks: &[Check],
        patience: Duration,
        bases: &[(Check, u64)],
    ) -> Step<Decision> {
        let (local, now) = (&self.context.local, self.context.now());
        let begin = local.begin(checks, micros(patience), now);
        self.begin(checks, begin, bases)
    }

    fn peek(&self, checks: &[Check]) -> Step<Decision> {
        let begin = self.context.local.peek(checks, self.context.now());
        self.begin(checks, begin, &[])
    }

    fn settle(&self, holds: &[Hold], how: Settlement) {
        let now = self.context.now();
        let follow_up = self.context.local.settle(holds, how, now);
        send_follow_up(&self.context, follow_up);
    }

    fn set_charge_fallback(&self, charge: ChargeFallback) {
        *lock(&self.context.charge_fallback) = Some(charge);
    }

    fn lapsed_units(&self, rule: u16) -> u64 {
        let lapsed = self.context.lapsed_units.get(usize::from(rule));
        lapsed.map_or(0, |units| units.load(Ordering::Relaxed))
    }

    fn release_reserved(&self, id: u128, hold: &Hold) {
        self.release_record(id, *hold);
    }

    fn reservations(&self) -> Option<&dyn ReservationStore> {
        Some(self)
    }

    fn credits(&self, check: &Check, change: CreditChange) -> Step<Result<Balance, StoreError>> {
        run_credits(&self.context, check, change_args(change))
    }

    fn restore_credits(
        &self,
        check: &Check,
        state: &CreditState,
    ) -> Step<Result<Balance, StoreError>> {
        run_credits(&self.context, check, restore_args(state))
    }

    fn paid(&self) -> Option<&PaidHook> {
        Some(&self.context.paid)
    }

    fn release(&self, slots: &[Hold]) {
        let store = &self.context.store;
        let now = store.process_clock.now();
        let mut in_use = store.engine.slots();
        for slot in slots {
            let check = &slot.check;
            if let Some(rule) = self.context.encoder.rule(check.rule()) {
                let count = u32::try_from(check.cost()).unwrap_or(u32::MAX);
                in_use.end_request(&rule.name, check.key(), slot.number, count, now);
            }
        }
        report(store, in_use, now);
        slots.iter().for_each(|slot| wake(slot.check.key()));
    }

    fn is_outlived(&self, slot: &Hold) -> bool {
        let Some(rule) = self.context.encoder.rule(slot.check.rule()) else {
            return false;
        };
        let in_use = self.context.store.engine.slots();
        in_use.is_outlived(&rule.name, slot.check.key(), slot.number)
    }

    fn retire(&self) {
        let context = &self.context;
        send_alone(context, context.local.retire(context.now()));
    }

    fn reset(&self, checks: &[Check]) -> Step<Result<bool, StoreError>> {
        let places = self.context.local.places;
        let steps = places.steps(checks, checks.iter().copied());
        if steps.len() <= 1 {
            return self.reset_in_one_step(Checks::from_slice(checks));
        }
        // The check that decides about a hash slot is in it.
        let steps = steps.map(|checks| self.reset_in_one_step(checks.into_iter().collect()));
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

impl RedisRuleStore {
    fn begin(&self, checks: &[Check], begin: Begin, bases: &[(Check, u64)]) -> Step<Decision> {
        let query = match begin {
            Begin::Decided(decision) => {
                self.context.store.observer.saved_call();
                return Step::Ready(decision);
            }
            Begin::Query(query) => query,
        };
        match QueryInFlight::start(&self.context, query, checks, bases) {
            ControlFlow::Continue(in_flight) => Step::Wait(Pending::new(Deciding(Some(in_flight)))),
            ControlFlow::Break(decision) => Step::Ready(decision),
        }
    }

    fn reset_in_one_step(&self, checks: Checks) -> Step<Result<bool, StoreError>> {
        let context = &self.context;
        let now = context.now();
        let mut call = context.store.new_call(now);
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
        let (query, was_counted) = context.local.begin_reset(&checks, now);
        let returned = query.leases.iter().map(|item| {
            // Leases for which there is no room stay here.
            let has_room = call.has_room_to_reset(checks.len(), 1);
            has_room.then(|| call.close(&context.encoder, &item.check, item.query.returned?))?
        });
        let returned: SmallVec<[Option<u16>; 1]> = returned.collect();
        let first = call.checks() as u16;
        let is_added = call.reset_all(&context.encoder, &checks);
        debug_assert!(is_added, "there was room");
        // Below 65 535, as there was room.
        let on_redis = first..call.checks() as u16;
        if call.is_empty() {
            return Step::Ready(Ok(was_counted));
        }
        let sent = context.store.send_in_time(call, CallFor::Resets);
        let context = Arc::clone(context);
        Step::Wait(Pending::new(async move {
            let reply = sent.await;
            let answer = match &reply {
                Ok(reply) => Ok(answer_to_reset(reply, &returned)),
                Err(error) => Err(error.no_reply()),
            };
            if let Next::Done(_, follow_up) = query.finish(answer, context.now()) {
                send_follow_up(&context, follow_up);
            }
            let reply = reply?;
            if let Some(refusal) = reply.first_refusal() {
                return Err(CallError::of_server(refusal).into());
            }
            let was_kept = reply.was_kept(on_redis) || was_counted;
            match context
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

/// What the engine is answered to a reset, before which the leases at these places went back.
fn answer_to_reset(reply: &ScriptReply, returned: &[Option<u16>]) -> Reply {
    let mut answer = Reply::new(Decision::new(reply.at, [], |_| true));
    let leases = returned.iter().map(|place| LeaseReply {
        is_refused: reply.was_refused(*place),
        grant: Ok(None),
    });
    answer.leases = leases.collect();
    answer
}

impl Drop for RedisRuleStore {
    fn drop(&mut self) {
        end_rules(&self.context);
    }
}

tollgate_core::debug_fields!(RedisRuleStore, it => rules: it.context.rules, store: it.context.store);
