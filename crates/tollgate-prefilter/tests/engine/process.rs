//! A process with its engine.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tollgate_core::RuleSet;
use tollgate_prefilter::{
    BoundRules, Engine, EngineEvents, EngineOptions, LeaseEvent, ReportEvent,
};

use crate::world::World;

/// A process with its engine.
pub(crate) struct Process {
    pub(crate) engine: Arc<Engine>,
    /// The last is in use, the others are retired.
    pub(crate) bound: Vec<Arc<BoundRules>>,
    pub(crate) is_removed: bool,
    /// The units that the engine says are lost, and those that are.
    pub(crate) lost: Arc<AtomicU64>,
    pub(crate) really_lost: u64,
}

impl Process {
    pub(crate) fn new(world: &World, rules: &Arc<RuleSet>) -> Self {
        let options = EngineOptions {
            keys: 1,
            ..EngineOptions::default()
        };
        let lost = Arc::new(AtomicU64::new(0));
        let engine = Engine::new(options, Box::new(Lost(Arc::clone(&lost))));
        let bound = BoundRules::new(&engine, Arc::clone(rules), world.places());
        Self {
            engine,
            bound: vec![bound],
            is_removed: false,
            lost,
            really_lost: 0,
        }
    }

    /// The units that the engine says are lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Lost(Arc<AtomicU64>);

impl EngineEvents for Lost {
    fn lease(&self, _: LeaseEvent) {}
    fn reports(&self, _: ReportEvent, _: usize) {}
    fn units_lost(&self, units: u64) {
        self.0.fetch_add(units, Ordering::Relaxed);
    }
}
