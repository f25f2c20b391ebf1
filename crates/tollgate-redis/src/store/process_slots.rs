//! The slots that this process has in use.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tollgate_core::{Check, Tick, store::SlotWaiters};
use tollgate_prefilter::{SlotCounts, SlotOwner, SlotTable, SlotTerms};

use crate::script::encoder::Encoder;

/// How often slots that another process may have returned are asked for.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// The slots that this process has in use, of all rule sets on the store: one owner for Redis, from the start of the process to its
/// end.
pub(super) struct ProcessSlots {
    in_use: Mutex<InUse>,
    /// How long Redis knows them without hearing of them.
    pub(super) term: Duration,
    pub(super) waiters: SlotWaiters,
}

/// What is in use, and who tells Redis of it.
pub(super) struct InUse {
    pub(super) table: SlotTable<SlotTarget>,
    /// When the task looks next; `None`: nothing is due.
    pub(super) looks_at: Option<Tick>,
    /// What the metrics have counted, and when.
    pub(super) measured: (SlotCounts, Tick),
    /// Whether nothing was due at the last look.
    pub(super) is_idle: bool,
}

/// Where the slots of a key are reported.
#[derive(Clone)]
pub(super) struct SlotTarget {
    pub(super) encoder: Arc<Encoder>,
    pub(super) check: Check,
}

impl ProcessSlots {
    pub(super) fn new(term: Duration, deadline: Duration) -> Self {
        let micros = |time: Duration| Tick::try_from(time.as_micros()).unwrap_or(Tick::MAX);
        let terms = SlotTerms::new(micros(term)).of_store(micros(deadline));
        Self {
            in_use: Mutex::new(InUse {
                table: SlotTable::new(SlotOwner::random(), terms),
                looks_at: None,
                measured: (SlotCounts::default(), 0),
                is_idle: true,
            }),
            term,
            waiters: SlotWaiters::polled(POLL_EVERY),
        }
    }

    /// Whether Redis knows of all requests that have ended.
    pub(super) fn is_reported(&self) -> bool {
        self.lock().table.is_reported()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, InUse> {
        // Each change is one step.
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ProcessSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessSlots")
            .field(&self.lock().table)
            .finish()
    }
}
