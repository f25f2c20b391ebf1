//! The background task that reports to Redis which slots are in use: when requests have ended, and every third of the term.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::time::sleep;
use tollgate_core::{
    Tick,
    store::{Fingerprint, Hold},
};
use tollgate_prefilter::{SlotKey, SlotMessage};

use crate::{
    observe::{CallFor, Stopwatch},
    store::{
        process_slots::{InUse, SlotTarget},
        shared::Shared,
    },
};

/// The most keys of one call, so that requests do not wait for all.
const MOST: usize = 64;

/// The most calls that are sent without a pause.
const CALLS: usize = 16;

/// The shortest pause between two looks.
const SHORTEST: Duration = Duration::from_micros(100);

/// How often metrics are updated, in µs.
const MEASURE_EVERY: Tick = 1_000_000;

/// A message about a key.
struct Message {
    key: SlotKey,
    target: SlotTarget,
    message: SlotMessage,
}

/// Requests have ended that were given these slots. The rules' names are those of their states.
pub(crate) fn release<'a>(
    shared: &Arc<Shared>,
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

/// Something has changed: the task looks when it is due. It is started if there is none.
pub(super) fn report(shared: &Arc<Shared>, mut in_use: MutexGuard<'_, InUse>, now: Tick) {
    let Some(due_at) = in_use.table.due_at() else {
        return;
    };
    match in_use.looks_at {
        // A time that has passed: the machine slept, and the task sleeps on, by a clock that stood still.
        Some(at) if at <= due_at && at > now => {}
        Some(_) => {
            in_use.looks_at = Some(due_at);
            drop(in_use);
            shared.slots.is_due.notify_one();
        }
        None => {
            in_use.looks_at = Some(due_at);
            drop(in_use);
            // Where the runtime is gone, the task is dropped at once, and Redis forgets the slots after their term.
            shared.runtime.spawn(run(Task {
                shared: Arc::clone(shared),
                is_over: false,
            }));
        }
    }
}

/// Ends when nothing is in use that Redis knows of. Until then the connection stays.
struct Task {
    shared: Arc<Shared>,
    /// It has ended, and another may have been started.
    is_over: bool,
}

impl Drop for Task {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.slots.lock().looks_at = None;
        }
    }
}

async fn run(mut task: Task) {
    while let Some(pause) = send_due(&mut task) {
        tokio::select! {
            () = sleep(pause) => {}
            () = task.shared.slots.is_due.notified() => {}
        }
    }
}

/// Sends what is due. Until when the next is, or nothing if there is no more.
fn send_due(task: &mut Task) -> Option<Duration> {
    let shared = &task.shared;
    for _ in 0..CALLS {
        let now = shared.process_clock.now();
        let mut in_use = shared.slots.lock();
        let messages = in_use.table.poll(now, MOST).into_iter();
        let messages = messages.map(|(key, target, message)| Message {
            key,
            target,
            message,
        });
        let messages: Vec<_> = messages.collect();
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
    if cfg!(feature = "metrics") && (due_at.is_none() || now >= in_use.measured.1 + MEASURE_EVERY) {
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
    // Under the lock: the next call that acquires starts another task.
    task.is_over = due_at.is_none();
    let pause = due_at?.saturating_sub(now);
    Some(Duration::from_micros(pause).max(SHORTEST))
}

/// Sends messages: in one call, or in a cluster in one for each of its slots.
fn send(shared: &Arc<Shared>, messages: Vec<Message>) {
    let is_cluster = shared.backend.is_cluster();
    let mut by_place: BTreeMap<Option<Fingerprint>, Vec<_>> = BTreeMap::new();
    for message in messages {
        let encoder = &message.target.encoder;
        let place = is_cluster.then(|| encoder.place_of(&message.key)).flatten();
        by_place.entry(place).or_default().push(message);
    }
    for messages in by_place.into_values() {
        let mut call = shared.new_call();
        let outcomes = messages.into_iter().map(|it| {
            let SlotTarget { encoder, check } = &it.target;
            let place = call.tell_slots(encoder, check, it.key.place, &it.message);
            (it, place)
        });
        let outcomes: Vec<(Message, Option<u16>)> = outcomes.collect();
        let (stopwatch, size) = (Stopwatch::start(), call.checks());
        let answer = shared.send(&call, CallFor::Slots);
        let (shared, in_flight) = (Arc::clone(shared), shared.in_flight_calls.begin());
        let runtime = shared.runtime.clone();
        runtime.spawn(async move {
            let reply = shared.reply(stopwatch, answer.await, size);
            let now: Tick = shared.process_clock.now();
            let mut in_use = shared.slots.lock();
            for (it, place) in outcomes {
                let (key, message) = (&it.key, &it.message);
                let answer = reply.as_ref().ok().zip(place);
                match answer.and_then(|(reply, place)| reply.slots(place, message)) {
                    Some(answer) => in_use.table.on_renewed(key, message, &answer, now),
                    None => in_use.table.on_lost(key, now),
                }
            }
            report(&shared, in_use, now);
            drop(in_flight);
        });
    }
}
