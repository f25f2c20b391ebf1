//! What is done without a request: what is due, and what is not needed.

use tollgate_core::Tick;
use tollgate_prefilter::ReturnedLease;

use crate::prefilter::{
    filter::Prefilter,
    reports::{Report, Reports},
    table_key::TableKey,
};

impl Prefilter {
    /// Leases that are not needed, taken out to be handed back. About once a second.
    pub(crate) fn sweep(&self) -> Vec<(TableKey, ReturnedLease)> {
        let leases = self.leases.as_ref();
        leases.map_or_else(Vec::new, |leases| leases.sweep(self.now()))
    }

    /// All leases, taken out to be handed back.
    pub(crate) fn take_out(&self) -> Vec<(TableKey, ReturnedLease)> {
        let leases = self.leases.as_ref();
        leases.map_or_else(Vec::new, |leases| leases.take_out(self.now()))
    }

    /// A lease that was to be handed back certainly did not reach the store: it is here again.
    pub(crate) fn not_handed_back(&self, slot: TableKey, returned: ReturnedLease) {
        if let Some(leases) = &self.leases {
            leases.on_not_sent(slot, Some(returned));
        }
    }

    /// It is known what became of a lease that was handed back, as far as it ever will be.
    pub(crate) fn handed_back(&self, slot: TableKey) {
        self.unlearn(slot.key());
        if let Some(leases) = &self.leases {
            leases.lost(slot);
        }
    }

    /// What is to be reported by now, of at most so many keys.
    pub(crate) fn due(&self, most: usize) -> Vec<Report> {
        let now = self.now();
        self.due_by((now, now), most)
    }

    /// What is not reported yet, due or not, of at most so many keys.
    pub(crate) fn all_due(&self, most: usize) -> Vec<Report> {
        self.due_by((self.now(), Tick::MAX), most)
    }

    fn due_by(&self, by: (Tick, Tick), most: usize) -> Vec<Report> {
        let terms = |slot| self.report_terms(slot).copied();
        let reports = self.reports.as_ref();
        reports.map_or_else(Vec::new, |reports| reports.due_by(by, terms, most))
    }

    /// How often it is to be looked after; `None`: there is nothing to look after.
    pub(crate) fn pause(&self) -> Option<Tick> {
        self.plans.pause()
    }

    /// The units that this process holds in leases.
    pub(crate) fn units_on_lease(&self) -> u64 {
        let leases = self.leases.as_ref();
        leases.map_or(0, |leases| leases.units(self.now()))
    }

    /// The units that this process has admitted and the store does not know of.
    pub(crate) fn units_unreported(&self) -> u64 {
        self.reports.as_ref().map_or(0, Reports::unreported)
    }
}
