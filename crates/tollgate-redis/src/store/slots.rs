//! The slots of requests: how a request acquires them, and how the process reports them to Redis.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tollgate_core::{Check, Tick, store::Fingerprint};
use tollgate_prefilter::{NoReply, ProcessSlots, SlotKey, SlotMessage, SlotOutcome, SlotTarget};

use crate::{
    keys::keyspace::Partition,
    observe::CallFor,
    script::{encoder::Encoder, reply::ScriptReply},
    store::context::StoreContext,
};

/// The slots that a request acquires, until its decision holds them. Dropped before, they go back.
pub(crate) struct RequestSlots {
    shared: Arc<StoreContext>,
    acquires: SmallVec<[Acquire; 1]>,
}

/// An acquire in flight, or one that was granted.
struct Acquire {
    key: SlotKey,
    message: SlotMessage,
    /// Where the answer is.
    place: u16,
    sent: Tick,
    /// The number of the grant.
    granted: Option<u64>,
}

impl RequestSlots {
    pub(crate) fn new(shared: &Arc<StoreContext>) -> Self {
        Self {
            shared: Arc::clone(shared),
            acquires: SmallVec::new(),
        }
    }

    /// Acquires the slots of a check. `None`: too much is kept of other keys, and nothing is acquired.
    pub(crate) fn acquire(
        &mut self,
        encoder: &Arc<Encoder>,
        check: &Check,
        with: Option<Fingerprint>,
        place: u16,
    ) -> Option<SlotMessage> {
        let key = SlotKey {
            key: check.key(),
            rule: Arc::clone(&encoder.rule(check.rule())?.name),
            place: with,
        };
        let target = SlotTarget {
            encoder: Arc::<Encoder>::clone(encoder),
            check: *check,
        };
        // More never fit, and the script says so.
        let want = u32::try_from(check.cost()).unwrap_or(u32::MAX);
        let sent = self.shared.process_clock.now();
        let mut in_use = self.shared.engine.slots();
        let message = in_use.acquire(&key, target, want, sent)?;
        drop(in_use);
        self.acquires.push(Acquire {
            key,
            message,
            place,
            sent,
            granted: None,
        });
        Some(message)
    }

    /// Redis has replied, or not: slots that may have been granted are reported as not in use then. Whether one has to be acquired again,
    /// because what the reply says of it counts for nothing.
    pub(crate) fn finish(&mut self, reply: Result<&ScriptReply, NoReply>) -> bool {
        let mut is_again = false;
        self.change(|acquires, in_use, now| {
            acquires.retain(|it| {
                if it.granted.is_some() {
                    return true;
                }
                // The server may have refused it, or what it has is not ours.
                let refused = Err(NoReply::NoAnswer);
                let reply =
                    reply.and_then(|reply| reply.slots(it.place, &it.message).map_or(refused, Ok));
                match in_use.on_acquired(&it.key, &it.message, reply, it.sent, now) {
                    Some(SlotOutcome::Granted { fence }) => it.granted = Some(fence),
                    Some(SlotOutcome::Stale) => is_again = true,
                    Some(SlotOutcome::Denied) | None => {}
                }
                it.granted.is_some()
            });
        });
        is_again
    }

    /// The decision has the slots that were granted, and its owner returns them.
    pub(crate) fn hand_over(&mut self) {
        self.acquires.retain(|it| it.granted.is_none());
    }

    /// What is in flight counts as lost, and what was granted goes back.
    pub(crate) fn give_back(&mut self) {
        self.finish(Err(NoReply::NoAnswer));
        self.change(|acquires, in_use, now| {
            for it in acquires.drain(..) {
                if let Some(number) = it.granted {
                    in_use.end_request(&it.key.rule, it.key.key, number, it.message.want, now);
                }
            }
        });
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut SmallVec<[Acquire; 1]>, &mut ProcessSlots<'_>, Tick),
    ) {
        if !self.acquires.is_empty() {
            let now = self.shared.process_clock.now();
            let mut in_use = self.shared.engine.slots();
            change(&mut self.acquires, &mut in_use, now);
            report(&self.shared, in_use, now);
        }
    }
}

impl Drop for RequestSlots {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests;

tollgate_core::debug_fields!(RequestSlots, it => acquires: it.acquires.len());

// Tells Redis which slots are in use: when requests have ended, and every third of the term.

/// The most keys of one call, so that requests do not wait for all.
const MOST: usize = 64;

/// The most calls that are sent without a pause.
const CALLS: usize = 16;

/// The shortest pause between two looks.
const SHORTEST: Duration = Duration::from_micros(100);

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
        send(shared, messages, now);
    }
    let due_at = shared.engine.slots().rest()?;
    let pause = due_at.saturating_sub(shared.process_clock.now());
    Some(Duration::from_micros(pause).max(SHORTEST))
}

/// Sends messages: in one call, or in a cluster in one for each of its hash slots.
fn send(shared: &Arc<StoreContext>, messages: Vec<(SlotKey, SlotTarget, SlotMessage)>, now: Tick) {
    let are_several = shared.backend.is_cluster() && shared.keyspace.partition != Partition::One;
    let mut by_place: BTreeMap<Option<Fingerprint>, Vec<_>> = BTreeMap::new();
    for message in messages {
        let (key, ..) = &message;
        let place = are_several.then(|| key.place.unwrap_or(key.key));
        by_place.entry(place).or_default().push(message);
    }
    for messages in by_place.into_values() {
        let mut call = shared.new_call(now);
        let outcomes = messages.into_iter().map(|(key, target, message)| {
            // It is what acquired them.
            let encoder = target.encoder.downcast_ref::<Encoder>();
            let place = encoder
                .and_then(|it| call.tell_slots(it, &target.check, key.place, &message, None));
            (key, message, place)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let sent = shared.send_in_time(call, CallFor::Slots);
        let context = Arc::clone(shared);
        shared.spawn(async move {
            let reply = sent.await;
            let now: Tick = context.process_clock.now();
            let mut in_use = context.engine.slots();
            for (key, message, place) in outcomes {
                let answer = reply
                    .as_ref()
                    .ok()
                    .zip(place)
                    .and_then(|(reply, place)| reply.slots(place, &message));
                in_use.on_renewed(&key, &message, answer.as_ref(), now);
            }
            report(&context, in_use, now);
        });
    }
}
