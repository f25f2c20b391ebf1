//! One sample a second for all tabs, while there is one; the sums of each minute without one too.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{runtime::Handle, time::sleep};

use crate::{console::Shared, overview};

const SECOND: u64 = 1_000_000;

/// Begins, inside of a runtime. It ends with the router.
pub(crate) fn start(shared: &Arc<Shared>) {
    if let Ok(runtime) = Handle::try_current() {
        let task = || drop(runtime.spawn(run(Arc::downgrade(shared))));
        shared.sampler.get_or_init(task);
    }
}

async fn run(shared: Weak<Shared>) {
    while let Some(now) = shared.upgrade().map(|it| it.clock.now()) {
        sleep(Duration::from_micros(SECOND - now % SECOND)).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let has_tabs = shared.latest.receiver_count() > 0;
        if !has_tabs && now / (60 * SECOND) == shared.clock.now() / (60 * SECOND) {
            continue;
        }
        let since = shared.take_sample();
        if has_tabs {
            overview::scrape(&shared);
            let sample = overview::sample(&shared, since);
            let event = format!("data: {sample}\n\n");
            shared.latest.send_replace(event.into());
        }
    }
}
