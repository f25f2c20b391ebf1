//! Tells Redis which slots are in use: when requests have ended, and every third of the term.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tollgate_core::{
    Tick,
    store::{Fingerprint, Hold},
};
use tollgate_prefilter::{SlotKey, SlotMessage};

use crate::{
    observe::CallFor,
    store::context::{InUse, SlotTarget, StoreContext},
};

/// The most keys of one call, so that requests do not wait for all.
const MOST: usize = 64;

/// The most calls that are sent without a pause.
const CALLS: usize = 16;

/// The shortest pause between two looks.
const SHORTEST: Duration = Duration::from_micros(100);

/// How often metrics are updated, in µs.
const MEASURE_EVERY: Tick = 1_000_000;

/// Requests have ended that were given these slots. The rules' names are those of their states.
pub(crate) fn release<'a>(
    shared: &Arc<StoreContext>,
    slots: &[Hold],
    name: impl Fn(u16) -> Option<&'a str>,
) {
    let now = shared.process_clock.now();
    let mut in_use = shared.slots.lock();
    for slot in slots {
        let check = &slot.check;
        if let Some(name) = name(check.rule()) {
            let count = u32::try_from(check.cost()).unwrap_or(u32::MAX);
            (in_use.table).end(name, check.key(), slot.number, count, now);
        }
    }
    report(shared, in_use, now);
    for slot in slots {
        shared.slots.waiters.wake(slot.check.key());
    }
}

/// Something has changed: the task looks when it is due.
pub(super) fn report(shared: &StoreContext, mut in_use: MutexGuard<'_, InUse>, now: Tick) {
    let Some(due_at) = in_use.table.due_at() else {
        return;
    };
    // A time that has passed: the machine slept, and the task sleeps on, by a clock that stood still.
    let is_expected = |at: Tick| at <= due_at && at > now;
    if !in_use.looks_at.is_some_and(is_expected) {
        in_use.looks_at = Some(due_at);
        drop(in_use);
        // Where the runtime is gone, Redis forgets the slots after their term.
        shared.wake.notify_one();
    }
}

/// Sends what is due. Until when the next is, or nothing if Redis knows of no slots of this process.
pub(crate) fn send_due_slots(shared: &Arc<StoreContext>) -> Option<Duration> {
    for _ in 0..CALLS {
        let now = shared.process_clock.now();
        let mut in_use = shared.slots.lock();
        let messages = in_use.table.poll(now, MOST);
        // What comes up meanwhile is seen below.
        in_use.looks_at = Some(now);
        drop(in_use);
        if messages.is_empty() {
            break;
        }
        send(shared, messages);
    }
    let now = shared.process_clock.now();
    let mut in_use = shared.slots.lock();
    let due_at = in_use.table.due_at();
    in_use.looks_at = due_at;
    let is_idle = std::mem::replace(&mut in_use.is_idle, due_at.is_none());
    let is_measured = match due_at {
        Some(_) => now >= in_use.measured.1 + MEASURE_EVERY,
        None => !is_idle,
    };
    if cfg!(feature = "metrics") && is_measured {
        let (counts, before) = (in_use.table.counts(), in_use.measured.0);
        in_use.measured = (counts, now);
        let since = [
            counts.renewals - before.renewals,
            counts.voided - before.voided,
            counts.outlived - before.outlived,
        ];
        // It takes a look at every key.
        shared.observer.slots(since, in_use.table.in_use().0);
        shared.observer.slot_table(in_use.table.usage());
    }
    let pause = due_at?.saturating_sub(now);
    Some(Duration::from_micros(pause).max(SHORTEST))
}

/// Sends messages: in one call, or in a cluster in one for each of its hash slots.
fn send(shared: &Arc<StoreContext>, messages: Vec<(SlotKey, SlotTarget, SlotMessage)>) {
    let is_cluster = shared.backend.is_cluster();
    let mut by_place: BTreeMap<Option<Fingerprint>, Vec<_>> = BTreeMap::new();
    for message in messages {
        let (key, SlotTarget { encoder, .. }, _) = &message;
        let place = is_cluster.then(|| encoder.place_of(key)).flatten();
        by_place.entry(place).or_default().push(message);
    }
    for messages in by_place.into_values() {
        let mut call = shared.new_call();
        let outcomes = messages.into_iter().map(|(key, target, message)| {
            let SlotTarget { encoder, check } = &target;
            let place = call.tell_slots(encoder, check, key.place, &message, None);
            (key, message, place)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let sent = shared.send(&call, CallFor::Slots);
        let (shared, in_flight) = (Arc::clone(shared), shared.background_calls.begin());
        let runtime = shared.runtime.clone();
        runtime.spawn(async move {
            let reply = sent.await;
            let now: Tick = shared.process_clock.now();
            let mut in_use = shared.slots.lock();
            for (key, message, place) in outcomes {
                let answer = reply.as_ref().ok().zip(place);
                match answer.and_then(|(reply, place)| reply.slots(place, &message)) {
                    Some(answer) => in_use.table.on_renewed(&key, &message, &answer, now),
                    None => in_use.table.on_lost(&key, now),
                }
            }
            report(&shared, in_use, now);
            drop(in_flight);
        });
    }
}
