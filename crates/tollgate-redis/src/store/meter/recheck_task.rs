//! The background task that rechecks suspected violations, and sends units that the reference has missed.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::sleep;
use tollgate_core::{Check, Tick};

use crate::{
    connection::value::Value,
    observe::CallFor,
    script::reply::Reply,
    store::meter::{
        event_queue::Entry,
        recheck_query::RecheckQuery,
        rechecks::{LATER, Recheck},
        reference::Reference,
    },
};

/// How often is looked whether anything is due.
const EVERY: Duration = Duration::from_micros(LATER / 2);

/// The recheck task. It ends with the rule set, and when there is nothing left.
pub(super) struct RecheckTask {
    reference: Weak<Reference>,
    has_ended: bool,
}

impl RecheckTask {
    /// Keeps a suspected violation until it can be rechecked.
    pub(super) fn recheck(reference: &Arc<Reference>, recheck: Recheck) {
        if reference.rechecks.add(recheck) {
            Self::start(reference);
        }
    }

    /// The reference has missed as many units as a check costs.
    pub(super) fn missed(reference: &Arc<Reference>, check: Check) {
        if reference.rechecks.miss(check) {
            Self::start(reference);
        }
    }

    /// An event was not sent.
    pub(super) fn lost(reference: &Arc<Reference>, now: Tick, entry: &Entry) {
        if reference.lost(now, entry) {
            Self::start(reference);
        }
    }

    fn start(reference: &Arc<Reference>) {
        let task = Self {
            reference: Arc::downgrade(reference),
            has_ended: false,
        };
        // Not where requests are decided: that runtime may have no timers.
        reference.shared.runtime.spawn(task.run());
    }

    async fn run(mut self) {
        loop {
            sleep(EVERY).await;
            let Some(reference) = self.reference.upgrade() else {
                return;
            };
            send_missed(&reference);
            query_again(&reference);
            if !reference.rechecks.is_pending() {
                self.has_ended = true;
                return;
            }
        }
    }
}

impl Drop for RecheckTask {
    /// With its runtime, a task may end in between.
    fn drop(&mut self) {
        let reference = self.reference.upgrade();
        if let Some(reference) = reference.filter(|_| !self.has_ended) {
            reference.rechecks.task_ended();
        }
    }
}

/// Rechecks all that is due, for the time at which it was decided.
fn query_again(reference: &Arc<Reference>) {
    let shared = &reference.shared;
    for recheck in reference.rechecks.due(reference.now()) {
        let mut call = shared.new_call_at(recheck.entry.at);
        let Some(query) = RecheckQuery::write(reference, &mut call, recheck) else {
            continue;
        };
        let answer = shared.send(&call, CallFor::Meter);
        let (reference, size) = (Arc::clone(reference), call.checks());
        shared.spawn(async move {
            if let Ok(Value::Integers(integers)) = answer.await
                && let Some(reply) = Reply::new(size, integers)
            {
                let now = (reference.now(), reference.store_now());
                query.on_reply(&reference, now, &reply);
            }
        });
    }
}

/// Sends units that the reference has missed. Those that cannot be sent are tried again later.
pub(super) fn send_missed(reference: &Arc<Reference>) {
    let shared = &reference.shared;
    for check in reference.rechecks.take_missed() {
        let mut call = shared.new_call_at(reference.store_now());
        if !reference.write_missed(&mut call, &check) || call.is_empty() {
            continue;
        }
        let answer = shared.send(&call, CallFor::Meter);
        let reference = Arc::clone(reference);
        shared.spawn(async move {
            if answer.await.is_err() {
                RecheckTask::missed(&reference, check);
            }
        });
    }
}
