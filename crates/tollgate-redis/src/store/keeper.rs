//! What is sent without a request: reports that are due, and lots that nobody asks for.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, task::AbortHandle, time::sleep};
use tollgate_core::{StoreError, StoreErrorKind, Tick};
use tollgate_prefilter::Closed;

use crate::{
    observe::Timer,
    prefilter::{filter::check_of, keyed::Slot},
    store::inner::Inner,
};

/// The most reports, or lots, of one call.
const TOGETHER: usize = 32;

/// How often lots are looked through, and the metrics are told what is held.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// The task that reports. Dropping this ends it.
pub(super) struct Keeper {
    task: AbortHandle,
    inner: Arc<Inner>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Begins, if there is anything to look after.
    pub(super) fn start(inner: &Arc<Inner>) -> Option<Self> {
        let pause = inner.prefilter.pause()?;
        let runtime = inner.shared.runtime.clone();
        // It must not keep the rule set alive that ends it.
        let task = runtime.spawn(keep(Arc::downgrade(inner), Duration::from_micros(pause)));
        Some(Self {
            task: task.abort_handle(),
            inner: Arc::clone(inner),
        })
    }
}

impl Drop for Keeper {
    /// What is not reported by now is reported at once, and what is held goes back: a lot of a window would be missed until
    /// the window is over.
    fn drop(&mut self) {
        self.task.abort();
        self.inner.hand_back(&self.inner.prefilter.hand_back());
        self.inner.report(&self.inner.prefilter.due(true));
    }
}

async fn keep(inner: Weak<Inner>, pause: Duration) {
    let mut since = Duration::ZERO;
    loop {
        sleep(pause).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        inner.send_due();
        since += pause;
        if since >= SWEPT_EVERY {
            since = Duration::ZERO;
            inner.hand_back(&inner.prefilter.sweep());
            let filter = &inner.prefilter;
            let held = (filter.units_on_lease(), filter.units_unreported());
            inner.shared.observer.held(held.0, held.1);
        }
    }
}

impl Inner {
    /// Sends what is due.
    fn send_due(self: &Arc<Self>) {
        self.report(&self.prefilter.due(false));
    }

    /// Sends reports; in a cluster, those of one slot at a time.
    pub(super) fn report(self: &Arc<Self>, reports: &[(Slot, u64)]) {
        let each = if self.shared.backend.is_cluster() {
            1
        } else {
            TOGETHER
        };
        for reports in reports.chunks(each) {
            let inner = Arc::clone(self);
            let sent = self.prefilter.now();
            let mut call = self.shared.begin();
            let placed: Vec<_> = reports
                .iter()
                .map(|(slot, units)| {
                    let check = check_of(*slot).with_cost(*units);
                    (*slot, call.debit(&self.encoder, &check))
                })
                .collect();
            let timer = Timer::start();
            let (answer, size) = (self.shared.send(&call), call.checks());
            self.spawn(async move {
                let reply = inner.shared.reply(timer, answer.await, size);
                for (slot, place) in placed {
                    let left = match (&reply, place) {
                        (Ok(reply), Some(place)) => Ok(reply.left(place)),
                        (Ok(_), None) => Ok(None),
                        (Err(error), _) => Err(error),
                    };
                    inner.reported(slot, sent, left);
                }
            });
        }
    }

    fn reported(&self, slot: Slot, sent: Tick, left: Result<Option<u64>, &StoreError>) {
        let Some(reports) = self.prefilter.reports() else {
            return;
        };
        match left {
            Ok(Some(left)) => reports.reported(slot, (sent, self.prefilter.now()), left),
            // A value that is not ours: as little is known of it.
            Ok(None) => self.given_up(reports.given_up(slot)),
            Err(error) if did_not_run(error) => reports.kept(slot, self.prefilter.now()),
            Err(_) => self.given_up(reports.given_up(slot)),
        }
    }

    fn given_up(&self, units: u64) {
        self.shared.observer.units_given_up(units);
    }

    fn hand_back(self: &Arc<Self>, lots: &[(Slot, Closed)]) {
        let each = if self.shared.backend.is_cluster() {
            1
        } else {
            TOGETHER
        };
        for lots in lots.chunks(each) {
            let mut call = self.shared.begin();
            for (slot, closed) in lots {
                // One that does not go back runs out.
                let _ = call.close(&self.encoder, &check_of(*slot), *closed);
            }
            let slots: Vec<_> = lots.iter().map(|(slot, _)| *slot).collect();
            let inner = Arc::clone(self);
            let answer = self.shared.send(&call);
            self.spawn(async move {
                let _ = answer.await;
                for slot in slots {
                    inner.prefilter.handed_back(slot);
                }
            });
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Within a runtime that is another one, of a test for example, the task goes there.
        match Handle::try_current() {
            Ok(here) => here.spawn(task),
            Err(_) => self.shared.runtime.spawn(task),
        };
    }
}

/// Whether a call certainly changed nothing.
fn did_not_run(error: &StoreError) -> bool {
    matches!(
        error.kind(),
        StoreErrorKind::Unavailable | StoreErrorKind::Overloaded | StoreErrorKind::Misconfigured
    )
}
