//! Who sends what is sent without a request.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::store::inner::Inner;

/// How often leases are looked through, and the metrics are told what is held.
const SWEPT_EVERY: Duration = Duration::from_secs(1);

/// For so long reports are sent again that Redis did not take when a rule set ended. Then, or when the last answer is no longer
/// waited for, they are given up.
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

impl Drop for Flusher {
    /// What is not reported by now is reported at once, and what is held goes back: a lease of a window would be missed until
    /// the window is over.
    fn drop(&mut self) {
        self.task.abort();
        self.inner.retire();
        if self.inner.prefilter.units_unreported() > 0 {
            let inner = Arc::clone(&self.inner);
            self.inner.spawn(async move {
                let _ = timeout(SHUTDOWN_GRACE, inner.send_all()).await;
            });
        }
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
            inner.take_out(inner.prefilter.sweep());
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
}
