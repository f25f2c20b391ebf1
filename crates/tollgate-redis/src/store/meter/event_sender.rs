//! The task that sends events to the reference. No request waits for it.

use std::{collections::VecDeque, sync::Arc};

use tollgate_core::Tick;

use crate::{
    connection::value::Value,
    observe::CallFor,
    script::reply::Reply,
    store::{
        backend::Answer,
        meter::{
            event_queue::{Entry, Pushed, at_once},
            first_look::FirstLook,
            recheck_task::{RecheckTask, send_missed},
            reference::{Placed, Reference},
        },
    },
};

/// The task that sends events. It ends when there are none.
pub(super) struct EventSender {
    reference: Arc<Reference>,
    has_ended: bool,
}

/// Calls in flight, with the events of each.
type SentEntries = Vec<(Answer, usize, Vec<(Entry, Placed)>)>;

impl EventSender {
    /// Queues an event, and starts the task if there is none.
    pub(super) fn push(reference: &Arc<Reference>, entry: Entry) {
        let pushed = reference.queue.push(entry);
        if let Pushed::Dropped { .. } = pushed {
            RecheckTask::lost(reference, entry.since, &entry);
        }
        if let Pushed::StartSender | Pushed::Dropped { start_sender: true } = pushed {
            let sender = Self {
                reference: Arc::clone(reference),
                has_ended: false,
            };
            reference.shared.spawn(sender.run());
        }
    }

    async fn run(mut self) {
        while let Some(waiting) = self.reference.queue.take() {
            let sent = self.send(waiting);
            self.audit_replies(sent).await;
        }
        self.has_ended = true;
    }

    /// Sends what waits: one call for what happened at one time, in order, without waiting for the reply to the call before.
    fn send(&self, mut waiting: VecDeque<Entry>) -> SentEntries {
        let reference = &self.reference;
        let shared = &reference.shared;
        let most = match shared.backend.is_cluster() {
            true => 1,
            false => usize::MAX,
        };
        let mut sent = SentEntries::new();
        while let (entries, Some(at)) = next(&mut waiting, most) {
            let mut call = shared.new_call_at(at);
            let now = reference.store_now();
            let placed: Vec<_> = entries
                .into_iter()
                .map(|entry| {
                    let plan = reference.plan(entry.event.check());
                    let is_late = plan.is_some_and(|plan| plan.audit.is_over(entry.at, now));
                    // In the window that has begun it would count for another one.
                    let placed = match is_late {
                        true => Placed::Nowhere,
                        false => reference.write(&mut call, &entry.event),
                    };
                    (entry, placed)
                })
                .collect();
            let size = call.checks();
            if size == 0 {
                let now = reference.now();
                for (entry, _) in &placed {
                    RecheckTask::lost(reference, now, entry);
                }
                continue;
            }
            sent.push((shared.send(&call, CallFor::Meter), size, placed));
        }
        sent
    }

    async fn audit_replies(&self, sent: SentEntries) {
        let reference = &self.reference;
        for (answer, size, placed) in sent {
            let reply = match answer.await {
                Ok(Value::Integers(integers)) => Reply::new(size, integers),
                _ => None,
            };
            // In part it would be about something else.
            let reply = reply.filter(|reply| reply.first_refusal().is_none());
            let now = reference.now();
            for (entry, placed) in &placed {
                let look = match &reply {
                    Some(reply) => FirstLook::new(reference, now, reply, entry, placed),
                    None => FirstLook::Lost,
                };
                match look {
                    FirstLook::Right => {}
                    FirstLook::Suspected(recheck) => RecheckTask::recheck(reference, recheck),
                    FirstLook::Missed(check) => RecheckTask::missed(reference, check),
                    FirstLook::Lost => RecheckTask::lost(reference, now, entry),
                }
            }
        }
        send_missed(reference);
    }
}

impl Drop for EventSender {
    /// With its runtime, a task may end in between.
    fn drop(&mut self) {
        if !self.has_ended {
            self.reference.queue.sender_ended();
        }
    }
}

fn next(waiting: &mut VecDeque<Entry>, most: usize) -> (Vec<Entry>, Option<Tick>) {
    let entries = at_once(waiting, most);
    let at = entries.iter().map(|entry| entry.at).max();
    (entries, at)
}
