//! The background task that sends reports and returns leases.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use tollgate_prefilter::BoundRules;

use crate::store::{
    in_flight::{retire, send_alone},
    inner::Inner,
};

/// The pause between two batches of reports or leases, so that requests do not wait for all of them: some 60 000 reports a second.
const BETWEEN: Duration = Duration::from_millis(2);

/// The pause before reports are sent again while there is no connection.
const AGAIN: Duration = Duration::from_millis(50);

/// How long reports that Redis did not accept are sent again after a rule set has ended. Then they are lost.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The task that reports. Dropping this ends it.
pub(super) struct Flusher {
    task: AbortHandle,
    inner: Arc<Inner>,
}

impl fmt::Debug for Flusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flusher").finish_non_exhaustive()
    }
}

impl Flusher {
    /// Starts, if any rule is leased or reported.
    pub(super) fn start(inner: &Arc<Inner>) -> Option<Self> {
        let pause = inner.local.maintenance_interval()?;
        let runtime = inner.shared.runtime.clone();
        // It must not keep the rule set alive that ends it.
        let task = runtime.spawn(run(Arc::downgrade(inner), pause));
        Some(Self {
            task: task.abort_handle(),
            inner: Arc::clone(inner),
        })
    }
}

impl Drop for Flusher {
    /// Unreported units are reported at once, and leases go back: without that, a lease of a window would be missing until the
    /// window is over.
    fn drop(&mut self) {
        self.task.abort();
        retire(&self.inner);
        if !self.inner.local.is_reported() {
            let inner = Arc::clone(&self.inner);
            self.inner.shared.spawn(async move {
                let _ = timeout(SHUTDOWN_GRACE, flush(&inner)).await;
            });
        }
    }
}

async fn run(inner: Weak<Inner>, pause: Duration) {
    loop {
        sleep(pause).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        while send_due(&inner) {
            sleep(BETWEEN).await;
        }
    }
}

/// Sends what is due, a batch at a time. Whether there may be more.
fn send_due(inner: &Arc<Inner>) -> bool {
    let queries = inner.local.poll_maintenance(inner.now());
    let reports: usize = queries.iter().map(|query| query.reports().len()).sum();
    send_alone(inner, queries);
    reports == BoundRules::MAX_REPORTS || inner.local.is_looking_through_leases()
}

/// Sends reports until Redis has replied to all of them.
pub(super) async fn flush(inner: &Arc<Inner>) {
    loop {
        send_alone(inner, inner.local.flush(inner.now()));
        if inner.local.is_reported() {
            return;
        }
        let is_connected = inner.shared.backend.is_connected();
        sleep(if is_connected { BETWEEN } else { AGAIN }).await;
    }
}
