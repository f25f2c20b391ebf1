//! Reservations on Redis: a record that is open, in the slot of the states, and a text under the secret that says what it holds.
//!
//! Each call runs the script behind `record.lua`, which does nothing without the record. It travels alone.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use tollgate_core::{
    Check, Pending, Reservation, Source, Step, StoreError, StoreErrorKind,
    store::{
        Checks, Fingerprint, Hold, ReservationStore, Reserved, ReservedSettlement, Settlement,
        foreign, gone,
    },
};

use crate::{
    connection::{request::Script, value::Value},
    keys::keyspace::{Partition, seal, unseal},
    observe::{CallFor, Stopwatch},
    script::{
        call::{Call, Settled},
        reply::Reply,
        text::TEXT_WITH_RECORD,
    },
    store::{bound::Bound, inner::Inner, shared::did_not_run},
};

/// Settles, and says so until ten minutes after the term: by then a ledger has heard of it, or has released the reservation.
const SETTLE_AND_SAY_SO: &str = "-600000";

static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| Arc::new(Script::new(TEXT_WITH_RECORD)));

impl ReservationStore for Bound {
    fn reserve(
        &self,
        mut reserved: Reserved,
        term: Duration,
    ) -> Step<Result<Reservation, StoreError>> {
        let inner = self.inner();
        let mut call = inner.shared.new_call();
        let written = book(inner, &mut reserved).and_then(|()| {
            tell_slots(inner, &mut call, &reserved, Some(term))?;
            text(inner, &reserved)
        });
        let text = match written {
            Ok(text) => text,
            Err(refused) => return Step::Ready(Err(refused)),
        };
        let opened = send(inner, &call, &reserved, &format!("+{}", term.as_millis()));
        let record = OpenedRecord(Some((self.clone(), reserved)));
        Step::Wait(Pending::new(async move {
            let opened = opened.await;
            if opened.as_ref().map_or_else(did_not_run, |_| true) {
                record.keep();
            }
            opened.map(|_| text)
        }))
    }

    fn reserved(&self, text: &Reservation) -> Result<Reserved, StoreError> {
        let inner = self.inner();
        let keyspace = &inner.shared.keyspace;
        let (id, bytes) = unseal(keyspace, text.letters()).ok_or_else(foreign)?;
        let key = |digest| keyspace.keys.fingerprint_of(digest);
        Reserved::from_bytes(id, &bytes, &inner.rules, key)
    }

    fn redeem(
        &self,
        reserved: &Reserved,
        settlements: &[ReservedSettlement],
    ) -> Step<Result<(), StoreError>> {
        let rules = self.inner().rules.rules();
        let mut checks = reserved.checks();
        let is_durable = checks.any(|check| rules[usize::from(check.rule())].is_durable());
        let step = if is_durable { SETTLE_AND_SAY_SO } else { "-" };
        self.settle_record(reserved, settlements, step)
    }

    fn extend(&self, reserved: &Reserved, term: Duration) -> Step<Result<(), StoreError>> {
        let mut call = self.inner().shared.new_call();
        if let Err(refused) = tell_slots(self.inner(), &mut call, reserved, Some(term)) {
            return Step::Ready(Err(refused));
        }
        let answer = send(
            self.inner(),
            &call,
            reserved,
            &format!("={}", term.as_millis()),
        );
        Step::Wait(Pending::new(async move { answer.await.map(drop) }))
    }
}

impl Bound {
    /// What the ledger has released, after its term.
    pub(super) fn release_record(&self, id: u128, hold: Hold) {
        let how = Settlement::Refund(hold.check.cost());
        let (holds, slots) = (vec![hold], Vec::new());
        let reserved = Reserved { id, holds, slots };
        let holds = reserved.holds.clone();
        let released = self.settle_record(&reserved, &[ReservedSettlement { holds, how }], "!");
        self.finish(released);
    }

    /// Waits for a call that nobody waits for.
    fn finish(&self, call: Step<Result<(), StoreError>>) {
        let shared = &self.inner().shared;
        let in_flight = shared.in_flight_calls.begin();
        shared.spawn(async move {
            let _ = call.await;
            drop(in_flight);
        });
    }

    /// Settles units if the step of the record lets it.
    fn settle_record(
        &self,
        reserved: &Reserved,
        settlements: &[ReservedSettlement],
        step: &str,
    ) -> Step<Result<(), StoreError>> {
        let inner = Arc::clone(self.inner());
        let mut call = inner.shared.new_call();
        let settled = settlements.iter();
        let settled = settled.map(|it| call.settle_all(&inner.encoder, &it.holds, it.how));
        let settled: Option<Vec<Settled>> = settled.collect();
        let told = settled.ok_or_else(too_many);
        let told = told.and_then(|settled| {
            tell_slots(&inner, &mut call, reserved, None)?;
            Ok(settled)
        });
        let settled = match told {
            Ok(settled) => settled,
            Err(refused) => return Step::Ready(Err(refused)),
        };
        let answer = send(&inner, &call, reserved, step);
        let settlements = settlements.to_vec();
        Step::Wait(Pending::new(async move {
            let reply = answer.await;
            for (settled, settlement) in settled.iter().zip(&settlements) {
                // More may be left by now, whatever the answer was.
                let checks = settlement.holds.iter().map(|hold| hold.check);
                checks.for_each(|check| inner.local.unlearn(&check));
                if let Ok(Some(reply)) = &reply {
                    inner.on_settled(settled, reply);
                }
            }
            reply.map(drop)
        }))
    }
}

/// A record that is opened, until it has a text. Dropped before, it is taken away again, as far as that goes: its slots are not in use.
struct OpenedRecord(Option<(Bound, Reserved)>);

impl OpenedRecord {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for OpenedRecord {
    fn drop(&mut self) {
        if let Some((bound, reserved)) = self.0.take() {
            bound.finish(bound.settle_record(&reserved, &[], "-"));
        }
    }
}

/// What another process may give back is what Redis has counted.
fn book(inner: &Inner, reserved: &mut Reserved) -> Result<(), StoreError> {
    for hold in &mut reserved.holds {
        if hold.source == Source::Local {
            let rule = &inner.rules.rules()[usize::from(hold.check.rule())];
            return unsupported(&format!(
                "rule {:?} counts in this process, and Redis does not know these units yet; decide what is reserved with \
                 `exact_when`, or take another consistency",
                rule.name()
            ));
        }
        *hold = inner.local.as_booked(hold);
    }
    Ok(())
}

fn text(inner: &Inner, reserved: &Reserved) -> Result<Reservation, StoreError> {
    let checks: Checks = reserved.checks().collect();
    if inner.local.places.steps(&checks).len() > 1 {
        return unsupported(
            "the states of these rules are in several hash slots of the cluster, and a record is in one; take `Partition::One` or \
             `Partition::ByRule`, or reserve rules that count by one key",
        );
    }
    let keyspace = &inner.shared.keyspace;
    let bytes = reserved.to_bytes(&inner.rules, |key| keyspace.keys.digest_of(key));
    match seal(keyspace, reserved.id, bytes) {
        Some(letters) => Ok(Reservation::of_store(&letters)),
        None => unsupported(
            "a store with plain keys has no secret that would protect the text of a reservation; take `Keys::hashed`",
        ),
    }
}

fn unsupported<T>(message: &str) -> Result<T, StoreError> {
    Err(StoreError::new(StoreErrorKind::Misconfigured, message))
}

fn too_many() -> StoreError {
    let message = "these are too many rules for one call; reserve fewer at once";
    StoreError::new(StoreErrorKind::Misconfigured, message)
}

/// Says what the record has in use of slots: all of them for the term, or none.
fn tell_slots(
    inner: &Inner,
    call: &mut Call,
    reserved: &Reserved,
    term: Option<Duration>,
) -> Result<(), StoreError> {
    let with = inner.encoder.with(reserved.checks());
    for slot in &reserved.slots {
        // The owner ends with its term, so half of the id tells it from others.
        let told = call.tell_reserved(&inner.encoder, &slot.check, with, reserved.id as u64, term);
        told.ok_or_else(too_many)?;
    }
    Ok(())
}

/// Sends a call behind a step of the record. Gives the reply to the call, if there is one, once there was a record.
fn send(
    inner: &Arc<Inner>,
    call: &Call,
    reserved: &Reserved,
    step: &str,
) -> impl Future<Output = Result<Option<Reply>, StoreError>> + Send + use<> {
    let (inner, size) = (Arc::clone(inner), call.checks());
    let keyspace = &inner.shared.keyspace;
    let first = || reserved.checks().next().as_ref().map(Check::key);
    let with = inner.encoder.with(reserved.checks()).or_else(first);
    let is_in_slot = inner.shared.backend.is_cluster() && keyspace.partition != Partition::One;
    let id = Fingerprint::from_bits(reserved.id);
    let name = keyspace.record(id, with.filter(|_| is_in_slot));
    let keys: Vec<&[u8]> = call.keys().chain([&*name]).collect();
    let args: Vec<&[u8]> = call.args().chain([step.as_bytes()]).collect();
    let stopwatch = Stopwatch::start();
    inner.shared.observer.sent(CallFor::Settlements);
    let answer = inner.shared.backend.run(&SCRIPT, &keys, &args);
    async move {
        let answer = answer.await;
        let alone = |one: i64| matches!(&answer, Ok(Value::Integers(all)) if all[..] == [one]);
        let is_gone = alone(-1);
        if is_gone || size == 0 && answer.is_ok() {
            inner.shared.observer.called(stopwatch, None);
            return if is_gone { Err(gone()) } else { Ok(None) };
        }
        let reply = inner.shared.reply(stopwatch, answer, size)?;
        match reply.first_refusal() {
            Some(refusal) => Err(refusal.into()),
            None => Ok(Some(reply)),
        }
    }
}
