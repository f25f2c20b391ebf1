//! One sample a second for all tabs, while there is one.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};

use crate::{console::Shared, overview, viewers::Shown};

/// How long samples go on without a tab: one that is loaded again is not missed.
const LINGERS: u32 = 3;
const SECOND: u64 = 1_000_000;

/// Begins, inside of a runtime. It ends with the router.
pub(crate) fn start(shared: &Arc<Shared>) {
    if let Ok(runtime) = Handle::try_current() {
        let task = || runtime.spawn(run(Arc::downgrade(shared))).abort_handle();
        shared.sampler.get_or_init(task);
    }
}

async fn run(shared: Weak<Shared>) {
    let mut lingers = 0_u32;
    loop {
        let Some((now, viewers)) = shared
            .upgrade()
            .map(|it| (it.clock.now(), Arc::clone(&it.viewers)))
        else {
            return;
        };
        match lingers {
            // The sums of a minute are taken at its end.
            0 => drop(timeout(until_next(now, 60 * SECOND), viewers.come()).await),
            _ => sleep(until_next(now, SECOND)).await,
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let since = shared.take_sample();
        lingers = match viewers.are_there() {
            true => LINGERS,
            false => lingers.saturating_sub(1),
        };
        if viewers.show(Shown::Overview) || viewers.show(Shown::Rules) {
            overview::scrape(&shared);
        }
        for shown in Shown::ALL.into_iter().filter(|it| viewers.show(*it)) {
            let sample = overview::sample(&shared, since, shown);
            viewers.send(shown, format!("data: {sample}\n\n").into());
        }
    }
}

/// How long until the clock shows a whole number of periods.
fn until_next(now: u64, period: u64) -> Duration {
    Duration::from_micros(period - now % period)
}
