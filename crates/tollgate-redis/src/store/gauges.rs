//! The task that brings gauges up to date.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

use crate::store::context::StoreContext;

/// How often gauges are brought up to date.
const EVERY: Duration = Duration::from_secs(1);

/// Brings gauges up to date until the store is gone.
pub(super) async fn run(shared: Weak<StoreContext>) {
    loop {
        sleep(EVERY).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let of_store = Arc::clone(&shared);
        // It looks at all that is kept of keys: of 100 000 for some milliseconds.
        let usage = spawn_blocking(move || of_store.engine.usage(of_store.process_clock.now()));
        let Ok(usage) = usage.await else {
            return;
        };
        let counts = shared.engine.counts();
        shared.observer.engine(Some(&usage), counts);
    }
}
