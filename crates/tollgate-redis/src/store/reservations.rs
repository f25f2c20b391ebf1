//! Reservations on Redis: a record that is open, in the hash slot of the states, and a text under the secret that says what it holds.
//!
//! Each call runs the script behind `record.lua`, which does nothing without the record. It travels alone.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;
use tollgate_core::{
    Check, Pending, Source, Step, StoreError, StoreErrorKind,
    store::{
        Checks, Fingerprint, Hold, Holds, ReservationStore, Reserved, Settlement, foreign, gone,
    },
    types::Reservation,
};
use tollgate_prefilter::{SlotMessage, SlotOwner};

use crate::{
    connection::error::CallError,
    keys::keyspace::{seal, unseal},
    observe::CallFor,
    script::{args::ScriptCall, reply::ScriptReply},
    store::{redis_rule_store::RedisRuleStore, rule_set_context::RuleSetContext},
};

/// Settles, and says so until ten minutes after the term: by then a ledger has heard of it, or has released the reservation.
const SETTLE_AND_SAY_SO: &str = "-600000";

impl ReservationStore for RedisRuleStore {
    fn reserve(
        &self,
        mut reserved: Reserved,
        term: Duration,
    ) -> Step<Result<Reservation, StoreError>> {
        let context = &self.context;
        let mut call = context.store.new_call(context.now());
        let written = book(context, &mut reserved).and_then(|()| {
            tell_slots(context, &mut call, &reserved, Some(term))?;
            let text = text(context, &reserved)?;
            let opened = send(context, call, &reserved, &format!("+{}", term.as_millis()));
            let record = OpenedRecord(Some((Arc::clone(context), reserved)));
            Ok((text, opened, record))
        });
        let (text, opened, record) = match written {
            Ok(written) => written,
            Err(refused) => return Step::Ready(Err(refused)),
        };
        Step::Wait(Pending::new(async move {
            let opened = opened.await;
            let kind = opened.as_ref().map_err(StoreError::kind);
            if !matches!(
                kind,
                Err(StoreErrorKind::Timeout | StoreErrorKind::Protocol)
            ) {
                record.keep();
            }
            opened.map(|_| text)
        }))
    }

    fn reserved(&self, text: &Reservation) -> Result<Reserved, StoreError> {
        let context = &self.context;
        let keyspace = &context.store.keyspace;
        let (id, bytes) = unseal(keyspace, text.letters()).ok_or_else(foreign)?;
        let key = |digest| keyspace.keys.fingerprint_of(digest);
        Reserved::from_bytes(id, &bytes, &context.rules, key)
    }

    fn redeem(
        &self,
        reserved: &Reserved,
        settlements: &[(Holds, Settlement)],
    ) -> Step<Result<(), StoreError>> {
        let rules = self.context.rules.rules();
        let mut checks = reserved.checks();
        let is_durable = checks.any(|check| rules[usize::from(check.rule())].is_durable());
        let step = if is_durable { SETTLE_AND_SAY_SO } else { "-" };
        settle_record(&self.context, reserved, settlements, step)
    }

    fn extend(&self, reserved: &Reserved, term: Duration) -> Step<Result<(), StoreError>> {
        let mut call = self.context.store.new_call(self.context.now());
        if let Err(refused) = tell_slots(&self.context, &mut call, reserved, Some(term)) {
            return Step::Ready(Err(refused));
        }
        let step = format!("={}", term.as_millis());
        let answer = send(&self.context, call, reserved, &step);
        Step::Wait(Pending::new(async move { answer.await.map(drop) }))
    }
}

impl RedisRuleStore {
    /// What the ledger has released, after its term.
    pub(super) fn release_record(&self, id: u128, hold: Hold) {
        let (context, how) = (&self.context, Settlement::Refund(hold.check.cost()));
        let reserved = Reserved {
            id,
            holds: vec![hold],
            slots: Vec::new(),
        };
        let settlements = [(Holds::from_slice(&[hold]), how)];
        let released = settle_record(context, &reserved, &settlements, "!");
        context.store.spawn(async move { _ = released.await });
    }
}

/// Settles units if the step of the record lets it.
fn settle_record(
    context: &Arc<RuleSetContext>,
    reserved: &Reserved,
    settlements: &[(Holds, Settlement)],
    step: &str,
) -> Step<Result<(), StoreError>> {
    let context = Arc::clone(context);
    let mut call = context.store.new_call(context.now());
    let settled = settlements
        .iter()
        .map(|(holds, how)| call.settle_all(&context.encoder, holds, *how));
    let settled: Option<Vec<_>> = settled.collect();
    let sent = settled.ok_or_else(too_many).and_then(|settled| {
        tell_slots(&context, &mut call, reserved, None)?;
        Ok((settled, send(&context, call, reserved, step)))
    });
    let (settled, answer) = match sent {
        Ok(sent) => sent,
        Err(refused) => return Step::Ready(Err(refused)),
    };
    let settlements = settlements.to_vec();
    Step::Wait(Pending::new(async move {
        let reply = answer.await;
        for (settled, (holds, _)) in settled.iter().zip(&settlements) {
            // More may be left by now, whatever the answer was.
            let checks = holds.iter().map(|hold| hold.check);
            checks.for_each(|check| context.local.unlearn(&check));
            if let Ok(reply) = &reply {
                context.on_settled(settled, reply);
            }
        }
        reply.map(drop)
    }))
}

/// The pauses after an attempt to take a record away, in seconds: nine minutes in all.
const PAUSES: [u64; 7] = [1, 5, 15, 30, 60, 120, 300];

/// A record that is opened, until it has a text. Dropped before, it is taken away again: its slots are not in use.
struct OpenedRecord(Option<(Arc<RuleSetContext>, Reserved)>);

impl OpenedRecord {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for OpenedRecord {
    fn drop(&mut self) {
        let Some((context, reserved)) = self.0.take() else {
            return;
        };
        let (weak, runtime) = (Arc::downgrade(&context), context.store.runtime.clone());
        let flushed = Arc::clone(&context.store.in_flight);
        let mut attempt = Some((context, flushed));
        runtime.spawn(async move {
            for pause in PAUSES {
                let Some((context, flushed)) = attempt.take() else {
                    return;
                };
                let answer = settle_record(&context, &reserved, &[], "-").await;
                // Where the answer was lost, it is gone the next time.
                if let Ok(()) | Err(StoreErrorKind::Gone) = answer.map_err(|error| error.kind()) {
                    return;
                }
                // Between attempts it keeps no store, and no flush waits for it.
                drop((context, flushed));
                sleep(Duration::from_secs(pause)).await;
                let upgraded = weak.upgrade();
                attempt = upgraded.map(|it| (Arc::clone(&it), Arc::clone(&it.store.in_flight)));
            }
        });
    }
}

/// What another process may give back is what Redis has counted.
fn book(context: &RuleSetContext, reserved: &mut Reserved) -> Result<(), StoreError> {
    for hold in &mut reserved.holds {
        if hold.source == Source::Local {
            let rule = &context.rules.rules()[usize::from(hold.check.rule())];
            return unsupported(&format!(
                "rule {:?} counts in this process, and Redis does not know these units yet; decide what is reserved with \
                 `exact_when`, or take another consistency",
                rule.name()
            ));
        }
        *hold = context.local.as_booked(hold);
    }
    Ok(())
}

fn text(context: &RuleSetContext, reserved: &Reserved) -> Result<Reservation, StoreError> {
    let checks: Checks = reserved.checks().collect();
    if context.local.places.steps(&checks, &checks).len() > 1 {
        return unsupported(
            "the states of these rules are in several hash slots of the cluster, and a record is in one; take `Partition::One` or \
             `Partition::ByRule`, or reserve rules that count by one key",
        );
    }
    let keyspace = &context.store.keyspace;
    let bytes = reserved.to_bytes(&context.rules, |key| keyspace.keys.digest_of(key));
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

/// Says what the record has in use of slots, under an owner of its own: all of them for the term, or none. It stands behind the record,
/// so it is the last word.
fn tell_slots(
    context: &RuleSetContext,
    call: &mut ScriptCall,
    reserved: &Reserved,
    term: Option<Duration>,
) -> Result<(), StoreError> {
    let with = context.encoder.with(reserved.checks());
    for Hold { check, .. } in &reserved.slots {
        let slots = term.map_or(0, |_| u32::try_from(check.cost()).unwrap_or(u32::MAX));
        let message = SlotMessage {
            // The owner ends with its term, so half of the id tells it from others.
            owner: SlotOwner(reserved.id as u64),
            seq: 1,
            lo: slots,
            hi: slots,
            want: 0,
            is_exact: true,
        };
        let told = call.tell_slots(&context.encoder, check, with, &message, Some(term));
        told.ok_or_else(too_many)?;
    }
    Ok(())
}

/// Sends a call behind a step of the record. Gives the reply to the call, once there was a record.
fn send(
    context: &Arc<RuleSetContext>,
    call: ScriptCall,
    reserved: &Reserved,
    step: &str,
) -> impl Future<Output = Result<ScriptReply, StoreError>> + Send + use<> {
    let keyspace = &context.store.keyspace;
    let first = || reserved.checks().next().as_ref().map(Check::key);
    let with = context.encoder.with(reserved.checks()).or_else(first);
    let id = Fingerprint::from_bits(reserved.id);
    let name = keyspace.record(id, with.filter(|_| context.local.places.are_several));
    let call = call.behind_record(&name, step);
    let sent = context.store.send_in_time(call, CallFor::Settlements);
    async move {
        let reply = sent.await?;
        match reply.first_refusal() {
            _ if reply.is_without_record() => Err(gone()),
            Some(refusal) => Err(CallError::of_server(refusal).into()),
            None => Ok(reply),
        }
    }
}
