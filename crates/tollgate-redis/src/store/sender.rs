//! The one task that sends what no request waits for: local usage that is due, leases that are not needed, and which slots are in
//! use.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};
use tollgate_core::sync::lock;
use tollgate_prefilter::{EngineEvent, LocalRules};

use crate::store::{
    context::StoreContext,
    in_flight::send_alone,
    rule_set_context::{InUse, RuleSetContext},
    slots::send_due_slots,
};

/// The pause between two batches of reports or leases, so that requests do not wait for all of them: some 60 000 reports a second.
const BETWEEN: Duration = Duration::from_millis(2);

/// How often a flush looks whether all slots that went back were reported, and all calls answered.
const POLL_EVERY: Duration = Duration::from_millis(2);

/// The pause before reports are sent again while there is no connection.
const AGAIN: Duration = Duration::from_millis(50);

/// How long reports that Redis did not accept are sent again after a rule set has ended. Then they are lost.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Sends what is due, until the last store, limiter and layer are gone, and Redis knows of no slots of this process. `wake` says that
/// something is due sooner, or that the store is gone.
pub(super) async fn run(
    shared: Weak<StoreContext>,
    in_use: Arc<InUse>,
    wake: Arc<Notify>,
    _runs: Arc<()>,
) {
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let of_rules = in_use.all().iter().filter_map(send_due).min();
        let of_slots = send_due_slots(&shared);
        let pause = of_rules.into_iter().chain(of_slots).min();
        // Until Redis knows that slots went back, the connection stays.
        let _stays = of_slots.map(|_| shared);
        match pause {
            Some(pause) => _ = timeout(pause, wake.notified()).await,
            None => wake.notified().await,
        }
    }
}

/// Sends what is due of a rule set, a batch at a time. Until when more is, unless nothing ever is.
fn send_due(context: &Arc<RuleSetContext>) -> Option<Duration> {
    let interval = context.local.maintenance_interval()?;
    let mut looks_at = lock(&context.looks_at);
    let now = Instant::now();
    if *looks_at <= now {
        let queries = context.local.poll_maintenance(context.now());
        let reports: usize = queries.iter().map(|query| query.reports.len()).sum();
        send_alone(context, queries);
        let is_more =
            reports == LocalRules::MAX_REPORTS || context.local.is_looking_through_leases();
        *looks_at = now + if is_more { BETWEEN } else { interval };
    }
    Some(*looks_at - now)
}

/// Sends reports until Redis has replied to all of them.
async fn flush(context: &Arc<RuleSetContext>) {
    loop {
        send_alone(context, context.local.flush(context.now()));
        if context.local.is_reported() {
            return;
        }
        let is_connected = context.store.backend.is_connected();
        sleep(if is_connected { BETWEEN } else { AGAIN }).await;
    }
}

/// Sends all that Redis is to know, and waits for the answers. Gives the units that it may not know of.
pub(super) async fn flush_all(in_use: &InUse, shared: &StoreContext, within: Duration) -> u64 {
    let before = shared.engine.counts()[EngineEvent::UnitLost as usize];
    let all = in_use.all();
    // All at once: some of them may be ending by themselves.
    for context in &all {
        send_alone(context, context.local.flush(context.now()));
    }
    let sent = async {
        for context in &all {
            flush(context).await;
        }
        let is_in_flight = || Arc::strong_count(&shared.in_flight) > 1;
        while !shared.engine.slots().is_reported() || is_in_flight() {
            sleep(POLL_EVERY).await;
        }
    };
    let _ = timeout(within, sent).await;
    // Units that are given up in between are rather counted twice than not at all.
    let now = shared.process_clock.now();
    let unreported = shared.engine.usage(now).units_unreported;
    unreported + (shared.engine.counts()[EngineEvent::UnitLost as usize] - before)
}

/// The end of a rule set. Unreported units are reported at once, and leases go back: without that, a lease of a window would be missing
/// until the window is over.
pub(super) fn end_rules(context: &Arc<RuleSetContext>) {
    send_alone(context, context.local.retire(context.now()));
    if !context.local.is_reported() {
        let of_task = Arc::clone(context);
        context.store.spawn(async move {
            let _ = timeout(SHUTDOWN_GRACE, flush(&of_task)).await;
        });
    }
}
