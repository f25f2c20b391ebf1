//! Rechecks suspected violations, and sends units that the reference has missed. No request waits for it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::sleep;
use tollgate_core::{Check, Tick};

use crate::{
    connection::value::Value,
    observe::CallFor,
    reply::Reply,
    store::{
        inner::Inner,
        meter::{
            Meter,
            line::Entry,
            rechecks::{LATER, Recheck},
        },
    },
};

/// How often is looked whether anything is due.
const EVERY: Duration = Duration::from_micros(LATER / 2);

impl Inner {
    /// Keeps a suspected violation until it can be rechecked.
    pub(super) fn recheck(self: &Arc<Self>, meter: &Meter, recheck: Recheck) {
        if meter.rechecks.add(recheck) {
            self.mind();
        }
    }

    /// The reference has missed as many units as a check costs.
    pub(super) fn miss(self: &Arc<Self>, meter: &Meter, check: Check) {
        if meter.rechecks.miss(check) {
            self.mind();
        }
    }

    /// An event was not sent.
    pub(super) fn lost(self: &Arc<Self>, meter: &Meter, now: Tick, entry: &Entry) {
        if meter.lost(now, entry) {
            self.mind();
        }
    }

    fn mind(self: &Arc<Self>) {
        let minding = Minding {
            inner: Arc::downgrade(self),
            has_ended: false,
        };
        // Not where requests are answered: that runtime may have no timers.
        self.shared.runtime.spawn(minding.mind());
    }

    /// Rechecks all that is due, for the time at which it was decided.
    fn query_again(self: &Arc<Self>, meter: &Meter) {
        for recheck in meter.rechecks.due(self.now()) {
            let mut call = self.shared.begin_at(recheck.entry.at);
            let Some(layout) = meter.write_recheck(&mut call, &recheck) else {
                continue;
            };
            let answer = self.shared.send(&call, CallFor::Meter);
            let (inner, size) = (Arc::clone(self), call.checks());
            self.spawn(async move {
                let Ok(Value::Integers(integers)) = answer.await else {
                    return;
                };
                if let (Some(meter), Some(reply)) = (&inner.meter, Reply::new(size, integers)) {
                    let now = (inner.now(), inner.store_now());
                    meter.audit_again(now, &inner.rules, &reply, &recheck, &layout);
                }
            });
        }
    }

    /// Sends units that the reference has missed. Those that cannot be sent are tried again later.
    pub(super) fn tell_missed(self: &Arc<Self>, meter: &Meter) {
        for check in meter.rechecks.take_missed() {
            let mut call = self.shared.begin_at(self.store_now());
            if !meter.write_missed(&mut call, &check) || call.is_empty() {
                continue;
            }
            let answer = self.shared.send(&call, CallFor::Meter);
            let inner = Arc::clone(self);
            self.spawn(async move {
                if let (Err(_), Some(meter)) = (answer.await, &inner.meter) {
                    inner.miss(meter, check);
                }
            });
        }
    }
}

/// The recheck task. It ends with the rule set, and when there is nothing left.
struct Minding {
    inner: Weak<Inner>,
    has_ended: bool,
}

impl Minding {
    async fn mind(mut self) {
        loop {
            sleep(EVERY).await;
            let Some(inner) = self.inner.upgrade() else {
                return;
            };
            let Some(meter) = &inner.meter else { return };
            inner.tell_missed(meter);
            inner.query_again(meter);
            if !meter.rechecks.is_minded() {
                self.has_ended = true;
                return;
            }
        }
    }
}

impl Drop for Minding {
    /// With its runtime, a task may end in between.
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade().filter(|_| !self.has_ended)
            && let Some(meter) = &inner.meter
        {
            meter.rechecks.left_alone();
        }
    }
}
