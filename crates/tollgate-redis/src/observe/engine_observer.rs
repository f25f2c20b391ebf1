//! What happens in the engine, for metrics.

use std::sync::Arc;

use tollgate_prefilter::{EngineEvents, LeaseEvent, ReportEvent};

use crate::observe::observer::Observer;

/// Counts what happens in the engine.
#[derive(Debug)]
pub(crate) struct EngineObserver(Arc<Observer>);

impl EngineObserver {
    pub(crate) fn new(observer: &Arc<Observer>) -> Self {
        Self(Arc::clone(observer))
    }
}

impl EngineEvents for EngineObserver {
    fn lease(&self, event: LeaseEvent) {
        self.0.lease(event);
    }

    fn reports(&self, event: ReportEvent, count: usize) {
        self.0.reports(event, count);
    }

    fn units_lost(&self, units: u64) {
        self.0.lose_units(units);
    }
}
