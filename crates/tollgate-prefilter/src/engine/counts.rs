//! What has happened in the engine, and what it holds.

use crate::sync::{AtomicU64, Ordering};

/// What has happened in an [`Engine`](crate::Engine). The numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounts {
    /// Leases that were requested, granted, returned, and requested without a reply: if one was granted, its units are lost.
    pub leases: [u64; 4],
    /// Reports that were sent; that were certainly not carried out, and whose units go with the next one; and of which it is unknown.
    pub reports: [u64; 3],
    /// Admitted units that the store may not know of, and that are not reported again.
    pub units_lost: u64,
    /// States whose slots were reported without a request; grants that were not used, because a renewal was sent meanwhile or the reply
    /// came too late; requests whose slots the store had forgotten while they ran.
    pub slots: [u64; 3],
}

/// What an [`Engine`](crate::Engine) holds at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineUsage {
    /// The units of all leases.
    pub units_on_lease: u64,
    /// Units that were admitted and that the store does not know of.
    pub units_unreported: u64,
    /// Keys with a lease that has units, scheduled ones not included.
    pub leased_keys: u64,
    /// Keys with a scheduled lease that has units.
    pub scheduled_keys: u64,
    /// The slots of requests that run.
    pub slots_in_use: u64,
    /// Keys with an entry.
    pub keys: u64,
    /// The memory of the table of keys, also that without an entry.
    pub bytes: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    LeaseRequested,
    LeaseGranted,
    LeaseReturned,
    LeaseLost,
    ReportSent,
    ReportKept,
    ReportLost,
    UnitLost,
    SlotsReported,
    SlotsVoided,
    SlotsOutlived,
}

#[derive(Debug, Default)]
pub(crate) struct Counts([AtomicU64; 11]);

impl Counts {
    pub(crate) fn add(&self, event: Event, count: u64) {
        if count > 0 {
            self.0[event as usize].fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn so_far(&self) -> EngineCounts {
        let counts = self.0.each_ref();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        let [
            requested,
            granted,
            returned,
            lost,
            sent,
            kept,
            unknown,
            units_lost,
            slots @ ..,
        ] = counts;
        EngineCounts {
            leases: [requested, granted, returned, lost],
            reports: [sent, kept, unknown],
            units_lost,
            slots,
        }
    }
}
