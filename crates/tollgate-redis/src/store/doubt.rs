//! The meter doubts: what looks false is asked about again, without anybody waiting for it.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    connection::value::Value,
    observe::CallFor,
    reply::Reply,
    store::{
        inner::Inner,
        meter::{
            Meter,
            doubts::{Doubt, LATER},
        },
    },
};

impl Inner {
    /// Keeps a refusal that looks false until it can be asked about again.
    pub(super) fn doubt(self: &Arc<Self>, meter: &Meter, doubt: Doubt) {
        if meter.doubts.add(doubt) {
            let minding = Minding {
                inner: Arc::downgrade(self),
                has_ended: false,
            };
            // Not where requests are answered: that runtime may have no timers.
            self.shared.runtime.spawn(minding.mind());
        }
    }

    /// Asks about all that is due: at the time at which it was decided.
    fn ask_again(self: &Arc<Self>, meter: &Meter) {
        for doubt in meter.doubts.due(self.prefilter.now()) {
            let mut call = self.shared.begin_at(doubt.entry.at);
            let Some(asked) = meter.look(&mut call, doubt.entry.event.check()) else {
                continue;
            };
            let answer = self.shared.send(&call, CallFor::Meter);
            let (inner, size) = (Arc::clone(self), call.checks());
            self.spawn(async move {
                let Ok(Value::Integers(integers)) = answer.await else {
                    return;
                };
                if let (Some(meter), Some(reply)) = (&inner.meter, Reply::new(size, integers)) {
                    let now = (inner.prefilter.now(), inner.prefilter.store_now());
                    meter.judge_again(now, &inner.rules, &reply, &doubt, &asked);
                }
            });
        }
    }
}

/// Whoever minds what waits. It ends with the rule set, and when nothing waits.
struct Minding {
    inner: Weak<Inner>,
    has_ended: bool,
}

impl Minding {
    async fn mind(mut self) {
        loop {
            sleep(Duration::from_micros(LATER)).await;
            let Some(inner) = self.inner.upgrade() else {
                return;
            };
            let Some(meter) = &inner.meter else { return };
            inner.ask_again(meter);
            if !meter.doubts.is_minded() {
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
            meter.doubts.left_alone();
        }
    }
}
