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
    call::Call,
    observe::{CallFor, LotDid, ReportDid, Timer},
    prefilter::keyed::{Slot, check_of},
    store::inner::Inner,
};

/// The most reports, or lots, of one call.
const TOGETHER: usize = 32;

/// How often lots are looked through, and the metrics are told what is held.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// So many reports are sent at once, and then others have a turn: some 60 000 a second.
const AT_ONCE: usize = 4 * TOGETHER;
const BETWEEN: Duration = Duration::from_millis(2);

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
        self.inner.report(&self.inner.prefilter.all_due());
    }
}

async fn keep(inner: Weak<Inner>, pause: Duration) {
    let mut since = Duration::ZERO;
    loop {
        sleep(pause).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        inner.send_due().await;
        since += pause;
        if since >= SWEPT_EVERY {
            since = Duration::ZERO;
            inner.hand_back(&inner.prefilter.sweep());
            inner.tell_held();
            let instances = inner.shared.instances.known();
            inner.shared.observer.tell_bounds(instances);
        }
    }
}

impl Inner {
    /// Tells the metrics what is held, which takes a look at every key.
    fn tell_held(&self) {
        if cfg!(feature = "metrics") {
            let filter = &self.prefilter;
            let held = (filter.units_on_lease(), filter.units_unreported());
            self.shared.observer.held(held.0, held.1);
        }
    }

    /// Sends what is due, a little at a time: requests that wait for Redis are not to wait for all of it.
    async fn send_due(self: &Arc<Self>) {
        loop {
            let due = self.prefilter.due(AT_ONCE);
            self.report(&due);
            if due.len() < AT_ONCE {
                return;
            }
            sleep(BETWEEN).await;
        }
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
            let observer = &self.shared.observer;
            observer.reports(ReportDid::Sent, placed.len() as u64);
            let timer = Timer::start();
            let (answer, size) = (self.shared.send(&call, CallFor::Reports), call.checks());
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
            Err(error) if did_not_run(error) => {
                self.shared.observer.reports(ReportDid::Kept, 1);
                reports.kept(slot, self.prefilter.now());
            }
            Err(_) => self.given_up(reports.given_up(slot)),
        }
    }

    fn given_up(&self, units: u64) {
        self.shared.observer.reports(ReportDid::GivenUp, 1);
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
            self.close(&mut call, lots);
            let slots: Vec<_> = lots.iter().map(|(slot, _)| *slot).collect();
            let inner = Arc::clone(self);
            let answer = self.shared.send(&call, CallFor::Lots);
            self.spawn(async move {
                let _ = answer.await;
                for slot in slots {
                    inner.prefilter.handed_back(slot);
                }
            });
        }
    }

    /// Adds that lots go back. One that does not runs out.
    pub(super) fn close(&self, call: &mut Call, lots: &[(Slot, Closed)]) {
        for (slot, closed) in lots {
            let back = call.close(&self.encoder, &check_of(*slot), *closed);
            if back.is_some() {
                self.shared.observer.lots(LotDid::HandedBack, 1);
            }
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
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
