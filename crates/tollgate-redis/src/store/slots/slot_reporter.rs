//! Tells Redis which slots are in use: when requests have ended, and every third of the term.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tollgate_core::{
    Tick,
    store::{Fingerprint, Hold, wake},
};
use tollgate_prefilter::{ProcessSlots, SlotKey, SlotMessage, SlotTarget};

use crate::{
    keys::keyspace::Partition, observe::CallFor, script::encoder::Encoder,
    store::context::StoreContext,
};

/// The most keys of one call, so that requests do not wait for all.
const MOST: usize = 64;

/// The most calls that are sent without a pause.
const CALLS: usize = 16;

/// The shortest pause between two looks.
const SHORTEST: Duration = Duration::from_micros(100);

/// Requests have ended that were given these slots. The rules' names are those of their states.
pub(crate) fn release<'a>(
    shared: &Arc<StoreContext>,
    slots: &[Hold],
    name: impl Fn(u16) -> Option<&'a str>,
) {
    let now = shared.process_clock.now();
    let mut in_use = shared.engine.slots();
    for slot in slots {
        let check = &slot.check;
        if let Some(name) = name(check.rule()) {
            let count = u32::try_from(check.cost()).unwrap_or(u32::MAX);
            in_use.release(name, check.key(), slot.number, count, now);
        }
    }
    report(shared, in_use, now);
    for slot in slots {
        wake(slot.check.key());
    }
}

/// Something has changed: the task looks when it is due.
pub(super) fn report(shared: &StoreContext, in_use: ProcessSlots<'_>, now: Tick) {
    if in_use.wakes(now) {
        // Where the runtime is gone, Redis forgets the slots after their term.
        shared.wake.notify_one();
    }
}

/// Sends what is due. Until when the next is, or nothing if Redis knows of no slots of this process.
pub(crate) fn send_due_slots(shared: &Arc<StoreContext>) -> Option<Duration> {
    for _ in 0..CALLS {
        let now = shared.process_clock.now();
        let messages = shared.engine.slots().poll(now, MOST);
        if messages.is_empty() {
            break;
        }
        send(shared, messages);
    }
    let due_at = shared.engine.slots().rest()?;
    let pause = due_at.saturating_sub(shared.process_clock.now());
    Some(Duration::from_micros(pause).max(SHORTEST))
}

/// Sends messages: in one call, or in a cluster in one for each of its hash slots.
fn send(shared: &Arc<StoreContext>, messages: Vec<(SlotKey, SlotTarget, SlotMessage)>) {
    let are_several = shared.backend.is_cluster() && shared.keyspace.partition != Partition::One;
    let mut by_place: BTreeMap<Option<Fingerprint>, Vec<_>> = BTreeMap::new();
    for message in messages {
        let (key, ..) = &message;
        let place = are_several.then(|| key.place.unwrap_or(key.key));
        by_place.entry(place).or_default().push(message);
    }
    for messages in by_place.into_values() {
        let mut call = shared.new_call();
        let outcomes = messages.into_iter().map(|(key, target, message)| {
            // It is what acquired them.
            let encoder = target.encoder.downcast_ref::<Encoder>();
            let place = encoder
                .and_then(|it| call.tell_slots(it, &target.check, key.place, &message, None));
            (key, message, place)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let sent = shared.send(&call, CallFor::Slots);
        let (shared, in_flight) = (Arc::clone(shared), shared.background_calls.begin());
        let runtime = shared.runtime.clone();
        runtime.spawn(async move {
            let reply = sent.await;
            let now: Tick = shared.process_clock.now();
            let mut in_use = shared.engine.slots();
            for (key, message, place) in outcomes {
                let answer = reply.as_ref().ok().zip(place);
                let answer = answer.and_then(|(reply, place)| reply.slots(place, &message));
                in_use.on_renewed(&key, &message, answer.as_ref(), now);
            }
            report(&shared, in_use, now);
            drop(in_flight);
        });
    }
}
